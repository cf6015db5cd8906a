"""What runs in the worker processes of `yaoki worker`."""

import logging
from typing import Any, Literal

import msgspec

from yaoki.app import Yaoki
from yaoki.children import Line
from yaoki.cli import exits
from yaoki.cli.logs import log_to_stderr
from yaoki.cli.target import Target
from yaoki.store import without_password
from yaoki.supervisor.child import serve
from yaoki.worker import Worker

log = logging.getLogger("yaoki.cli")


class WorkerOrder(msgspec.Struct):
    """The command line of `yaoki worker`, as far as it is about each process. Times are seconds."""

    app: str
    url: str | None
    url_was_typed: bool
    limits: dict[str, int | None]
    concurrency: int
    lease_for: float
    grace: float
    until_empty: bool
    max_wait: float | None
    log_level: str
    log_form: Literal["text", "json"]


def main(line: Line, args: Any) -> int:
    """Serve the app in this process, for the supervisor at the other end of the line."""
    apps: list[Yaoki] = []

    def prepare(said: Any) -> Worker:
        order = msgspec.convert(said, WorkerOrder)
        target = Target()
        target.app_name, target.url = order.app, order.url
        target.url_was_typed = order.url_was_typed
        app = target.app()
        apps.append(app)
        # After the app was imported: where it sets logging up itself, that stands.
        log_to_stderr(order.log_level, order.log_form)
        worker = app.worker(
            order.limits or None,
            concurrency=order.concurrency,
            lease_for=order.lease_for,
            grace=order.grace,
            until_empty=order.until_empty,
            max_wait=order.max_wait,
        )
        names = ", ".join(sorted(kind.name for kind in app.types))
        log.info("runs %s from %s", names, without_password(app.url))
        return worker

    try:
        return serve(line, args, prepare, exits.in_a_line)
    finally:
        for app in apps:
            app.close()
