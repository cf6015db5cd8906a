"""The jobs that are measured: they do nothing, or wait for 10 ms, and leave a mark."""

import asyncio
import time
from typing import NamedTuple

from bench.probe import Probe
from yaoki import Yaoki
from yaoki.jobtypes import AnyJobType

IO_SECONDS = 0.010


class JobTypes(NamedTuple):
    """An app and its job types."""

    app: Yaoki

    def kind(self, name: str) -> AnyJobType:
        kind = self.app.types.get(name)
        assert kind is not None, name
        return kind


def payload(number: int) -> dict[str, object]:
    """What the job of this number is given."""
    return {"n": number, "to": "user@example.com"}


def payload_text(number: int) -> str:
    """The same as yaoki stores it."""
    return f'{{"n":{number},"to":"user@example.com"}}'


def new_app(url: str, probe: Probe | None = None, durability: str = "full") -> JobTypes:
    """An app on this database; with a probe its handlers can run."""
    app = Yaoki(f"{url}{'&' if '?' in url else '?'}durability={durability}")

    def mark(number: int) -> None:
        assert probe is not None, "handlers run in worker processes"
        probe.mark(number)

    @app.job("noop")
    def noop(n: int, to: str) -> None:
        mark(n)

    @app.job("noop-async")
    async def noop_async(n: int, to: str) -> None:
        mark(n)

    @app.job("io")
    def io(n: int, to: str) -> None:
        mark(n)
        time.sleep(IO_SECONDS)

    @app.job("io-async")
    async def io_async(n: int, to: str) -> None:
        mark(n)
        await asyncio.sleep(IO_SECONDS)

    return JobTypes(app)
