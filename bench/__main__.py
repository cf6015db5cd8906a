"""python -m bench: measure, and say what came out."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.databases import STORES
from bench.figures import NotMeasured
from bench.machine import machine
from bench.report import Measured, Run, as_json, as_table
from bench.setting import QUICK, Setting, Size, disk, new_setting
from bench.targets import TARGETS
from bench.workloads import WORKLOADS


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what was asked for; 0 whatever came out, because it only informs."""
    asked = _parser().parse_args(arguments)
    size = QUICK if asked.quick else Size()
    if asked.rounds is not None:
        size = replace(size, rounds=asked.rounds)
    folder = asked.folder or disk()
    facts = machine(folder)
    runs = [
        _run(store, size, folder, asked.workload or list(WORKLOADS))
        for store in ([asked.store] if asked.store else STORES)
    ]
    if asked.json:
        print(json.dumps(as_json(runs, facts), indent=2, ensure_ascii=False))
    else:
        print(as_table(runs, facts))
    return 0


def _run(store: str, size: Size, folder: Path, names: Sequence[str]) -> Run:
    try:
        with new_setting(size, store, folder) as setting:
            measured = [_measured(name, setting) for name in names]
            return Run(store, setting.databases.facts, measured)
    except NotMeasured as problem:
        return Run(store, {}, problem=str(problem))


def _measured(name: str, setting: Setting) -> Measured:
    store = setting.databases.store
    print(f"{store}: {name} …", file=sys.stderr, flush=True)
    try:
        return Measured(name, WORKLOADS[name](setting, TARGETS[store].get(name)))
    except NotMeasured as problem:
        return Measured(name, problem=str(problem))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure yaoki, each figure beside what this machine could do at best.",
        epilog="Shares are worth comparing, also between machines; figures are not. Wrong usage "
        "ends with 2, anything measured with 0, whether or not a target was reached.",
    )
    parser.add_argument(
        "workload",
        nargs="*",
        type=_workload,
        metavar="WORKLOAD",
        help=f"what to measure; all unless named: {', '.join(WORKLOADS)}",
    )
    parser.add_argument("--store", choices=STORES, help="the store to measure; all unless named")
    parser.add_argument("--quick", action="store_true", help="only see that everything works")
    parser.add_argument("--json", action="store_true", help="print JSON, with every round")
    parser.add_argument("--rounds", type=_rounds, metavar="N", help="rounds of each workload")
    parser.add_argument(
        "--folder",
        type=_folder,
        metavar="DIR",
        help="where to make databases: a folder on the disk that is to be measured",
    )
    return parser


def _workload(text: str) -> str:
    if text not in WORKLOADS:
        raise argparse.ArgumentTypeError(f"{text!r} is none; there are {', '.join(WORKLOADS)}")
    return text


def _rounds(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 1 up")
    return int(text)


def _folder(text: str) -> Path:
    if not Path(text).is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {text!r}")
    return Path(text)


if __name__ == "__main__":
    sys.exit(main())
