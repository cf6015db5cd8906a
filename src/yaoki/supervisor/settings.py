"""How a supervisor is to work."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SupervisorSettings:
    """`recycle_above` is bytes; `grace` is seconds."""

    processes: int = 1
    grace: float = 30.0
    until_empty: bool = False
    recycle_after: int | None = None
    recycle_above: int | None = None
    reload: bool = False
