"""The third experiment: two claimers at the same instant never get the same job."""

import multiprocessing
import threading
from concurrent.futures import ThreadPoolExecutor

from tests.experiments.claimers import claim_at_the_barrier
from yaoki import Yaoki

ROUNDS = 150


def test_two_processes_at_the_same_instant_never_get_the_same_job(app: Yaoki) -> None:
    spawn = multiprocessing.get_context("spawn")
    barrier = spawn.Barrier(3)
    pipes = [spawn.Pipe(duplex=False) for _ in range(2)]
    app.migrate()
    processes = [
        spawn.Process(
            target=claim_at_the_barrier, args=(app.url, f"w{number}", ROUNDS, barrier, answers)
        )
        for number, (_, answers) in enumerate(pipes)
    ]
    for process in processes:
        process.start()

    for _ in range(ROUNDS):
        job = app.enqueue("contested")
        barrier.wait(30)
        got = [questions.recv() for questions, _ in pipes]
        assert sorted(got) == [[], [job.id]]

    for process in processes:
        process.join(10)
        assert process.exitcode == 0


def test_two_threads_at_the_same_instant_never_get_the_same_job(app: Yaoki) -> None:
    barrier = threading.Barrier(2)

    def claim(name: str) -> list[int]:
        barrier.wait(10)
        return [job.id for job in app.claim(name)]

    with ThreadPoolExecutor(2) as pool:
        for _ in range(ROUNDS):
            job = app.enqueue("contested")
            got = list(pool.map(claim, ["w0", "w1"]))
            assert sorted(got) == [[], [job.id]]


def test_ten_claimers_of_one_batch_share_it_without_overlap(app: Yaoki) -> None:
    app.enqueue_many("contested", [{}] * 500)
    barrier = threading.Barrier(10)

    def claim_some(name: str) -> list[int]:
        barrier.wait(10)
        taken: list[int] = []
        while batch := app.claim(name, limit=7):
            taken += [job.id for job in batch]
        return taken

    with ThreadPoolExecutor(10) as pool:
        shares = list(pool.map(claim_some, [f"w{number}" for number in range(10)]))

    everything = [job_id for share in shares for job_id in share]
    assert len(everything) == len(set(everything)) == 500
