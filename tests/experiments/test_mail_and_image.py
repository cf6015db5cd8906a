"""The first experiment: what fails for a while comes through, what always fails ends."""

from tests.worker.support_workers import work_off
from yaoki import GiveUp, RetryPolicy, Yaoki, fixed

AT_ONCE = RetryPolicy(max_attempts=3, backoff=fixed(0.05))


class UnidentifiedImage(Exception):
    pass


def test_a_mail_that_fails_twice_is_sent_at_the_third_attempt(app: Yaoki) -> None:
    sent: list[str] = []
    calls: list[int] = []

    @app.job("send-mail", retry=AT_ONCE)
    def send_mail(to: str) -> str:
        calls.append(1)
        if len(calls) < 3:
            raise TimeoutError(f"the mail server did not answer, try {len(calls)}")
        sent.append(to)
        return "sent"

    job = send_mail.enqueue(to="mai@example.jp")
    work_off(app)

    done = app.get(job)
    assert sent == ["mai@example.jp"]
    assert (done.status, done.attempt, done.retry_count, done.result) == ("completed", 3, 2, "sent")
    assert done.error is None
    assert [(one.attempt, one.outcome, one.error) for one in done.errors] == [
        (1, "retried", "TimeoutError: the mail server did not answer, try 1"),
        (2, "retried", "TimeoutError: the mail server did not answer, try 2"),
    ]
    assert [one.outcome for one in done.attempts] == ["retried", "retried", "completed"]


def test_an_image_that_can_never_be_read_dies_after_its_attempts(app: Yaoki) -> None:
    calls: list[str] = []

    @app.job("make-thumbnail", retry=AT_ONCE)
    def make_thumbnail(path: str) -> None:
        calls.append(path)
        raise UnidentifiedImage(f"{path} is no image")

    job = make_thumbnail.enqueue(path="notes.txt")
    work_off(app)

    dead = app.get(job)
    assert len(calls) == 3
    assert (dead.status, dead.attempt, dead.retry_count) == ("failed", 3, 2)
    assert dead.error == "UnidentifiedImage: notes.txt is no image"
    assert [one.outcome for one in dead.errors] == ["retried", "retried", "failed"]
    assert "make_thumbnail" in (dead.errors[-1].traceback or "")


def test_an_error_that_was_declared_permanent_is_not_tried_again(app: Yaoki) -> None:
    calls: list[str] = []

    @app.job("make-thumbnail", retry=RetryPolicy(give_up_on=(UnidentifiedImage,)))
    def make_thumbnail(path: str) -> None:
        calls.append(path)
        raise UnidentifiedImage(f"{path} is no image")

    job = make_thumbnail.enqueue(path="notes.txt")
    work_off(app)

    dead = app.get(job)
    assert (dead.status, dead.attempt, dead.max_attempts) == ("failed", 1, 4)
    assert calls == ["notes.txt"]


def test_a_handler_that_gives_up_is_not_tried_again(app: Yaoki) -> None:
    calls: list[str] = []

    @app.job("make-thumbnail")
    def make_thumbnail(path: str) -> None:
        calls.append(path)
        raise GiveUp(f"{path} is no image")

    job = make_thumbnail.enqueue(path="notes.txt")
    work_off(app)

    dead = app.get(job)
    assert (dead.status, dead.attempt, dead.error) == ("failed", 1, "notes.txt is no image")
    assert calls == ["notes.txt"]


def test_a_dead_job_that_is_put_back_after_the_fix_completes(app: Yaoki) -> None:
    fixed_now: list[bool] = []

    @app.job("make-thumbnail", retry=RetryPolicy(max_attempts=1))
    def make_thumbnail(path: str) -> str:
        if not fixed_now:
            raise UnidentifiedImage(f"{path} is no image")
        return f"{path}.png"

    job = make_thumbnail.enqueue(path="cat")
    work_off(app)
    assert app.get(job).status == "failed"
    fixed_now.append(True)
    again = app.retry(job)
    assert (again.status, again.attempt) == ("pending", 0)
    work_off(app)

    done = app.get(job)
    assert (done.status, done.attempt, done.result, done.error) == ("completed", 1, "cat.png", None)
    assert [one.error for one in done.errors] == ["UnidentifiedImage: cat is no image"]
