"""The small world of the histories: two types, two queues, two keys, and seconds from 0 to 3."""

from typing import Any, TypeVar

import hypothesis.strategies as st
import msgspec

from tests.model.model import New
from tests.support.acts import SECOND
from yaoki import fixed
from yaoki.core.failures import Failure
from yaoki.core.outcomes import Cancelled, Completed, Failed, Released, Retried, Snoozed
from yaoki.core.said import NewJob, Unsaid
from yaoki.store.ops.claims import Claim

T = TypeVar("T")

BACKOFF = {"mail": 1 * SECOND, "image": 0}

POLICIES = {
    kind: Unsaid(
        max_attempts=attempts,
        backoff=msgspec.json.encode(fixed(BACKOFF[kind] / SECOND).to_dict()).decode(),
    )
    for kind, attempts in (("mail", 2), ("image", 3))
}


def often(usual: T, *others: T) -> st.SearchStrategy[T]:
    """Histories get further when most of what happens is ordinary."""
    return st.sampled_from([*[usual] * (2 + len(others)), *others])


types = st.sampled_from(["mail", "image"])
queues = st.sampled_from(["default", "slow"])
names = types.map(lambda name: ("type", name)) | queues.map(lambda name: ("queue", name))
workers = st.sampled_from(["w1", "w2"])
small = st.integers(0, 3)
seconds = often(0, 1, 2).map(lambda number: number * SECOND)
lengths = st.integers(1, 3).map(lambda number: number * SECOND)
texts = st.sampled_from(["no", "not yet"])
failures = texts.map(lambda text: Failure(text, "", ""))
on_existing = st.sampled_from(["return", "retry", "raise"])

outcomes = st.one_of(
    st.builds(Completed, st.sampled_from(["null", "7"])),
    st.builds(Retried, failures, seconds),
    st.builds(Failed, failures),
    st.builds(Snoozed, seconds, texts),
    st.builds(Released, texts),
    st.builds(Cancelled, texts),
)

# By lanes or from the head, through a narrow window or a wide one: the answer is the same.
claims = st.builds(
    Claim,
    worker_id=workers,
    limit=st.integers(1, 4),
    slots=st.sampled_from([None, 0, 1, 2]),
    types=often(None, ("mail",), ("image", "mail"), ("image", "image")),
    queues=often(None, ("slow",), ("default", "slow"), ("slow", "slow")),
    policies=st.just(POLICIES),
    caps=often({}, {"slow": 1}, {"slow": 0}, {"default": 2, "slow": 1}),
    lease_for=lengths,
    alone=often("never mind", "may run", "wait", "skip"),
    by_lanes=st.booleans(),
    window=st.sampled_from([1, 2, 1_000]),
)

wishes = st.builds(
    NewJob,
    type=types,
    payload=st.just("{}"),
    queue=queues,
    priority=often(0, 1),
    max_attempts=st.none() | st.integers(1, 3),
    delay=seconds,
    timeout=st.none(),
    run_at=st.none(),
    idempotency_key=often(None, "k1", "k2"),
    tags=st.none(),
    trace=st.none(),
)
"""Jobs as a caller asks for them."""


def understood(wish: NewJob, now: int) -> New:
    """What the caller said, and where nothing was said, what the policy of the type says."""
    said: dict[str, Any] = wish._asdict()
    attempts = said["max_attempts"] or POLICIES[wish.type].max_attempts
    return New(
        wish.type,
        said["queue"],
        said["priority"],
        now + wish.delay,
        attempts,
        wish.idempotency_key,
    )
