"""A claimer in a process of its own, for the third experiment."""

from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier

from yaoki import Yaoki


def claim_at_the_barrier(
    url: str, name: str, rounds: int, barrier: Barrier, answers: Connection
) -> None:
    """In each round wait for the others, claim one job, and say which ids it got."""
    app = Yaoki(url)
    app.migrate()
    for _ in range(rounds):
        barrier.wait(30)
        answers.send([job.id for job in app.claim(name)])
    app.close()
