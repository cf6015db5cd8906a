"""Wake-ups on PostgreSQL: NOTIFY wakes at once who sleeps, and puts nobody else to work."""

import threading
import time
from contextlib import closing
from typing import Any

import psycopg
import pytest

from tests.store.postgres.support_bells import Ground, Sleep, in_child
from tests.support.eventually import eventually
from tests.support.processes import Processes
from yaoki.store.postgres import bell as bells
from yaoki.store.postgres.bell import NotifyBell, PollBell, channel_of
from yaoki.store.postgres.listener import Pace
from yaoki.store.postgres.statements import quoted

# Being woken


def test_the_first_wait_announces_itself_and_asks_for_a_look(ground: Ground) -> None:
    with closing(ground.bell()) as bell:
        assert not ground.notify_sleepers()

        assert bell.wait(10)

        assert ground.notify_sleepers()
        [[_, until, *_]] = ground.announcements()
        assert 50e6 < until - time.time_ns() // 1000 <= 61e6


def test_a_notification_wakes_at_once(ground: Ground, bell: NotifyBell) -> None:
    delays = []
    for _ in range(20):
        sleep = Sleep(bell)
        assert sleep.lasts
        notified = time.monotonic()
        assert ground.notify_sleepers()
        delays.append(sleep.delay_after(notified))

    assert sorted(delays)[10] < 0.05


def test_another_process_wakes_it(ground: Ground, bell: NotifyBell, processes: Processes) -> None:
    program = (
        "import psycopg, sys; psycopg.connect(sys.argv[1], autocommit=True).execute(sys.argv[2])"
    )

    processes.python("-c", program, ground.url, f"NOTIFY {quoted(ground.channel)}")

    assert bell.wait(20)


def test_a_bell_that_nobody_rings_is_silent(ground: Ground, bell: NotifyBell) -> None:
    began = time.monotonic()

    assert not bell.wait(0.2)

    assert 0.19 <= time.monotonic() - began < 1
    assert not bell.wait(0)


def test_another_thread_rings_it(bell: NotifyBell) -> None:
    sleep = Sleep(bell)
    rung = time.monotonic()

    bell.ring()

    assert sleep.delay_after(rung) < 0.5


def test_what_rang_before_the_wait_rings_once(ground: Ground, bell: NotifyBell) -> None:
    for _ in range(1000):
        bell.ring()
        ground.notify()
    eventually(lambda: bell.wait(0.05))
    while bell.wait(0.05):
        continue

    for _ in range(1000):
        bell.ring()

    assert bell.wait(5)
    assert not bell.wait(0.05)


def test_notifications_that_piled_up_are_one(ground: Ground, bell: NotifyBell) -> None:
    # Of one transaction, so that they arrive in one piece.
    many = "SELECT count(pg_notify($1, n::text)) FROM generate_series(1, 100) AS n"
    ground.ask(many, ground.channel)

    assert bell.wait(5)

    assert not bell.wait(0.1)


def test_a_notification_inside_a_transaction_wakes_when_it_commits(
    ground: Ground, bell: NotifyBell
) -> None:
    with ground.connection() as caller:
        ground.notify(on=caller)
        assert not bell.wait(0.2)
        caller.commit()

    assert bell.wait(5)


def test_a_transaction_that_is_rolled_back_wakes_nobody(ground: Ground, bell: NotifyBell) -> None:
    with ground.connection() as caller:
        ground.notify(on=caller)
        caller.rollback()

    assert not bell.wait(0.3)


@pytest.mark.parametrize("schema", ['we"ird x', "ya'oki;--", "八起き" * 7, "s" * 63, "UPPER.case"])
def test_a_schema_may_have_any_name(postgres_url: str, schema: str) -> None:
    ground = Ground(postgres_url, schema)
    with closing(ground.other), closing(ground.bell()) as bell:
        assert bell.wait(10)

        assert ground.notify_sleepers()

        assert bell.wait(5)
        assert not bell.wait(0.05)


def test_schemas_of_one_database_do_not_wake_each_other(ground: Ground, bell: NotifyBell) -> None:
    other = Ground(ground.url, "other")
    with closing(other.other), closing(other.bell()) as second:
        assert second.wait(10)

        assert other.notify_sleepers()

        assert second.wait(5)
        assert not bell.wait(0.1)


def test_channels_fit_a_name_and_differ() -> None:
    schemas = ["yaoki", "y" * 63, "y" * 62, "八" * 21, "八" * 20, "a b", "", "A", "a"]

    channels = {channel_of(schema) for schema in schemas}

    assert len(channels) == len(schemas)
    assert all(len(channel.encode()) < 63 for channel in channels)


# Announcing


def test_it_asks_for_a_look_only_when_its_announcement_can_be_seen(ground: Ground) -> None:
    """Announce, commit, look, sleep: who commits before the announcement counts on the look."""
    with (
        ground.connection() as blocker,
        closing(ground.bell()) as bell,
    ):
        ground.ask("LOCK TABLE yaoki.sleepers IN EXCLUSIVE MODE", on=blocker)
        assert not bell.wait(0.3)
        assert not ground.notify_sleepers()

        blocker.rollback()

        assert bell.wait(5)
        assert ground.notify_sleepers()
        assert bell.wait(5)


def test_no_interleaving_of_a_commit_and_an_announcement_loses_a_wake_up(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing polls here: what is not seen by a look that the bell asked for is never seen."""
    monkeypatch.setattr(bells, "BUSY_AFTER", 0.0)
    seen = [0]
    over = threading.Event()

    def work() -> None:
        with closing(ground.connect()) as own:
            while not over.is_set():
                # Announce anew each time, so that every commit may fall beside an announcement.
                bell.hush()
                if bell.wait(20):
                    [[seen[0]]] = ground.ask("SELECT count(*) FROM yaoki.paused", on=own)

    with closing(ground.bell()) as bell:
        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        woken = 0
        for number in range(1, 301):
            ground.ask("INSERT INTO yaoki.paused VALUES ('queue', $1, 1)", str(number))
            woken += ground.notify_sleepers()
            eventually(lambda number=number: seen[0] >= number, every=0.000_1)
        over.set()
        bell.ring()
        worker.join(10)

    assert 0 < woken <= 300


def test_who_is_woken_again_and_again_writes_nothing(ground: Ground, bell: NotifyBell) -> None:
    announced, asked = ground.announcements(), ground.sessions()

    for _ in range(50):
        assert ground.notify_sleepers()
        assert bell.wait(5)
        bell.hush()

    assert ground.announcements() == announced
    assert ground.sessions() == asked


def test_an_announcement_is_renewed_before_it_expires(ground: Ground) -> None:
    pace = Pace(announced_for=1.0)
    with closing(ground.bell(pace=pace)) as bell:
        assert bell.wait(10)
        [[_, first, *_]] = ground.announcements()
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            assert not bell.wait(0.1), "a renewal is no reason to look"
            assert ground.notify_sleepers()
            assert bell.wait(5)
        [[_, last, *_]] = ground.announcements()

    assert 1.5e6 < last - first < 3.5e6


def test_who_did_not_wait_for_long_announces_and_looks_again(ground: Ground) -> None:
    pace = Pace(announced_for=0.2)
    with closing(ground.bell(pace=pace)) as bell:
        assert bell.wait(10)
        eventually(lambda: not ground.sleepers())

        assert bell.wait(5)
        assert ground.notify_sleepers()


def test_a_busy_owner_is_not_notified_until_he_waits_again(
    ground: Ground, bell: NotifyBell
) -> None:
    assert not bell.wait(0)
    bell.hush()
    assert ground.sleepers() == 1, "he was busy for too short a time to write about it"

    eventually(lambda: not (bell.hush() or ground.sleepers()))
    assert not ground.notify_sleepers()

    assert bell.wait(5), "he announces himself again, and then looks"
    assert ground.notify_sleepers()
    assert bell.wait(5)


def test_what_a_busy_owner_does_not_take_in_does_not_pile_up_on_the_server(
    ground: Ground, bell: NotifyBell
) -> None:
    """The queue of notifications is the whole server's, and once it is full, commits fail."""
    eventually(lambda: not (bell.hush() or ground.sleepers()))
    many = "SELECT count(pg_notify($1, n || repeat('x', 7900))) FROM generate_series(1, 4000) AS n"

    ground.ask(many, ground.channel)

    ground.notify()
    eventually(lambda: ground.ask("SELECT pg_notification_queue_usage()") == [(0,)])


def test_hushing_costs_next_to_nothing(bell: NotifyBell) -> None:
    bell.wait(0)
    began = time.thread_time()
    for _ in range(1000):
        bell.hush()

    assert time.thread_time() - began < 0.02


SLEEPER = """
import sys
from yaoki.store.postgres import place
from yaoki.store.postgres.bell import NotifyBell
from yaoki.store.postgres.connection import connect
from yaoki.store.postgres.listener import Pace

here, pace = place.parse(sys.argv[1]), Pace(announced_for=float(sys.argv[2]))
bell = NotifyBell(lambda: connect(here), "yaoki", lambda: None, pace=pace)
assert bell.wait(10)
print("announced", flush=True)
"""


SLEEPING = """
while True:
    bell.wait(10)
"""


@pytest.mark.crash
def test_the_announcement_of_one_who_died_expires_and_is_removed(
    ground: Ground, processes: Processes
) -> None:
    process = processes.python("-c", SLEEPER + SLEEPING, ground.url, "1.5")
    process.wait_for_line("announced")
    process.kill()
    assert ground.notify_sleepers(), "nobody can know yet"

    eventually(lambda: not ground.notify_sleepers())
    [[dead, *_]] = ground.announcements()
    with closing(ground.bell()) as bell:
        assert bell.wait(10)
        [[alive, *_]] = ground.announcements()

    assert alive != dead


def test_a_limit_on_idle_sessions_does_not_end_one_that_listens(ground: Ground) -> None:
    [[database]] = ground.ask("SELECT current_database()")
    if ground.other.info.server_version >= 140_000:
        ground.ask(f"ALTER DATABASE {quoted(database)} SET idle_session_timeout = '200ms'")
    with closing(ground.bell()) as bell:
        assert bell.wait(10)
        assert not bell.wait(0.6)
        assert ground.notify_sleepers()
        assert bell.wait(5)


@pytest.mark.slow
def test_sleeping_costs_next_to_nothing(ground: Ground, bell: NotifyBell) -> None:
    asked = ground.sessions()
    busy = time.thread_time()
    for _ in range(3):
        assert not bell.wait(1)

    assert time.thread_time() - busy < 0.01
    assert ground.sessions() == asked


# Ending


def test_closing_withdraws_the_announcement_and_ends_the_session(ground: Ground) -> None:
    told: list[str] = []
    bell = NotifyBell(ground.connect, ground.schema, lambda: told.append("closed"))
    assert bell.wait(10)

    bell.close()

    assert told == ["closed"]
    eventually(lambda: not ground.sessions())
    assert ground.announcements() == []
    began = time.monotonic()
    assert not bell.wait(10)
    bell.ring()
    bell.hush()
    bell.close()
    assert time.monotonic() - began < 0.5


def test_closing_wakes_who_waits(ground: Ground) -> None:
    bell = ground.bell()
    assert bell.wait(10)
    sleep = Sleep(bell, 20)

    bell.close()

    eventually(lambda: not sleep.lasts)
    eventually(lambda: not ground.sessions())


def test_a_bell_that_never_waited_can_be_closed(ground: Ground) -> None:
    ground.bell().close()

    assert not ground.sessions()


def test_a_connection_that_is_being_made_keeps_nobody_waiting(ground: Ground) -> None:
    connecting, go_on = threading.Event(), threading.Event()

    def connect() -> psycopg.Connection[Any]:
        connecting.set()
        assert go_on.wait(20)
        return ground.connect()

    bell = NotifyBell(connect, ground.schema, lambda: None)
    sleep = Sleep(bell, 20)
    assert connecting.wait(10)
    rung = time.monotonic()
    bell.ring()
    assert sleep.delay_after(rung) < 0.5
    sleep = Sleep(bell, 20)

    bell.close()

    eventually(lambda: not sleep.lasts)
    assert time.monotonic() - rung < 1
    go_on.set()
    eventually(lambda: not ground.sessions() and "yaoki-listen" not in thread_names())
    assert ground.announcements() == []


def thread_names() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


def test_a_bell_that_forgot_its_connection_makes_another(ground: Ground, bell: NotifyBell) -> None:
    [[first, _]] = ground.sessions()
    sleep = Sleep(bell, 20)

    bell.forget()
    sleep.delay_after(0)

    assert bell.wait(5)
    eventually(lambda: len(ground.sessions()) == 1)
    assert ground.sessions()[0][0] != first
    assert ground.notify_sleepers()
    assert bell.wait(5)


@pytest.mark.parametrize("how", ["forget", "wait", "close", "nothing"])
def test_a_forked_child_leaves_the_session_of_its_parent_alone(
    ground: Ground, bell: NotifyBell, how: str
) -> None:
    sessions = [pid for pid, _ in ground.sessions()]
    sleep = Sleep(bell, 20)

    def act() -> bool:
        if how == "wait":
            # It waits on a connection of its own, although its parent holds the lock for ever.
            answer = bell.wait(10) and not bell.wait(0.05)
            bell.close()
            return answer
        if how != "nothing":
            getattr(bell, how)()
        return True

    assert in_child(act)

    assert sleep.lasts
    notified = time.monotonic()
    assert ground.notify_sleepers()
    assert sleep.delay_after(notified) < 0.5
    eventually(lambda: [pid for pid, _ in ground.sessions()] == sessions)


def test_a_child_that_rings_its_inherited_bell_hears_it_itself(bell: NotifyBell) -> None:
    def act() -> bool:
        bell.forget()
        assert bell.wait(10)
        bell.ring()
        return bell.wait(10)

    assert in_child(act)
    assert not bell.wait(0.1)


EXITING = """
import threading
threading.Thread(target=lambda: bell.wait(60), daemon=True).start()
"""


def test_a_program_that_ends_with_a_bell_open_ends(ground: Ground, processes: Processes) -> None:
    process = processes.python("-c", SLEEPER + EXITING, ground.url, "60")

    assert process.wait(10) == 0
    assert process.output == "announced\n"


# Without NOTIFY


def test_a_bell_without_notifications_rings_within_the_process() -> None:
    told: list[str] = []
    bell = PollBell(lambda: told.append("closed"))
    assert not bell.wait(0.05)
    bell.ring()
    bell.ring()
    assert bell.wait(5)
    assert not bell.wait(0.05)
    sleep, rung = Sleep(bell), time.monotonic()

    bell.hush()
    bell.ring()

    assert sleep.delay_after(rung) < 0.5
    bell.close()
    assert told == ["closed"]
    assert not bell.wait(10)


def test_a_bell_without_notifications_works_in_a_forked_child() -> None:
    bell = PollBell(lambda: None)
    sleep = Sleep(bell)

    def act() -> bool:
        bell.forget()
        bell.ring()
        return bell.wait(5)

    assert in_child(act)
    assert sleep.lasts
    bell.ring()
    assert sleep.delay_after(0)
