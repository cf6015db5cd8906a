"""The least that a waiting process can do: python -m bench.limits.waiter URL PROBE.

It sleeps until it is woken, claims one job, and says when it has it.
"""

import sys
from pathlib import Path

from bench.limits import open_raw
from bench.probe import Probe

STDIN = 0


def main(url: str, probe_path: str) -> None:
    """Until the standard input ends; the job's number is its id less one."""
    probe = Probe(Path(probe_path))
    raw = open_raw(url)
    raw.listen()
    probe.wait_for_go()
    while raw.wait(STDIN):
        [job_id] = raw.exchange(1)
        probe.mark(job_id - 1)
        raw.exchange(0)
    raw.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
