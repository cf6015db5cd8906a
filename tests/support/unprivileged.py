"""A program whom the permissions of files bind, also for root.

python -m tests.support.unprivileged MODULE [ARGUMENT …]
"""

import ctypes
import runpy
import sys

_VERSION_3 = 0x20080522
_DAC_OVERRIDE, _DAC_READ_SEARCH = 1, 2
_DROP_FROM_BOUNDING_SET = 24


def give_up_privileges() -> None:
    """Linux: this process, and those it starts, may read and write what its user may, no more."""
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for capability in (_DAC_OVERRIDE, _DAC_READ_SEARCH):
        # Fails for whoever has none, and then nothing was to be dropped.
        libc.prctl(_DROP_FROM_BOUNDING_SET, capability, 0, 0, 0)
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)()
    if libc.capget(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capget")
    # Effective, permitted and inheritable, in two words each; these are in the first.
    for place in range(3):
        sets[place] &= ~(1 << _DAC_OVERRIDE | 1 << _DAC_READ_SEARCH)
    if libc.capset(header, sets) != 0:
        raise OSError(ctypes.get_errno(), "capset")


if __name__ == "__main__":
    give_up_privileges()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
