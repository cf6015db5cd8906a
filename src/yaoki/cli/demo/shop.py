"""What the shop of the demo does in the background."""

import socket
import time
from pathlib import Path

from yaoki.core.backoff import fixed
from yaoki.core.retry import RetryPolicy
from yaoki.jobtypes import JobContext, JobSet

jobs = JobSet()

PNG = b"\x89PNG\r\n\x1a\n"


@jobs.job("welcome-mail", queue="mail")
def welcome_mail(address: str) -> None:
    time.sleep(0.12)


@jobs.job("order-mail", queue="mail", retry=RetryPolicy(max_attempts=5, backoff=fixed(0.6)))
def order_mail(address: str, port: int) -> dict[str, str]:
    """Asks a mail server on this machine for its greeting."""
    with socket.create_connection(("127.0.0.1", port), timeout=0.4) as server:
        greeting = server.recv(100).decode().strip()
    return {"server": greeting}


@jobs.job("resize-image", retry=RetryPolicy(max_attempts=3, backoff=fixed(0.3)))
def resize_image(file: str) -> None:
    begins = Path(file).read_bytes()[: len(PNG)]
    if begins != PNG:
        raise ValueError(f"{Path(file).name} is not an image: it begins with {begins!r}")


@jobs.job("add-points", idempotency_key="order-{order}-points")
def add_points(order: int, points: int) -> dict[str, int]:
    return {"added": points}


@jobs.job("remind")
def remind(text: str) -> None: ...


@jobs.job("print-label", queue="printer")
def print_label(parcel: str) -> None:
    time.sleep(0.1)


@jobs.job("import-orders", retry=RetryPolicy(max_attempts=3, backoff=fixed(0.2)))
def import_orders(ctx: JobContext, orders: int) -> dict[str, int]:
    for number in range(1, orders + 1):
        time.sleep(0.25)
        ctx.progress(number, orders)
    return {"imported": orders}
