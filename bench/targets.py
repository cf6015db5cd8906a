"""What is aimed at, for each store and workload; the first figure of a workload is held to it."""

from collections.abc import Mapping

from bench.figures import AtMost, Share, Target

TARGETS: Mapping[str, Mapping[str, Target]] = {
    "sqlite": {
        "enqueue-one": Share(0.8),
        "drain": Share(0.3),
        "drain-async": Share(0.3),
        "drain-two": Share(0.3),
        "pickup": AtMost(3),
        "io": Share(0.85),
        "io-async": Share(0.85),
        "isolated": AtMost(1),
        "idle": AtMost(3),
        "claims": Share(0.5),
    },
    "postgres": {
        "enqueue-one": Share(0.75),
        "enqueue-many": Share(0.5),
        "drain": Share(0.5),
        "drain-async": Share(0.5),
        "drain-two": Share(0.5),
        "pickup": AtMost(4),
        "io": Share(0.85),
        "io-async": Share(0.85),
        "isolated": AtMost(1),
        "idle": AtMost(3),
        "claims": Share(0.5),
    },
}
