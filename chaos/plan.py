"""What is going to happen: drawn from a seed, and so the same whenever the seed is."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from chaos.jobs import KINDS

LEASE = 2.0
"""Seconds; every stop and every lock that is meant to cost leases lasts longer."""

GRACE = 10.0
"""Seconds that a worker which was told to end gives its jobs: longer than any of them takes."""


@dataclass(frozen=True)
class Size:
    """How much happens."""

    jobs: int = 10_000
    kills: int = 100
    workers: int = 3
    concurrency: int = 8
    spacing: float = 1.25
    """Seconds from one kill to the next."""

    @property
    def seconds(self) -> float:
        """For which there are new jobs and new troubles."""
        return self.kills * self.spacing


QUICK = Size(jobs=300, kills=4, workers=2, concurrency=4, spacing=0.9)
"""Some of everything in a few seconds."""


@dataclass(frozen=True)
class Spec:
    """A job that a producer is going to enqueue, `at` seconds after the beginning."""

    name: str
    kind: str
    at: float
    how: str
    """"one" by one, "many" in a batch, or "awaiting"."""
    arguments: dict[str, Any] = field(default_factory=dict)
    priority: int | None = None
    delay: float | None = None
    key: str | None = None
    twice: bool = False
    """Enqueued a second time with the same key."""
    cancel_after: float | None = None


@dataclass(frozen=True)
class Event:
    """Something that goes wrong, `at` seconds after the beginning; `pick` chooses the victim."""

    at: float
    what: str
    pick: int
    length: float = 0.0


@dataclass(frozen=True)
class Plan:
    seed: int
    size: Size
    jobs: Sequence[Spec]
    events: Sequence[Event]


def plan(seed: int, size: Size, store: str) -> Plan:
    """The jobs and the events of a run on this store."""
    jobs = _jobs(Random(f"{seed} jobs"), size)
    events = _events(Random(f"{seed} events of {store}"), size, store)
    return Plan(seed, size, jobs, events)


def _jobs(rng: Random, size: Size) -> list[Spec]:
    total = sum(kind.share for kind in KINDS.values())
    kinds = [
        name
        for name, kind in KINDS.items()
        for _ in range(max(1, round(size.jobs * kind.share / total)))
    ]
    # What rounding has made too many of, or too few, is the most ordinary kind.
    kinds = kinds[max(len(kinds) - size.jobs, 0) :] + ["quick"] * (size.jobs - len(kinds))
    rng.shuffle(kinds)
    return [_spec(rng, str(number), kind, size) for number, kind in enumerate(kinds)]


def _spec(rng: Random, name: str, kind: str, size: Size) -> Spec:
    about = KINDS[kind]
    arguments: dict[str, Any] = {}
    if about.seconds is not None:
        arguments["seconds"] = round(rng.uniform(*about.seconds), 3)
    if about.times is not None:
        arguments["times"] = rng.randint(1, about.times)
    how = rng.choices(("one", "many", "awaiting"), (5, 4, 3))[0]
    alone = how != "many"
    keyed = rng.random() < 0.4 and alone
    harmless = about.ends == "completed" and about.times is None and alone
    return Spec(
        name=name,
        kind=kind,
        at=rng.uniform(0, size.seconds),
        how=how,
        arguments=arguments,
        priority=rng.randint(-50, 50) if rng.random() < 0.3 and alone else None,
        delay=round(rng.uniform(0.1, 2), 2) if rng.random() < 0.15 and alone else None,
        key=f"order {name}" if keyed else None,
        twice=keyed and rng.random() < 0.3,
        cancel_after=rng.uniform(0, 1.5) if harmless and rng.random() < 0.04 else None,
    )


def _events(rng: Random, size: Size, store: str) -> list[Event]:
    """Kills at an even pace, and every other trouble at moments of its own."""
    events = [
        _event(rng, rng.choices(("kill", "kill-parent", "kill-all"), (70, 15, 15))[0], at)
        for at in _moments(rng, size.kills, size)
    ]
    database = {"sqlite": {"lock": 12, "hold": 12}, "postgres": {"restart": 14, "hang-up": 9}}
    others = {"stop": 4, "stop-all": 14, "pause": 6, "end": 5, "hurry": 12} | database[store]
    for what, one_in in others.items():
        count = max(1, round(size.kills / one_in))
        events += [_event(rng, what, at) for at in _moments(rng, count, size)]
    return sorted(events, key=lambda event: event.at)


def _moments(rng: Random, count: int, size: Size) -> list[float]:
    step = size.seconds / count
    return [(number + rng.random()) * step for number in range(count)]


_LENGTHS = {
    # Past the lease, and past the half of one that rescuers wait to see it unchanged.
    "stop": (1.6 * LEASE, 2.2 * LEASE),
    "stop-all": (1.6 * LEASE, 2.2 * LEASE),
    # So short that nothing may come of it.
    "pause": (0.05 * LEASE, 0.3 * LEASE),
    "restart": (0.1, 1.5 * LEASE),
    "lock": (0.2 * LEASE, 1.2 * LEASE),
    "hold": (0.5 * LEASE, 2.0 * LEASE),
    "hurry": (0.1, 0.5),
}


def _event(rng: Random, what: str, at: float) -> Event:
    length = round(rng.uniform(*_LENGTHS.get(what, (0.0, 0.0))), 2)
    return Event(at, what, rng.randrange(2**31), length)
