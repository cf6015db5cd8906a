"""Everything that can be measured, by name."""

from collections.abc import Callable, Sequence
from functools import partial

from bench.figures import Figure, Target
from bench.setting import Setting
from bench.workloads.claims import claims
from bench.workloads.drain import drain
from bench.workloads.enqueue import enqueue_many, enqueue_one
from bench.workloads.idle import idle, memory
from bench.workloads.io import io
from bench.workloads.isolated import isolated
from bench.workloads.pickup import pickup

Workload = Callable[[Setting, Target | None], Sequence[Figure]]

WORKLOADS: dict[str, Workload] = {
    "enqueue-one": partial(enqueue_one, durability="full"),
    "enqueue-one-normal": partial(enqueue_one, durability="normal"),
    "enqueue-many": enqueue_many,
    "drain": partial(drain, kind="noop"),
    "drain-async": partial(drain, kind="noop-async"),
    "drain-two": partial(drain, kind="noop", processes=2),
    "drain-two-async": partial(drain, kind="noop-async", processes=2),
    "claims": claims,
    "pickup": pickup,
    "io": partial(io, kind="io"),
    "io-async": partial(io, kind="io-async"),
    "isolated": isolated,
    "idle": idle,
    "memory": memory,
}
