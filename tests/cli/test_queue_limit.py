"""`yaoki worker --queue mail=1`: the limit holds, and the others are not held up by it."""

from tests.cli.program import Program
from yaoki import Yaoki

SHOP = """
import threading
import time

from yaoki import Yaoki

app = Yaoki()
lock, inside, most = threading.Lock(), {"mail": 0, "default": 0}, {"mail": 0, "default": 0}


def stay(queue):
    with lock:
        inside[queue] += 1
        most[queue] = max(most[queue], inside[queue])
    time.sleep(0.1)
    with lock:
        inside[queue] -= 1
    return most[queue]


@app.job("mail", queue="mail")
def mail() -> int:
    return stay("mail")


@app.job("other")
def other() -> int:
    return stay("default")
"""


def test_a_queue_has_at_most_so_many_jobs_at_once(yaoki: Program, app: Yaoki) -> None:
    (yaoki.folder / "shop.py").write_text(SHOP, "utf-8")
    app.enqueue_many("mail", [{}] * 5, queue="mail")
    app.enqueue_many("other", [{}] * 5)

    ran = yaoki(
        *("--app", "shop:app", "worker", "--until-empty", "--concurrency", "4"),
        *("--queue", "mail=1", "--queue", "default"),
    )

    assert ran.code == 0
    assert {job.result for job in app.jobs(type="mail")} == {1}
    assert max(job.result for job in app.jobs(type="other")) > 1
