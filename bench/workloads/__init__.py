"""Everything that can be measured, by name."""

from collections.abc import Callable, Sequence
from functools import partial

from bench.figures import Figure, Share
from bench.setting import Setting
from bench.workloads.drain import drain
from bench.workloads.enqueue import enqueue_many, enqueue_one
from bench.workloads.idle import idle, memory
from bench.workloads.io import io
from bench.workloads.pickup import pickup

Workload = Callable[[Setting], Sequence[Figure]]

WORKLOADS: dict[str, Workload] = {
    "enqueue-one": partial(enqueue_one, durability="full", target=Share(0.8)),
    "enqueue-one-normal": partial(enqueue_one, durability="normal"),
    "enqueue-many": enqueue_many,
    "drain": partial(drain, kind="noop", target=Share(0.3)),
    "drain-async": partial(drain, kind="noop-async", target=Share(0.3)),
    "drain-two": partial(drain, kind="noop", processes=2, target=Share(0.3)),
    "pickup": pickup,
    "io": partial(io, kind="io"),
    "io-async": partial(io, kind="io-async"),
    "idle": idle,
    "memory": memory,
}
