"""What a worker and the processes of its isolated handlers say to each other.

Only plain values: nothing of the user's is sent as an object, so there is nothing that could fail
to be pickled, or do harm when it is read.
"""

from typing import Any

import msgspec

from yaoki.core.job import Progress
from yaoki.core.outcomes import Change


class Setup(msgspec.Struct):
    """What a child is to run: the first that it is told.

    `app` is found as `module:attribute` once the `modules` are imported, in their order; it is to
    know these `types`, and works on the database `url`. `parent` is the worker's process id.
    `levels` are those of its loggers, by name ("" the root).
    """

    app: str
    modules: list[str]
    types: list[str]
    url: str
    folder: str
    lease_for: float
    parent: int
    levels: dict[str, int]


# To the child. `number` counts the jobs of one child, so nothing is taken for a later one's.


class Work(msgspec.Struct, array_like=True, tag=1):
    """Run this job: the row as it was claimed."""

    number: int
    row: list[Any]


class Stop(msgspec.Struct, array_like=True, tag=2):
    """Tell the handler to stop, and why."""

    number: int
    reason: str


class MayCommit(msgspec.Struct, array_like=True, tag=3):
    """The answer to Completing: whether the job is still the handler's to complete."""

    number: int
    may: bool


class Leave(msgspec.Struct, array_like=True, tag=4):
    """End in good order."""


ToChild = Work | Stop | MayCommit | Leave


# To the worker


class Ready(msgspec.Struct, array_like=True, tag=11):
    """It has imported the app. `stacks` is the file descriptor that it writes stacks to."""

    stacks: int | None


class Unready(msgspec.Struct, array_like=True, tag=12):
    """It cannot run the app's handlers, and ends."""

    why: str


class Begun(msgspec.Struct, array_like=True, tag=18):
    """The job has come, and begins."""

    number: int


class Told(msgspec.Struct, array_like=True, tag=13):
    """The handler says how far it is."""

    number: int
    progress: Progress


class Logged(msgspec.Struct, array_like=True, tag=19):
    """A line for people that the handler said `at` (monotonic)."""

    number: int
    level: str
    text: str
    at: float


class Completing(msgspec.Struct, array_like=True, tag=14):
    """It is about to commit the job's completion, and waits for MayCommit; False: it did not."""

    number: int
    so: bool


class Settled(msgspec.Struct, array_like=True, tag=15):
    """The handler has committed the job's completion."""

    number: int


class Record(msgspec.Struct, array_like=True, tag=16):
    """A record of `logging`, whose message is a text already."""

    fields: dict[str, Any]


class Ended(msgspec.Struct, array_like=True, tag=17):
    """The attempt is over; `change` is None when the handler has recorded the outcome.

    `worn`: this process should not be used again.
    """

    number: int
    change: Change | None
    progress: Progress | None
    handed_back: bool
    worn: bool


FromChild = Ready | Unready | Begun | Told | Logged | Completing | Settled | Record | Ended


encode = msgspec.msgpack.Encoder().encode
read_from_child = msgspec.msgpack.Decoder(FromChild).decode
read_to_child = msgspec.msgpack.Decoder(ToChild).decode
