"""A program that is stopped in the middle of a checkpoint.

    python -m tests.store.sqlite.stopped_checkpoint WAY FILE STOP

WAY is "ours", or a mode of SQLite's own. A checkpoint of a file that is mapped into memory calls
munmap() when it has read the header of the log's index and has not copied anything: what was put
before that (`stopping.c`) waits there until there is a file STOP.go.
"""

import sqlite3
import sys
from pathlib import Path

from yaoki.store.sqlite.checkpoint import Checkpoints
from yaoki.store.sqlite.connection import connect
from yaoki.store.sqlite.place import Place


def main(way: str, file: str, stop: str) -> None:
    path, place = Path(file), Place(Path(file))
    checkpoints = Checkpoints(path, place)
    checkpoints._checkpoint("PASSIVE")
    assert checkpoints._connection is not None
    into_memory(checkpoints._connection)
    print("ready", flush=True)
    sys.stdin.readline()
    Path(f"{stop}.armed").touch()
    if way == "ours":
        checkpoints.run(connect(path, place))
    else:
        checkpoints._checkpoint(way)
    print("done", flush=True)


def into_memory(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA mmap_size = 1000000000")
    connection.execute("SELECT sum(length(x)) FROM t").fetchone()


if __name__ == "__main__":
    main(*sys.argv[1:])
