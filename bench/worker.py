"""The worker process of a measurement: python -m bench.worker URL PROBE PLACE CONCURRENCY."""

import sys
from pathlib import Path

from bench.jobs import new_app
from bench.probe import Probe


def main(url: str, probe_path: str, place: str, concurrency: str) -> None:
    """Get everything ready, wait for the others, then run jobs until SIGTERM."""
    probe = Probe(Path(probe_path), int(place))
    app = new_app(url, probe).app
    app.migrate()
    probe.wait_for_go()
    app.run_worker(concurrency=int(concurrency))


if __name__ == "__main__":
    main(*sys.argv[1:])
