"""What a supervisor and its worker processes say to each other."""

from typing import Any

import msgspec


class Hello(msgspec.Struct, tag=True):
    """The app is imported, and its worker is about to begin. `lease_for` is seconds."""

    url: str
    worker_id: str
    concurrency: int
    lease_for: float


class Ready(msgspec.Struct, tag=True):
    """It claims. `files` is where the user's modules came from, for --reload."""

    files: list[str]


class Beat(msgspec.Struct, tag=True):
    """Each second: it lives, and this is how much it has done, leaked, and uses of memory."""

    done: int
    leaked: int
    memory: int


class Refused(msgspec.Struct, tag=True):
    """It cannot begin, for this reason; `code` is for the exit.

    `passing`: the database is to blame, so it may be able to later.
    """

    code: int
    why: str
    passing: bool


class Ended(msgspec.Struct, tag=True):
    """It ends in good order; a process that ends without saying so has died."""

    code: int


FromChild = Hello | Ready | Beat | Refused | Ended
FROM_CHILD: Any = FromChild


class Drain(msgspec.Struct, tag=True):
    """Claim nothing more; what runs gets `grace` seconds (None: as long as it takes)."""

    grace: float | None


class Hurry(msgspec.Struct, tag=True):
    """Stop at once, because of this signal."""

    number: int


ToChild = Drain | Hurry
TO_CHILD: Any = ToChild
