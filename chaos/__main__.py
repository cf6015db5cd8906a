"""python -m chaos: let everything go wrong, and say whether a promise was broken."""

import argparse
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

from chaos.plan import QUICK, Size, plan
from chaos.report import as_table
from chaos.run import How, run

STORES = ("sqlite", "postgres")


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every promise was kept, on every store; 1 when one was broken."""
    asked = _parser().parse_args(arguments)
    if not Path("/proc/self/environ").exists():
        print("chaos needs /proc, as Linux has it, to find the processes of workers")
        return 2
    size = QUICK if asked.quick else Size()
    for name in ("jobs", "kills", "workers", "concurrency"):
        if getattr(asked, name) is not None:
            size = replace(size, **{name: getattr(asked, name)})
    seed = random.randrange(10**6) if asked.seed is None else asked.seed
    how = How(asked.app, asked.processes)
    good = True
    for store in [asked.store] if asked.store else STORES:
        drawn = plan(seed, size, store)
        folder = Path(mkdtemp(prefix="chaos-"))
        print(f"{store}: seed {seed}, logs in {folder}", flush=True)
        verdict = run(store, drawn, how, folder, _to_stderr(store))
        print(as_table(store, drawn, verdict), flush=True)
        good = good and verdict.good
        if verdict.good and not asked.keep:
            rmtree(folder, ignore_errors=True)
    again = f"python -m chaos --seed {seed}" + "".join(f" {one}" for one in _without_seed(asked))
    print(f"{'All promises were kept' if good else 'PROMISES WERE BROKEN'}. The same plan: {again}")
    return 0 if good else 1


def _to_stderr(store: str) -> Callable[[str], None]:
    return lambda text: print(f"{store}: {text}", file=sys.stderr, flush=True)


def _without_seed(asked: argparse.Namespace) -> list[str]:
    said = []
    for name, value in vars(asked).items():
        if value is True:
            said.append(f"--{name}")
        elif value not in (None, False, How.app, How.processes) and name != "seed":
            said.append(f"--{name} {value}")
    return said


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m chaos",
        description="Kill, stop and cut off workers while they work; then see what became of the "
        "jobs. Needs Linux.",
        epilog="Ends with 0 when every promise was kept, with 1 when one was broken, and with 2 "
        "for wrong usage. A seed repeats the jobs and the troubles, at their moments; what they "
        "meet there is never quite the same.",
    )
    parser.add_argument("--store", choices=STORES, help="the store to try; both unless named")
    parser.add_argument("--seed", type=_whole, metavar="N", help="repeat the plan of this seed")
    parser.add_argument("--quick", action="store_true", help="a few seconds of everything")
    parser.add_argument("--jobs", type=_whole, metavar="N", help="jobs to enqueue")
    parser.add_argument("--kills", type=_whole, metavar="N", help="how often to kill")
    parser.add_argument("--workers", type=_whole, metavar="N", help="workers at once")
    parser.add_argument("--concurrency", type=_whole, metavar="N", help="jobs at once of each")
    parser.add_argument(
        "--processes",
        type=_whole,
        metavar="N",
        default=How.processes,
        help="processes of each worker in which handlers run (%(default)s)",
    )
    parser.add_argument(
        "--app", default=How.app, metavar="MODULE:ATTR", help="what the workers serve"
    )
    parser.add_argument("--keep", action="store_true", help="keep logs and ledger in any case")
    return parser


def _whole(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 up")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
