"""wait(), and every verb's awaiting twin, from programs and from handlers."""

import asyncio
import threading
import time

import pytest

from tests.support.eventually import eventually
from tests.worker.support_workers import StartWorker, work_off
from yaoki import NotHere, RetryPolicy, WaitTimeout, WrongStatus, Yaoki


def test_wait_gives_the_ended_job(app: Yaoki, start_worker: StartWorker) -> None:
    @app.job("a")
    def handler() -> str:
        return "done"

    job = handler.enqueue()
    start_worker()
    ended = app.wait(job.id)

    assert (ended.id, ended.result) == (job.id, "done")


def test_wait_gives_a_failed_job_as_well(app: Yaoki, start_worker: StartWorker) -> None:
    @app.job("a", retry=RetryPolicy(max_attempts=1))
    def handler() -> str:
        raise ValueError("x")

    job = handler.enqueue()
    start_worker()

    assert app.wait(job, timeout=5).status == "failed"


def test_wait_has_a_patience(app: Yaoki) -> None:
    job = app.enqueue("a")
    began = time.monotonic()
    with pytest.raises(WaitTimeout, match=f"job {job.id} is still pending") as caught:
        app.wait(job, timeout=0.2)

    assert isinstance(caught.value, TimeoutError)
    assert 0.2 <= time.monotonic() - began < 1


def test_wait_answers_at_once_when_the_job_ends(app: Yaoki, start_worker: StartWorker) -> None:
    go_on = threading.Event()

    @app.job("a")
    def handler() -> None:
        go_on.wait(5)

    job = handler.enqueue()
    start_worker()
    eventually(lambda: app.get(job).status == "running")
    answered = []

    def wait() -> None:
        app.wait(job, timeout=5)
        answered.append(time.monotonic())

    thread = threading.Thread(target=wait)
    thread.start()
    ended = time.monotonic()
    go_on.set()
    thread.join(5)

    assert answered[0] - ended < 0.5


@pytest.mark.parametrize("kind", ["def", "async def"])
def test_wait_in_a_handler_is_refused(app: Yaoki, kind: str) -> None:
    seen = []

    @app.job("other")
    def other() -> None: ...

    @app.job("def")
    def plain() -> None:
        with pytest.raises(NotHere):
            app.wait(other.enqueue(), timeout=1)
        seen.append("refused")

    @app.job("async def")
    async def coroutine() -> None:
        with pytest.raises(NotHere):
            await app.await_(await other.aenqueue(), timeout=1)
        seen.append("refused")

    job = app.enqueue(kind)
    work_off(app)

    assert seen == ["refused"]
    assert app.get(job).status == "completed"


def test_every_verb_has_an_awaiting_twin(app: Yaoki, start_worker: StartWorker) -> None:
    @app.job("double")
    async def double(number: int) -> int:
        return number * 2

    async def program() -> None:
        job = await double.aenqueue(number=4)
        many = await double.aenqueue_many([{"number": 1}, {"number": 2}])
        by_name = await app.aenqueue("double", {"number": 5})
        more = await app.aenqueue_many("double", [{"number": 6}])
        later = await double.using(delay=60).aenqueue(number=7)
        ended = await asyncio.gather(
            *(app.await_(each, timeout=5) for each in [job, *many, by_name, *more])
        )
        assert [one.result for one in ended] == [8, 2, 4, 10, 12]
        assert (await app.aget(later)).status == "pending"
        with pytest.raises(WrongStatus):
            await app.adiscard(later)
        assert (await app.acancel(later)).status == "cancelled"
        assert (await app.aretry(later)).status == "pending"
        assert len(list(await app.ajobs(status="completed"))) >= 5
        await app.adiscard(job)
        assert await app.aworkers()
        assert [queue.name for queue in await app.aqueues()] in ([], ["default"])
        assert "double" in await app.adefinitions()

    start_worker()
    asyncio.run(program())


def test_the_four_operations_await_too(app: Yaoki) -> None:
    async def program() -> None:
        jobs = await app.aenqueue_many("a", [{}] * 4)
        held = await app.aclaim("w1", limit=4)
        assert [one.id for one in held] == [one.id for one in jobs]
        done, failed, back, longer = held
        assert (await app.acomplete(done, result=1)).status == "completed"
        assert (await app.afail(failed, "no", retry=False)).status == "failed"
        assert (await app.arelease(back)).status == "pending"
        assert (await app.aextend(longer, lease_for=300)).status == "running"
        assert await app.arescue() == []

    asyncio.run(program())


def test_a_caller_who_stops_waiting_does_not_undo_the_job(app: Yaoki) -> None:
    async def program() -> None:
        task = asyncio.create_task(app.aenqueue("a"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(5):
            while not list(await app.ajobs()):
                await asyncio.sleep(0.01)

    app.migrate()
    asyncio.run(program())

    assert len(list(app.jobs())) == 1


def test_async_handlers_use_the_app_while_the_loop_goes_on(app: Yaoki) -> None:
    @app.job("leaf")
    async def leaf(number: int) -> None: ...

    @app.job("tree")
    async def tree(number: int) -> int:
        made = await asyncio.gather(*(leaf.aenqueue(number=each) for each in range(20)))
        return len({job.id for job in made})

    jobs = tree.enqueue_many([{"number": number} for number in range(10)])
    work_off(app)

    assert [app.get(job).result for job in jobs] == [20] * 10
    assert len(list(app.jobs(type="leaf", status="completed", limit=1000))) == 200
