"""The least that a waiting process can do: python -m bench.limits.waiter FILE PROBE.

It sleeps in a read of its standard input, claims one job for each byte, and says when it has it.
"""

import os
import sys
from pathlib import Path

from bench.limits.sqlite import RawSQLite
from bench.probe import Probe


def main(path: str, probe_path: str) -> None:
    """Until the standard input ends; the job's number is its id less one."""
    probe = Probe(Path(probe_path))
    raw = RawSQLite(Path(path))
    probe.wait_for_go()
    while os.read(0, 1):
        [job_id] = raw.exchange(1)
        probe.mark(job_id - 1)
        raw.exchange(0)
    raw.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
