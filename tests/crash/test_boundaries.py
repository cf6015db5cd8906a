"""SIGKILL before and after every statement: no state between states, nothing promised is lost."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.crash import dying
from tests.support.acts import claim, end, failed_for_now, held, make
from tests.support.clocks import Clock
from tests.support.databases import ask, assert_intact, execute_all
from tests.support.dialects import on_postgres, store_with_clock
from tests.support.postgres import database_of, databases, fresh_database, with_database
from tests.support.processes import Processes
from yaoki import Yaoki
from yaoki.core.job import Job
from yaoki.core.outcomes import Completed, settle
from yaoki.jobtypes.context import JobContext
from yaoki.store import Store
from yaoki.store.migrations import migrations
from yaoki.store.ops.listing import ListJobs
from yaoki.store.ops.settling import Settle, Settlement
from yaoki.store.ops.upkeep import Rescue

pytestmark = pytest.mark.crash

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
POINTS = ("CREATE TABLE points (total INTEGER)", "INSERT INTO points VALUES (0)")
TABLES = {
    False: "SELECT name FROM sqlite_master",
    True: "SELECT relname FROM pg_class JOIN pg_namespace AS of ON of.oid = relnamespace "
    "WHERE of.nspname = 'yaoki' AND relkind = 'r'",
}
STATUSES = "SELECT status FROM yaoki.jobs ORDER BY id"


class Death(NamedTuple):
    """What a killed process left behind: the database, and what its caller had been told."""

    url: str
    told: list[Any]
    moment: str

    def look(self, statement: str) -> list[Any]:
        """The rows of a statement; of rows with one column, what is in it."""
        with opened(self.url, LONG_AGO, migrate=False) as (store, _):
            rows = ask(store, statement)
        return [row[0] if len(row) == 1 else row for row in rows]


KilledDuring = Callable[..., list[Death]]


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    """The name of a runner: blocking, unless a test is `also_awaiting`."""
    chosen: str = request.param
    return chosen


also_awaiting = pytest.mark.parametrize(
    "kind", ["sqlite", "sqlite_awaiting", "postgres", "postgres_awaiting"], indirect=True
)


@pytest.fixture
def killed_during(kind: str, tmp_path: Path, processes: Processes) -> Iterator[KilledDuring]:
    """A death at each moment of an act, on copies of one prepared database; the last survived."""
    with ExitStack() as at_the_end:
        if kind.startswith("sqlite"):
            prepared = f"sqlite:///{tmp_path / 'prepared.db'}"
        else:
            prepared = at_the_end.enter_context(fresh_database(migrated=False))

        def all_deaths(act: str, *statements: str, jobs: int = 0, **of_them: Any) -> list[Death]:
            if act != "first_use":
                with opened(prepared, LONG_AGO) as (store, _):
                    for _ in range(jobs):
                        make(store, **of_them)
                    if act in PREPARED:
                        PREPARED[act](store)
                    execute_all(store, statements)
            given = [act, kind, str(tmp_path)] + [prepared] * on_postgres(prepared)
            program = processes.python("-m", "tests.crash.dying", *given)
            assert program.wait(100) == 0, program.output
            deaths = [death_in(folder, prepared) for folder in sorted(tmp_path.glob("[0-9]*"))]
            for death in deaths * on_postgres(prepared):
                at_the_end.callback(databases().leave, death.url)
            return deaths

        yield all_deaths


def hold_two(store: Store) -> None:
    claim(store, 2)


def fail_for_good(store: Store) -> None:
    for _ in range(2):
        [job] = claim(store)
        end(store, job, failed_for_now())


PREPARED: dict[str, Callable[[Store], None]] = {"rescue": hold_two, "discard": fail_for_good}


def test_a_first_use_makes_all_tables_of_a_migration_or_none(killed_during: KilledDuring) -> None:
    """On SQLite all migrations are one transaction; on PostgreSQL each is one of its own."""
    deaths = killed_during("first_use")
    tables = TABLES[on_postgres(deaths[-1].url)]

    whole = set(deaths[-1].look(tables))
    allowed = [set(), whole, *(after_each_migration() if on_postgres(deaths[-1].url) else ())]
    for death in deaths:
        made = set(death.look(tables))
        assert made in allowed, death.moment
        assert_between(death, len(death.look(STATUSES)) if made else 0, [0, 1])
        assert {job.status for job in ended(death)} <= {"completed"}


def after_each_migration() -> list[set[str]]:
    made, sets = {"migrations"}, []
    for step in migrations("postgres"):
        made |= set(re.findall(r"CREATE .*TABLE .*yaoki\.(\w+)", step.text))
        sets.append(set(made))
    return sets


def test_a_job_is_there_when_its_caller_knows_and_its_key_makes_no_second(
    killed_during: KilledDuring,
) -> None:
    for death in killed_during("enqueue_with_a_key"):
        assert_between(death, len(death.look(STATUSES)), [0, 1, 1])
        dying.enqueue_with_a_key(app := Yaoki(death.url), death.told.append)
        app.close()

        [job] = ended(death)
        assert (job.status, job.attempt) == ("completed", 1)
        assert set(death.told) == {job.id}


@also_awaiting
def test_a_batch_is_there_whole_or_not_at_all(killed_during: KilledDuring) -> None:
    for death in killed_during("enqueue_many"):
        assert_between(death, death.look("SELECT id FROM yaoki.jobs"), [[], [1, 2, 3, 4, 5]])
        assert_completed(ended(death))


def test_what_is_committed_together_is_there_for_each_who_knows(
    killed_during: KilledDuring,
) -> None:
    for death in killed_during("enqueue_together"):
        assert set(death.told) <= set(death.look("SELECT id FROM yaoki.jobs")), death.moment
        assert_completed(ended(death))


def test_a_job_enqueued_beside_an_effect_is_there_exactly_with_it(
    killed_during: KilledDuring,
) -> None:
    state = "SELECT (SELECT total FROM points), (SELECT count(*) FROM yaoki.jobs)"

    for death in killed_during("enqueue_with_an_effect", *POINTS):
        assert_between(death, death.look(state), [[(0, 0)], [(100, 1)]])
        assert_completed(ended(death))


@also_awaiting
def test_a_claim_takes_all_that_it_tells_of_or_nothing(killed_during: KilledDuring) -> None:
    held_now = "SELECT id, lease FROM yaoki.jobs WHERE status = 'running'"

    for death in killed_during("claim", jobs=3):
        taken = death.look(held_now)
        assert [job_id for job_id, _ in taken] in ([], [1, 2]), death.moment
        assert all(list(map(tuple, claimed)) == taken for claimed in death.told)

        jobs = ended(death)
        assert_completed(jobs)
        assert [job.attempt for job in jobs] == [2 if taken else 1] * 2 + [1]
        assert [len(job.errors) for job in jobs] == [1 if taken else 0] * 2 + [0]


def test_a_completion_is_there_when_its_caller_knows(killed_during: KilledDuring) -> None:
    state = "SELECT status, attempt, result FROM yaoki.jobs"
    steps = [("pending", 0, None), ("running", 1, None), ("completed", 1, '{"sent":1}')]

    for death in killed_during("complete", jobs=1):
        [found] = death.look(state)
        assert_between(death, found, steps)

        [job] = ended(death)
        assert job.status == "completed"
        assert job.attempt == (2 if found == steps[1] else 1)
        assert job.result == ({"sent": 1} if found == steps[2] else None)


def test_a_failure_is_recorded_with_its_history_or_not_at_all(
    killed_during: KilledDuring,
) -> None:
    state = "SELECT status, attempt, error, (SELECT count(*) FROM yaoki.attempts) FROM yaoki.jobs"
    steps = [
        ("pending", 0, None, 0),
        ("running", 1, None, 0),
        ("pending", 1, "no", 1),
        ("running", 2, "no", 1),
        ("failed", 2, "no", 2),
    ]

    for death in killed_during("fail", jobs=1, max_attempts=2):
        [found] = death.look(state)
        assert_between(death, found, steps)

        [job] = ended(death)
        used_up = found[0] != "pending" and found[1] == 2
        assert job.status == ("failed" if used_up else "completed"), death.moment
        assert job.attempt == (2 if found[1] or used_up else 1)


def test_a_job_that_was_handed_back_has_used_no_attempt(killed_during: KilledDuring) -> None:
    state = "SELECT status, attempt, releases FROM yaoki.jobs"
    steps = [("pending", 0, 0), ("running", 1, 0), ("pending", 0, 1)]

    for death in killed_during("release", jobs=1):
        [found] = death.look(state)
        assert_between(death, found, steps)

        [job] = ended(death)
        assert (job.status, job.attempt) == ("completed", 2 if found == steps[1] else 1)


@also_awaiting
def test_outcomes_and_the_next_claim_are_one_step(killed_during: KilledDuring) -> None:
    steps = [
        ["pending", "pending", "pending", "pending"],
        ["running", "running", "pending", "pending"],
        ["completed", "pending", "running", "running"],
    ]

    for death in killed_during("exchange", jobs=4):
        found = death.look(STATUSES)
        assert_between(death, found, steps)

        jobs = ended(death)
        assert_completed(jobs)
        attempts = [[1, 1, 1, 1], [2, 2, 1, 1], [1, 2, 2, 2]]
        assert [job.attempt for job in jobs] == attempts[steps.index(found)]


def test_a_rescue_takes_all_of_its_jobs_or_none(killed_during: KilledDuring) -> None:
    state = "SELECT status, attempt, rescues FROM yaoki.jobs ORDER BY id"
    steps = [[("running", 1, 0)] * 2, [("pending", 1, 1)] * 2]

    for death in killed_during("rescue", jobs=2):
        assert_between(death, death.look(state), steps)

        jobs = ended(death)
        assert_completed(jobs)
        assert [(job.attempt, job.rescues, len(job.errors)) for job in jobs] == [(2, 1, 1)] * 2


def test_a_job_is_discarded_with_its_history_or_not_at_all(killed_during: KilledDuring) -> None:
    state = "SELECT (SELECT count(*) FROM yaoki.jobs), (SELECT count(*) FROM yaoki.attempts)"

    for death in killed_during("discard", jobs=1, max_attempts=2):
        assert_between(death, death.look(state), [[(1, 2)], [(0, 0)]])
        assert [job.status for job in ended(death)] in ([], ["failed"])


def test_the_key_of_once_is_there_exactly_with_the_effect(killed_during: KilledDuring) -> None:
    state = "SELECT (SELECT count(*) FROM yaoki.once), total FROM points"

    for death in killed_during("add_points_once", *POINTS):
        assert_between(death, death.look(state), [[(0, 0)], [(1, 100)], [(1, 100)]])
        dying.add_points_once(app := Yaoki(death.url), death.told.append)
        app.close()

        assert ended(death) == []
        assert death.look(state) == [(1, 100)]


def test_an_effect_is_there_exactly_with_the_completion(killed_during: KilledDuring) -> None:
    state = "SELECT status, total FROM yaoki.jobs CROSS JOIN points"
    steps = [("pending", 0), ("running", 0), ("completed", 100)]

    for death in killed_during("add_points_and_complete", *POINTS, jobs=1):
        [found] = death.look(state)
        assert_between(death, found, steps)

        [job] = ended(death, add_points)
        assert (job.status, job.attempt) == ("completed", 2 if found == steps[1] else 1)
        assert death.look("SELECT total FROM points") == [100]


def test_the_moments_are_before_and_after_whatever_is_sent(killed_during: KilledDuring) -> None:
    """Or else these tests would say nothing."""
    deaths = killed_during("enqueue_many")
    moments = [death.moment for death in deaths]

    if not on_postgres(deaths[0].url):
        expected = ["before BEGIN", "after BEGIN", "before INSERT", "before COMMIT", "after COMMIT"]
    else:
        expected = ["before BEGIN", "before INSERT", "before SYNC", "after SYNC", "after the answ"]
        expected += ["before COMMIT", "before SYNC", "before SELECT pg_notify", "after the answers"]
    found = iter([" ".join(moment.split()) for moment in moments])
    for moment in expected:
        assert any(each.startswith(moment) for each in found), (moment, moments)


def assert_between(death: Death, found: object, steps: Sequence[object]) -> None:
    """It is as its caller was told last, or one step further, and nowhere between."""
    told = len(death.told)
    assert found in steps[told : told + 2], death.moment


def assert_completed(jobs: list[Job]) -> None:
    assert {job.status for job in jobs} <= {"completed"}


def complete(store: Store, job: Job) -> None:
    assert not store.run(Settle([Settlement(held(job), settle(Completed()))]))


def add_points(store: Store, job: Job) -> None:
    with JobContext(store, job).transaction() as tx:
        tx.execute("UPDATE points SET total = total + 100")


def ended(death: Death, work: Callable[[Store, Job], None] = complete) -> list[Job]:
    """Every job, after the dead have been rescued and all that was left has been worked on."""
    with opened(death.url, datetime.now(UTC) + timedelta(days=1)) as (store, clock):
        assert_intact(store)
        while True:
            store.run(Rescue())
            clock.advance(timedelta(days=1))
            jobs = claim(store, 100, "the next worker")
            if not jobs:
                break
            for job in jobs:
                work(store, job)
        assert_intact(store)
        return sorted(store.run(ListJobs(limit=1_000)), key=lambda job: job.id)


@contextmanager
def opened(url: str, start: datetime, *, migrate: bool = True) -> Iterator[tuple[Store, Clock]]:
    clock = Clock(start)
    with closing(store_with_clock(url, clock)) as store:
        if migrate:
            store.migrate()
        yield store, clock


def death_in(folder: Path, prepared: str) -> Death:
    told = [json.loads(line) for line in (folder / "told").read_text("utf-8").splitlines()]
    return Death(url_in(folder, prepared), told, (folder / "died").read_text("utf-8"))


def url_in(folder: Path, prepared: str) -> str:
    if on_postgres(prepared):
        return with_database(prepared, f"{database_of(prepared)}_{folder.name}")
    return f"sqlite:///{folder / 'jobs.db'}?durability=normal"
