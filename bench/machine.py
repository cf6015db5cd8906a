"""What was measured on: versions, hardware, disk."""

import os
import platform
import re
import subprocess
from importlib.metadata import version
from pathlib import Path


def machine(folder: Path) -> dict[str, object]:
    """Facts that belong to every figure."""
    return {
        "yaoki": version("yaoki"),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": os.cpu_count(),
        "file_system": _file_system(folder),
        "load": [round(load, 2) for load in os.getloadavg()],
    }


def _processor() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found[1] if found else platform.machine()


def _file_system(folder: Path) -> str:
    command = ["stat", "-f", "-c", "%T", str(folder)]
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"
    except OSError:
        return "unknown"
