"""A disk that gets full under a program: python -m tests.store.sqlite.fill_the_disk URL BYTES."""

import resource
import signal
import sys

from yaoki import StoreError, Yaoki


def main(url: str, most: int) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    app = Yaoki(url)
    app.enqueue("first")
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, hard))
    refused = 0
    for number in range(60):
        try:
            job = app.enqueue("mail", {"text": "x" * 50_000, "n": number})
            print("made", job.id, flush=True)
        except StoreError as error:
            refused += 1
            print("refused", type(error).__name__, ascii(str(error)), flush=True)
    print("jobs", len(app.jobs(limit=1_000)), flush=True)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    print("made", app.enqueue("after").id, flush=True)
    app.close()
    print("refused in all", refused, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
