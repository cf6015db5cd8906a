"""A program in which somebody always reads: python -m tests.store.sqlite.read_all_the_time URL."""

import sys
import threading

from yaoki import Yaoki


def main(url: str) -> None:
    app = Yaoki(url)

    def read() -> None:
        while True:
            app.jobs(limit=5)

    for _ in range(3):
        threading.Thread(target=read, daemon=True).start()
    print("reading", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main(sys.argv[1])
