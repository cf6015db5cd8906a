"""A program that claims until nothing is left: python -m tests.store.sqlite.claimer URL NAME."""

import sys
import threading

from yaoki import Yaoki

THREADS = 4


def main(url: str, name: str) -> None:
    app = Yaoki(url)
    print("ready", flush=True)
    sys.stdin.readline()
    taken: list[list[int]] = [[] for _ in range(THREADS)]

    def work(place: int) -> None:
        while jobs := app.claim(f"{name}-{place}", types=["count"], limit=1 + place * 3):
            for job in jobs:
                app.complete(job, job.payload)
                taken[place].append(job.id)
                if job.id % 50 == 0:
                    app.enqueue("follow-up", {"of": job.id}, idempotency_key=f"after-{job.id}")

    threads = [threading.Thread(target=work, args=(place,)) for place in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    app.close()
    print("took", *[job_id for ids in taken for job_id in ids], flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
