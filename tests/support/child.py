"""What the children of tests/test_children.py run."""

import os
import signal
import subprocess
import sys
import time
from typing import Any

from yaoki import children
from yaoki.children import Line


def echo(line: Line, args: Any) -> int:
    """Says what it was given and who it is; then does what it is told."""
    children.hear(lambda number: line.send(["signal", number]) and None)
    line.send(["hello", args, os.getpid(), os.getsid(0), sys.argv])
    while True:
        match line.receive(object):
            case "exit":
                return 3
            case "kill yourself":
                os.kill(os.getpid(), signal.SIGKILL)
            case "fork":
                pid = os.fork()
                if pid == 0:
                    time.sleep(60)
                line.send(pid)
            case "start":
                line.send(subprocess.Popen(["sleep", "60"]).pid)
            case said:
                line.send(["echo", said])


def deaf_for_a_while(line: Line, args: Any) -> None:
    line.send("begun")
    time.sleep(0.3)
    children.hear(lambda number: line.send(number) and None)
    line.receive(object)


def main_of_the_parent(line: Line, args: Any) -> None:
    children.hear(lambda number: None)
    line.send(getattr(sys.modules["__mp_main__"], "WHO", None))


def without_a_word(line: Line, args: Any) -> None:
    children.hear(lambda number: None)
    line.receive(object)
