"""What the demo says, in English and in Japanese."""

import os
from collections.abc import Mapping

LANGUAGES = ("en", "ja")


class Words:
    """The texts of one language."""

    def __init__(self, language: str) -> None:
        self._texts = TEXTS[language]

    def __call__(self, key: str, **values: object) -> str:
        return self._texts[key].format_map(values)


def language_of(environment: Mapping[str, str]) -> str:
    """Japanese where the locale says so, else English."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if environment.get(name):
            return "ja" if environment[name].startswith("ja") else "en"
    return "en"


def words(language: str | None) -> Words:
    """The texts in this language, or in that of the environment."""
    return Words(language or language_of(os.environ))


ENGLISH = {
    "begin": "yaoki: a shop's background jobs, on {file}",
    "worker": "A worker process runs (pid {pid}); it was started with: yaoki worker",
    "bulk": "1. A bulk sign-up: {count} welcome mails, stored with one call in {took}",
    "bulk bar": "{done} of {count} sent",
    "bulk done": "All {count} are sent, each exactly once.",
    "mail": "2. A mail server that does not answer twice, and then does",
    "attempt failed": "Attempt {attempt} failed: {error}",
    "again": "It waits {wait}, and is tried again.",
    "mail done": "Attempt 3 got through: {answer!r}. The two errors stay on record.",
    "image": "3. A file that is no image, however often one looks",
    "image dead": "After {attempts} attempts the job is failed: kept, with its errors, for people.",
    "image fix": "The operator puts the right file in place, and the job back:",
    "image done": "Now it completes. Its history still tells of the {errors} failures.",
    "twice": "4. The same event arrives twice: points for order 1001",
    "twice same": "Both calls gave job {id}: one key, one job. It ran once.",
    "remind": "5. A reminder, due in two seconds",
    "remind later": "Job {id} waits for {due}. In the meantime:",
    "remind done": "And the reminder of 5: it began {late} after its time, and not before.",
    "priority": "6. Priorities: a critical label overtakes {count} that wait",
    "priority order": "{count} of low priority were there first. The printer took them like this:",
    "priority line": "{place}. {parcel} ({label})",
    "parcel": "parcel {number}",
    "express": "the express parcel",
    "kill": "7. A machine dies in the middle of a job",
    "kill second": "A second worker process joins (pid {pid}).",
    "kill bar": "order {done} of {total}, in process {pid}",
    "killed": "SIGKILL to process {pid} and its supervisor, as if the machine had lost power.",
    "kill lease": "Its lease on job {id} ends in {left}; until then nobody else may have it.",
    "kill done": "Worker {pid} took it over and finished it: attempt {attempt}.",
    "end": "What happened to each job",
    "column job": "JOB",
    "column type": "TYPE",
    "column status": "STATUS",
    "column story": "WHAT HAPPENED",
    "completed": "completed",
    "story bulk": "each at its first attempt",
    "story mail": "two time-outs, then it worked",
    "story image": "died, was put back, then completed",
    "story twice": "enqueued twice, made once, ran once",
    "story remind": "ran at its time",
    "story low": "waited for the critical one",
    "story critical": "overtook those that waited",
    "story kill": "its worker was killed, another finished",
    "all done": "{count} jobs, all completed, in {took}. The database and the workers are gone.",
}

JAPANESE = {
    "begin": "yaoki: あるお店のバックグラウンドジョブ（{file}）",
    "worker": "ワーカープロセスを起動しました（pid {pid}、コマンドは yaoki worker）",
    "bulk": "1. 一括登録：ウェルカムメール {count} 通を 1 回の呼び出しで登録（{took}）",
    "bulk bar": "{count} 通中 {done} 通を送信",
    "bulk done": "{count} 通すべてを、それぞれ 1 回だけ送信しました。",
    "mail": "2. 2 回応答せず、3 回目に応答するメールサーバー",
    "attempt failed": "{attempt} 回目は失敗：{error}",
    "again": "{wait} 待って、もう一度試します。",
    "mail done": "3 回目で成功：{answer!r}。2 回分のエラーは履歴に残ります。",
    "image": "3. 何度見ても画像ではないファイル",
    "image dead": "{attempts} 回で failed に。エラーとともに残り、人の判断を待ちます。",
    "image fix": "運用担当者が正しいファイルに差し替え、ジョブを戻します：",
    "image done": "今度は完了しました。{errors} 回の失敗は履歴に残っています。",
    "twice": "4. 同じイベントが 2 回届く：注文 1001 のポイント付与",
    "twice same": "どちらもジョブ {id} を返しました。同じキーなら 1 件、実行も 1 回です。",
    "remind": "5. 2 秒後のリマインダー",
    "remind later": "ジョブ {id} は {due} まで待ちます。その間に：",
    "remind done": "5 のリマインダー：予定の {late} 後に始まりました。早まることはありません。",
    "priority": "6. 優先度：critical のラベルが、待っている {count} 件を追い越す",
    "priority order": "先に low が {count} 件並んでいました。プリンターが取った順番は：",
    "priority line": "{place}. {parcel}（{label}）",
    "parcel": "荷物 {number}",
    "express": "速達の荷物",
    "kill": "7. ジョブの途中でマシンごと死ぬ",
    "kill second": "2 つ目のワーカープロセスを起動しました（pid {pid}）。",
    "kill bar": "注文 {total} 件中 {done} 件目（プロセス {pid}）",
    "killed": "プロセス {pid} とその監視プロセスに SIGKILL。電源が落ちたのと同じです。",
    "kill lease": "ジョブ {id} のリースは {left} 後に切れます。それまではほかの誰も取れません。",
    "kill done": "ワーカー {pid} が引き継いで完了しました（{attempt} 回目の試行）。",
    "end": "それぞれのジョブに起きたこと",
    "column job": "ジョブ",
    "column type": "種類",
    "column status": "状態",
    "column story": "起きたこと",
    "completed": "完了",
    "story bulk": "すべて 1 回目で完了",
    "story mail": "2 回タイムアウトし、3 回目で成功",
    "story image": "失敗して止まり、戻されて完了",
    "story twice": "2 回登録されたが 1 件だけ、実行も 1 回",
    "story remind": "予定の時刻に実行",
    "story low": "critical の後に実行",
    "story critical": "待っていたジョブを追い越した",
    "story kill": "ワーカーが強制終了、別のワーカーが完了",
    "all done": "{count} 件すべて完了（{took}）。データベースもワーカーも残っていません。",
}

TEXTS = {"en": ENGLISH, "ja": JAPANESE}
