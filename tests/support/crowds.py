"""Rows that a claim may not take, or need not look at: it costs the same with and without them."""

from dataclasses import replace
from typing import NamedTuple

from yaoki.store.ops.claims import TIERS, WINDOW, Claim, Claimed

NOW = 1_800_000_000_000_000
MANY = 100_000
MOST = 1_000_000
WANTED = 10

CLAIM = Claim(worker_id="w1", limit=WANTED, types=("mail", "image"))
OF_MAIL = replace(CLAIM, queues=("mail",))


class Crowd(NamedTuple):
    """Rows that a claim may not take, in front of the ones that it may."""

    columns: dict[str, object]
    claim: Claim = CLAIM
    count: int = MANY
    then: tuple[str, ...] = ()
    some: int = 2 * WINDOW
    """So many that a claim looks at a whole window of them."""


DONE = {"status": "completed", "result": "null", "finished_at": NOW, "lease": 2}
PAUSE = "INSERT INTO yaoki.paused VALUES ('{}', '{}', 1)"
OF_EVERY_PRIORITY = "UPDATE yaoki.jobs SET priority = id % 201 - 100"
OF_TYPES_OF_THEIR_OWN = "UPDATE yaoki.jobs SET type = 'type-' || id"

ASIDE = {
    "history": Crowd({"type": "mail", "queue": "mail"} | DONE, OF_MAIL, MOST),
    "history, for any queue": Crowd({"type": "mail"} | DONE, CLAIM),
    "delayed jobs of the highest priority": Crowd(
        {"type": "mail", "queue": "mail", "priority": 100, "run_at": NOW + 10**9}, OF_MAIL, MOST
    ),
    "delayed jobs of every priority": Crowd(
        {"type": "mail", "run_at": NOW + 10**9}, CLAIM, then=(OF_EVERY_PRIORITY,)
    ),
    "jobs behind those that are taken": Crowd(
        {"type": "mail", "queue": "mail", "priority": -10}, OF_MAIL
    ),
    "unknown jobs of lower priority": Crowd({"priority": -10}),
}
"""What never is in the way."""

AT_THE_HEAD = {
    "jobs of another queue": Crowd({"type": "mail"}, OF_MAIL),
    "jobs of another queue and higher priority": Crowd({"type": "mail", "priority": 50}, OF_MAIL),
    "jobs of another queue and every priority": Crowd(
        {"type": "mail"}, OF_MAIL, then=(OF_EVERY_PRIORITY,), some=WINDOW // TIERS * 2 * 201
    ),
    "jobs of an unknown type": Crowd({"priority": 50}),
    "jobs of an unknown type in our queue": Crowd({"queue": "mail"}, OF_MAIL),
    "jobs of 100,000 unknown types": Crowd({}, then=(OF_TYPES_OF_THEIR_OWN,)),
    "jobs of 100,000 unknown types, for one queue": Crowd(
        {}, OF_MAIL, then=(OF_TYPES_OF_THEIR_OWN,)
    ),
    "jobs of a paused queue": Crowd(
        {"type": "mail", "queue": "slow"}, then=(PAUSE.format("queue", "slow"),)
    ),
    "jobs of a paused queue that is asked for": Crowd(
        {"type": "mail", "queue": "slow"},
        replace(CLAIM, queues=("mail", "slow")),
        then=(PAUSE.format("queue", "slow"),),
    ),
    "jobs of a paused type": Crowd(
        {"type": "image", "queue": "mail"}, then=(PAUSE.format("type", "image"),)
    ),
}
"""What is due before the ones that may be taken."""

BESIDE = {
    "our own jobs, due": Crowd({"type": "mail", "queue": "mail", "run_at": NOW + 10}),
    "our own jobs, delayed": Crowd({"type": "mail", "queue": "mail", "run_at": NOW + 10**9}),
    "our own jobs in other queues": Crowd({"type": "mail"}, OF_MAIL),
}
"""What shares a lane, or a type, with the ones that are taken by lanes."""


def assert_the_wanted_ones(claimed: Claimed) -> None:
    """Those behind the crowd, in their order."""
    ids = [job.id for job in claimed.jobs]
    assert {job.queue for job in claimed.jobs} == {"mail"}
    assert len(ids) == WANTED
    assert ids == sorted(ids)
