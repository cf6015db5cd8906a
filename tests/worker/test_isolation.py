"""Nothing that one job leaves behind in its thread or context is seen by the next."""

import threading
from contextvars import ContextVar

import pytest

from tests.worker.support_workers import Working, work_off
from yaoki import Yaoki

tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
local = threading.local()


class Locale(threading.local):
    name = "C"


locale = Locale()


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_context_variables_and_thread_locals_do_not_leak(app: Yaoki, kind: str) -> None:
    seen = []

    def look_and_leave(number: int) -> None:
        seen.append((tenant.get(), getattr(local, "tenant", "nobody"), locale.name))
        tenant.set(f"tenant {number}")
        if kind == "def":
            # The thread of the event loop is one: thread-locals of async handlers are their own
            # affair, as everywhere in asyncio.
            local.tenant = f"tenant {number}"
            locale.name = "ja_JP"

    @app.job("def")
    def plain(number: int) -> None:
        look_and_leave(number)

    @app.job("async def")
    async def coroutine(number: int) -> None:
        look_and_leave(number)

    app.enqueue_many(kind, [{"number": number} for number in range(20)])
    work_off(app, concurrency=1)

    assert seen == [("nobody", "nobody", "C")] * 20


def test_they_do_not_leak_from_one_kind_to_the_other(app: Yaoki) -> None:
    seen = []

    @app.job("def")
    def plain() -> None:
        seen.append(tenant.get())
        tenant.set("plain")

    @app.job("async def")
    async def coroutine() -> None:
        seen.append(tenant.get())
        tenant.set("async")

    for _ in range(5):
        plain.enqueue()
        coroutine.enqueue()
    work_off(app, concurrency=1)

    assert seen == ["nobody"] * 10


def test_handlers_see_the_context_that_the_worker_was_made_in(app: Yaoki) -> None:
    seen = []

    @app.job("def")
    def plain() -> None:
        seen.append(tenant.get())

    @app.job("async def")
    async def coroutine() -> None:
        seen.append(tenant.get())

    plain.enqueue()
    coroutine.enqueue()
    token = tenant.set("the program's own")
    working = Working(app, until_empty=True)
    tenant.reset(token)
    working.wait()

    assert seen == ["the program's own"] * 2


def test_a_transaction_scope_is_not_inherited_by_threads_of_the_handler(app: Yaoki) -> None:
    seen = []

    @app.job("other")
    def other() -> None: ...

    @app.job("a")
    def handler() -> None:
        thread = threading.Thread(target=lambda: seen.append(other.enqueue().status))
        thread.start()
        thread.join()

    handler.enqueue()
    work_off(app)

    assert seen == ["pending"]
