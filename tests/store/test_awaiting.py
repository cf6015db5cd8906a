"""Every verb awaits as it blocks: the same story, told by the awaiting twins on the same object."""

import asyncio
from collections.abc import Iterator

import pytest

from tests.support.databases import locked
from yaoki import JobNotFound, LeaseLost, StoreError, WaitTimeout, Yaoki


@pytest.fixture
def app(any_url: str) -> Iterator[Yaoki]:
    app = Yaoki(f"{any_url}?durability=normal")
    yield app
    app.close()


def test_a_jobs_life_in_awaiting_verbs(app: Yaoki) -> None:
    async def story() -> None:
        job = await app.aenqueue("mail", {"to": "mai"}, queue="q", priority="high")
        assert await app.aget(job) == job
        assert [one.name for one in await app.aqueues()] == ["q"]
        [first] = await app.aclaim("w1", queues=["q"])
        await app.aextend(first, 90)
        await app.arelease(first)
        with pytest.raises(LeaseLost):
            await app.acomplete(first)
        [second] = await app.aclaim("w1")
        waiting = await app.afail(second, "no answer", retry_in=0)
        assert (waiting.status, waiting.attempt) == ("pending", 1)
        [third] = await app.aclaim("w1")
        done = await app.acomplete(third, {"sent": True})
        assert (done.status, done.result) == ("completed", {"sent": True})
        assert await app.await_(job, timeout=5) == done
        await app.adiscard(job)
        with pytest.raises(JobNotFound):
            await app.aget(job)

    asyncio.run(story())


def test_what_operators_do_in_awaiting_verbs(app: Yaoki) -> None:
    async def story() -> None:
        jobs = await app.aenqueue_many("mail", [{"n": n} for n in range(3)])
        await app.apause("default")
        await app.apause(type="image")
        assert [one.name for one in await app.apaused()] == ["default", "image"]
        assert await app.aclaim("w1") == []
        await app.aresume("default")
        [dead] = await app.aclaim("w1")
        await app.afail(dead, "broken", retry=False)
        assert await app.aretry_failed() == [dead.id]
        gone = await app.acancel(jobs[1])
        assert (await app.aretry(gone)).status == "pending"
        page = await app.ajobs(limit=2)
        assert [job.id for job in page] == [jobs[2].id, jobs[1].id]
        assert [job.id for job in await app.ajobs(cursor=page.cursor)] == [jobs[0].id]
        assert (await app.aworkers(), await app.adefinitions()) == ([], {})
        assert await app.arescue() == []

    asyncio.run(story())


def test_secrets_are_hidden_in_awaited_lists_too(app: Yaoki) -> None:
    @app.job("charge", secret=("card",))
    def charge(card: str) -> None: ...

    async def story() -> None:
        await charge.aenqueue("4111")
        await charge.using(delay=5).aenqueue("4111")
        await charge.aenqueue_many([{"card": "4111"}])
        await charge.using(delay=5).aenqueue_many([{"card": "4111"}])
        assert [job.payload for job in await app.ajobs()] == [{"card": "***"}] * 4

    asyncio.run(story())


def test_a_thousand_awaiting_callers_need_no_thousand_threads(app: Yaoki) -> None:
    async def story() -> set[int]:
        made = await asyncio.gather(*(app.aenqueue("mail", {"n": n}) for n in range(1_000)))
        read = await asyncio.gather(*(app.aget(job) for job in made))
        assert read == made
        return {job.id for job in made}

    assert len(asyncio.run(story())) == 1_000


def test_the_loop_goes_on_while_a_verb_waits_for_the_database(app: Yaoki) -> None:
    async def story() -> int:
        await app.ajobs()
        with locked(app.store):
            waiting = asyncio.create_task(app.aenqueue("mail"))
            turns = 0
            while turns < 20:
                await asyncio.sleep(0.005)
                turns += 1
            assert not waiting.done()
        return (await waiting).id

    assert asyncio.run(story()) == 1


def test_one_app_serves_many_loops_one_after_the_other(app: Yaoki) -> None:
    for number in range(3):
        assert asyncio.run(app.aenqueue("mail")).id == number + 1
        assert len(asyncio.run(app.ajobs())) == number + 1


@pytest.mark.parametrize("nowhere", ["sqlite:////none/jobs.db", "postgresql://127.0.0.1:1/none"])
def test_errors_of_the_database_reach_the_one_who_awaits(nowhere: str) -> None:
    app = Yaoki(nowhere)

    for verb in (app.aenqueue("mail"), app.ajobs()):
        with pytest.raises(StoreError):
            asyncio.run(verb)


def test_waiting_ends_with_its_patience_blocking_and_awaiting(app: Yaoki) -> None:
    job = app.enqueue("mail")

    with pytest.raises(WaitTimeout, match="still pending"):
        app.wait(job, timeout=0.05)
    with pytest.raises(WaitTimeout, match="still pending"):
        asyncio.run(app.await_(job, timeout=0.05))


def test_waiting_ends_with_the_job_blocking_and_awaiting(app: Yaoki) -> None:
    async def story() -> None:
        job = await app.aenqueue("mail")
        blocking = asyncio.create_task(asyncio.to_thread(app.wait, job, 10))
        awaiting = asyncio.create_task(app.await_(job, 10))
        await asyncio.sleep(0.05)
        [claimed] = await app.aclaim("w1")
        await app.acomplete(claimed, 7)
        assert [(await one).result for one in (blocking, awaiting)] == [7, 7]

    asyncio.run(story())
