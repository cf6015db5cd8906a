"""A program that holds the write lock of a file: python -m tests.store.sqlite.hold_the_lock."""

import sqlite3
import sys
import time


def main(path: str, seconds: float) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    print("holding", flush=True)
    time.sleep(seconds)
    connection.execute("COMMIT")
    print("let go", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
