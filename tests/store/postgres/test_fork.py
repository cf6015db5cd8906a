"""A store that is used before a fork, and after it by parent and child alike."""

import asyncio
import gc
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from tests.store.postgres.support_trouble import Asked, Proxy, Trouble
from tests.support.eventually import eventually
from tests.support.processes import Processes
from tests.worker.support_workers import Working
from yaoki import JobContext, StoreUnavailable, Yaoki
from yaoki.store.ops.jobs import Get
from yaoki.store.postgres.store import PostgresStore

fork = multiprocessing.get_context("fork")


@pytest.fixture
def app(trouble: Trouble) -> Iterator[Yaoki]:
    made = Yaoki(f"{trouble.url}?pool=4")
    made.migrate()
    yield made
    made.close()


def in_child(act: Callable[[], object], *, politely: bool = False) -> str:
    """What `act` answers, or raises, in a forked child; which ends at once, or with all its rites.

    Then every object is collected and every atexit function called in it.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            answer = str(act())
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(writing, answer.encode())
        if politely:
            _end_politely()
        os._exit(0)
    os.close(writing)
    with open(reading) as pipe:
        told = pipe.read()
    os.waitpid(pid, 0)
    return told


def _end_politely() -> None:
    import atexit

    gc.collect()
    atexit._run_exitfuncs()
    gc.collect()
    os._exit(0)


def session_of(app: Yaoki) -> int:
    """Which session the next operation of this thread has."""
    store = app.store
    assert isinstance(store, PostgresStore)
    [(pid,)] = store.run(Asked("SELECT pg_backend_pid()::bigint"))
    return int(pid)


def use(app: Yaoki, name: str, times: int = 20) -> None:
    """Read and write, as any program does."""
    for number in range(times):
        job = app.enqueue(name, {"n": number})
        assert app.get(job) == job
        assert app.jobs(limit=5)
        for claimed in app.claim(name, types=[name]):
            app.complete(claimed)


def test_parent_and_children_use_the_same_app_after_a_fork(app: Yaoki, trouble: Trouble) -> None:
    use(app, "before")
    session = session_of(app)

    children = [fork.Process(target=use, args=(app, f"child-{n}", 30)) for n in range(10)]
    for child in children:
        child.start()
        use(app, "between", 2)
    use(app, "after", 30)
    for child in children:
        child.join(60)

    assert [child.exitcode for child in children] == [0] * 10
    counts = dict(trouble.run("SELECT type, count(*) FROM yaoki.jobs GROUP BY type"))
    assert counts == {"before": 20, "between": 20, "after": 30} | {
        f"child-{n}": 30 for n in range(10)
    }
    assert session_of(app) == session
    eventually(lambda: trouble.sessions() == [session], within=20)


def test_a_child_reads_what_its_parent_wrote_and_the_other_way_round(app: Yaoki) -> None:
    job = app.enqueue("mail", {"to": "mai"})

    assert in_child(lambda: app.get(job).payload) == "{'to': 'mai'}"
    made = in_child(lambda: app.enqueue("mail", {"from": "child"}).id)
    assert app.get(int(made)).payload == {"from": "child"}


def test_a_grandchild_works_too(app: Yaoki) -> None:
    app.enqueue("mail")

    made = in_child(lambda: (app.enqueue("mail"), in_child(lambda: app.enqueue("mail").id))[1])

    assert app.get(int(made)).id == 3


def test_an_app_that_was_never_used_is_opened_by_each_process_itself(trouble: Trouble) -> None:
    app = Yaoki(trouble.url)

    made = in_child(lambda: app.enqueue("mail").id)

    assert app.get(int(made)).type == "mail"
    app.close()


def test_a_child_and_its_parent_never_have_the_same_session(app: Yaoki) -> None:
    mine = session_of(app)

    assert int(in_child(lambda: session_of(app))) != mine
    assert session_of(app) == mine


# Nothing that a child does is heard on its parent's connections


@pytest.mark.parametrize("uses_it", [True, False])
def test_however_a_child_ends_its_parents_sessions_live_on(
    app: Yaoki, trouble: Trouble, uses_it: bool
) -> None:
    with asyncio.Runner() as runner:
        runner.run(app.aenqueue("mail"))
        session = session_of(app)
        bell, shared = app.store.bell(), app.store.transaction()
        bell.wait(0.1)
        shared.connection.execute("UPDATE yaoki.jobs SET priority = 7")
        before = set(trouble.sessions())
        assert len(before) == 4

        def act() -> int:
            if uses_it:
                app.enqueue("child")
                asyncio.run(app.aenqueue("child"))
            app.close()
            bell.close()
            return app.enqueue("child").id if uses_it else 0

        in_child(act, politely=True)

        eventually(lambda: set(trouble.sessions()) == before, within=20)
        shared.commit()
        assert session_of(app) == session
        assert runner.run(app.aget(1)).priority == 7
        assert set(trouble.sessions()) == before
        bell.close()


def test_garbage_in_a_child_is_collected_in_silence(app: Yaoki, trouble: Trouble) -> None:
    """The child throws the store away; its parent's sessions are in it."""
    app.enqueue("mail")
    session = session_of(app)
    holder = [app.store]

    def act() -> str:
        app.store = Yaoki(trouble.url).store
        holder.clear()
        gc.collect()
        return app.enqueue("child").type

    assert in_child(act, politely=True) == "child"
    assert session_of(app) == session


def test_a_child_forked_inside_a_transaction_can_neither_use_nor_end_it(app: Yaoki) -> None:
    app.enqueue("mail")
    shared = app.store.transaction()
    shared.connection.execute("UPDATE yaoki.jobs SET priority = 7")

    for act in (lambda: shared.run(Get(1)), shared.commit):
        told = in_child(act, politely=True)
        assert told.startswith("StoreUnavailable: this process was forked inside a transaction")
    assert in_child(shared.rollback, politely=True) == "None"
    execute = shared.connection.execute
    assert in_child(lambda: execute("SELECT 1"), politely=True).startswith("OperationalError")
    assert in_child(shared.interrupt, politely=True) == "None"

    assert shared.connection.execute("SELECT priority FROM yaoki.jobs").fetchone() == (7,)
    shared.commit()
    assert app.get(1).priority == 7


def test_a_handler_that_forks_inside_its_transaction_completes_it(app: Yaoki) -> None:
    told: list[str] = []

    @app.job("mail")
    def handler(ctx: JobContext) -> None:
        with ctx.transaction() as tx:
            tx.execute("UPDATE yaoki.jobs SET priority = 7")
            told.append(in_child(lambda: app.enqueue("child"), politely=True))

    job = handler.enqueue()
    working = Working(app)
    ended = app.wait(job, timeout=20)
    working.drain()

    assert (ended.status, ended.priority, ended.attempt) == ("completed", 7, 1)
    assert told[0].startswith("StoreUnavailable: this process was forked inside a transaction")


def test_a_parent_that_dies_is_missed_although_its_child_lives_on(
    trouble: Trouble, processes: Processes
) -> None:
    """Or its locks would be held for as long as the child lives."""
    program = processes.python("-c", PARENT, trouble.url)
    child = int(program.wait_for_line("child ").split()[1])
    try:
        assert len(trouble.sessions()) == 2
        program.kill()
        eventually(lambda: trouble.sessions() == [], within=20)
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)


PARENT = """
import os, sys, time
from yaoki import Yaoki
app = Yaoki(sys.argv[1])
app.enqueue("mail")
shared = app.store.transaction()
shared.connection.execute("UPDATE yaoki.jobs SET priority = 7")
pid = os.fork()
if pid:
    print("child", pid)
else:
    # Else whoever reads what the parent prints would wait for the child.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(1, 2)
time.sleep(60)
"""


# Forks at any time


def test_forks_in_the_middle_of_operations_harm_nothing(app: Yaoki, trouble: Trouble) -> None:
    over, written = threading.Event(), [0] * 4

    def busy(place: int) -> None:
        while not over.is_set():
            app.enqueue("busy")
            written[place] += 1
            app.jobs(limit=3)

    threads = [threading.Thread(target=busy, args=(place,)) for place in range(4)]
    for thread in threads:
        thread.start()
    made = [
        in_child(lambda: [app.enqueue("child").type for _ in range(3)], politely=number % 2 == 0)
        for number in range(12)
    ]
    over.set()
    for thread in threads:
        thread.join(20)

    assert made == ["['child', 'child', 'child']"] * 12
    counts = dict(trouble.run("SELECT type, count(*) FROM yaoki.jobs GROUP BY type"))
    assert counts == {"busy": sum(written), "child": 36}


def test_a_fork_while_another_thread_connects_harms_nothing(trouble: Trouble, proxy: Proxy) -> None:
    app = Yaoki(f"{proxy.url}?connect_timeout=2")
    proxy.answers_nobody = True

    def try_in_vain() -> None:
        with suppress(StoreUnavailable):
            app.enqueue("mail")

    connecting = threading.Thread(target=try_in_vain)
    connecting.start()
    eventually(lambda: app.store._opening.locked())  # type: ignore[attr-defined]
    proxy.heal()

    began = time.monotonic()
    made = in_child(lambda: app.enqueue("child").id)

    assert int(made) > 0
    assert time.monotonic() - began < 5
    connecting.join(20)
    assert app.enqueue("mail").type == "mail"
    app.close()


def test_a_fork_inside_a_running_event_loop_harms_nothing(app: Yaoki) -> None:
    async def story() -> str:
        await app.aenqueue("mail")
        asking = asyncio.gather(*(app.ajobs() for _ in range(6)))
        await asyncio.sleep(0)
        told = in_child(another_loop, politely=True)
        assert len(await asking) == 6
        assert (await app.aenqueue("mail")).type == "mail"
        return told

    def another_loop() -> int:
        # In the child that loop runs no more, whatever this thread-local says.
        asyncio._set_running_loop(None)
        return asyncio.run(app.aenqueue("child")).id

    assert int(asyncio.run(story())) > 1


def test_handlers_may_start_processes_that_use_the_app(app: Yaoki, trouble: Trouble) -> None:
    @app.job("parent")
    def parent(number: int) -> int | None:
        child = fork.Process(target=use, args=(app, f"child-{number}", 5))
        child.start()
        app.enqueue("note", {"number": number})
        child.join(30)
        return child.exitcode

    parents = parent.enqueue_many([{"number": number} for number in range(8)])
    working = Working(app, concurrency=4)
    ended = [app.wait(job, timeout=60) for job in parents]
    working.drain()

    assert [(one.status, one.result, one.attempt) for one in ended] == [("completed", 0, 1)] * 8
    counts = Counter(dict(trouble.run("SELECT type, count(*) FROM yaoki.jobs GROUP BY type")))
    assert counts == {"parent": 8, "note": 8} | {f"child-{number}": 5 for number in range(8)}


def test_a_server_that_forks_its_workers_before_they_serve(
    trouble: Trouble, processes: Processes
) -> None:
    """The app is made, and used, by the master; then each worker has it."""
    program = processes.python("-W", "error", "-c", PREFORK, trouble.url)

    assert program.wait(100) == 0, program.output
    assert sorted(program.lines) == ["master", "worker 0", "worker 0", "worker 0", "worker 0"]
    assert trouble.run("SELECT count(*) FROM yaoki.jobs WHERE type = 'served'") == [(4 * 4 * 25,)]
    eventually(lambda: trouble.sessions() == [], within=20)


PREFORK = """
import os, sys, threading
from yaoki import Yaoki
app = Yaoki(sys.argv[1])
app.migrate()
assert app.enqueue("made by the master").id == 1

def serve():
    for _ in range(25):
        assert app.get(app.enqueue("served")).type == "served"

pids = []
for _ in range(4):
    pid = os.fork()
    if pid == 0:
        threads = [threading.Thread(target=serve) for _ in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        sys.exit(0)
    pids.append(pid)
for pid in pids:
    print("worker", os.waitpid(pid, 0)[1])
assert app.get(1).type == "made by the master"
print("master")
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_every_way_of_starting_processes_works(app: Yaoki, method: str) -> None:
    """An app is not sent to the others: each makes its own from the URL."""
    app.enqueue("before")
    context = multiprocessing.get_context(method)

    child = context.Process(target=enqueue_at, args=(app.url,))
    child.start()
    child.join(30)

    assert child.exitcode == 0
    assert app.jobs()[0].type == "from a child"


def enqueue_at(url: str) -> None:
    app = Yaoki(url)
    app.enqueue("from a child")
    app.close()
