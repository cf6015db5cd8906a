"""python -m bench: measure, and say what came out."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.figures import NotMeasured
from bench.machine import machine
from bench.report import Measured, as_json, as_table
from bench.setting import QUICK, Setting, Size, new_setting
from bench.workloads import WORKLOADS


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure what was asked for; 0 whatever came out, because it only informs."""
    asked = _parser().parse_args(arguments)
    size = QUICK if asked.quick else Size()
    if asked.rounds is not None:
        size = replace(size, rounds=asked.rounds)
    with new_setting(size, asked.folder) as setting:
        facts = machine(setting.folder)
        measured = [_measured(name, setting) for name in asked.workload or WORKLOADS]
    if asked.json:
        print(json.dumps(as_json(measured, facts), indent=2, ensure_ascii=False))
    else:
        print(as_table(measured, facts))
    return 0


def _measured(name: str, setting: Setting) -> Measured:
    print(f"{name} …", file=sys.stderr, flush=True)
    try:
        return Measured(name, WORKLOADS[name](setting))
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
