"""Those who have vanished without a word, on either side: for how long they are waited for."""

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.store.postgres.support_trouble import Asked, Proxy, Trouble
from tests.support.acts import make
from tests.support.eventually import eventually
from yaoki import StoreUnavailable
from yaoki.store.patience import within
from yaoki.store.postgres.connection import AsyncLine, Line
from yaoki.store.postgres.store import PostgresStore

SETTINGS = """
SELECT concat_ws(' ', current_setting('tcp_keepalives_idle'),
    current_setting('tcp_keepalives_interval'), current_setting('tcp_keepalives_count'),
    current_setting('idle_in_transaction_session_timeout'))
"""


@pytest.fixture
def store(trouble: Trouble) -> Iterator[PostgresStore]:
    made = PostgresStore(trouble.url)
    yield made
    made.close()


def of_a_thread(store: PostgresStore) -> str:
    return str(store.run(Asked(SETTINGS))[0][0])


def of_a_loop(store: PostgresStore) -> str:
    return str(asyncio.run(store.arun(Asked(SETTINGS)))[0][0])


def of_a_handlers_transaction(store: PostgresStore) -> str:
    transaction = store.transaction()
    said = transaction.connection.execute(SETTINGS.encode()).fetchone()
    transaction.rollback()
    assert said is not None
    return str(said[0])


def test_a_server_looks_for_clients_that_have_vanished(store: PostgresStore) -> None:
    """Else it keeps the locks of one that was cut off in a transaction for two hours."""
    assert of_a_thread(store) == of_a_loop(store) == "15 5 3 1min"
    assert of_a_handlers_transaction(store) == "15 5 3 0", "slow handlers are none of our business"


def test_who_falls_asleep_in_a_transaction_does_not_keep_its_locks(
    store: PostgresStore, trouble: Trouble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yaoki.store.postgres.connection.IDLE_IN_TRANSACTION", "200ms")
    job = make(store)
    locked: list[object] = []

    def sleep(place: int) -> None:
        locked.append(trouble.run("SELECT id FROM yaoki.jobs FOR UPDATE SKIP LOCKED"))
        eventually(lambda: trouble.run("SELECT id FROM yaoki.jobs FOR UPDATE SKIP LOCKED"))

    store.close()
    with pytest.raises(StoreUnavailable, match="idle"):
        store.run(Asked("SELECT id FROM yaoki.jobs FOR UPDATE", "SELECT 1::bigint", then=sleep))

    assert locked == [[]]
    assert make(store).id == job.id + 1


def test_nothing_is_set_where_sessions_may_be_shared(trouble: Trouble) -> None:
    store = PostgresStore(f"{trouble.url}?prepared=off")

    assert of_a_thread(store) == of_a_loop(store) == of_a_handlers_transaction(store)
    assert not of_a_thread(store).startswith("15 5 3")
    assert of_a_thread(store).endswith(" 0")
    store.close()


def test_a_limit_that_the_owner_of_the_server_has_set_is_left_as_it_is(trouble: Trouble) -> None:
    role = trouble.role(idle_in_transaction_session_timeout="'7s'").grant_all()
    store = PostgresStore(role.url)

    assert of_a_thread(store) == "15 5 3 7s"
    store.close()


def by_patience(store: PostgresStore) -> None:
    with within(0.4):
        make(store)


def by_the_rule(store: PostgresStore) -> None:
    make(store)


@pytest.mark.parametrize("ask", [by_patience, by_the_rule])
def test_after_a_silence_no_kept_connection_is_tried(
    proxy: Proxy, ask: Callable[[PostgresStore], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of them would be waited for in vain, one after the other."""
    if ask is by_the_rule:
        monkeypatch.setattr(Line, "patience", 0.4)
        monkeypatch.setattr(AsyncLine, "patience", 0.4)
    store = PostgresStore(f"{proxy.url}?connect_timeout=2")
    with asyncio.Runner() as runner:
        with ExitStack() as held:
            for _ in range(4):
                held.enter_context(store._opened().pool.lend())
        runner.run(store.arun(Asked("SELECT 1::bigint")))
        proxy.go_dark()
        proxy.heal()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"not answered for 0\.4 s"):
            ask(store)
        for _ in range(5):
            ask(store)
        runner.run(store.arun(Asked("SELECT 1::bigint")))

    assert time.monotonic() - began < 3
    store.close()
