"""Each promise, and evidence that breaks it and no other."""

from dataclasses import replace
from pathlib import Path

import pytest

from chaos.fleet import Ended
from chaos.ledger import Entries, Execution, Life, read
from chaos.plan import Spec
from chaos.producers import Promises
from chaos.troubles import Trouble, Troubles
from chaos.verdict import PROMISES, Evidence, Move, Row, judge


def execution(job: int, lease: int, began: float, **more: object) -> Execution:
    """One that took a second and came to its end."""
    made = Execution(job, lease, "a", 1, 100, began - 0.01, began, 0.0, began + 1, "ended", True)
    return replace(made, **more)


DONE = Row(1, "quick", "a", "completed", 1, 12, 11, None)
MOVES = [Move(1, "pending", "running", 0, 11), Move(1, "running", "completed", 11, 12)]
RAN = execution(1, 11, 10.0)
LIFE = Life(100, 1, 0.0)


def evidence(**more: object) -> Evidence:
    """One job that was enqueued, ran and completed; but for what is said."""
    promises = Promises()
    promises.ids["a"] = 1
    whole = Evidence(
        [Spec("a", "quick", 0, "one")],
        promises,
        [DONE],
        MOVES,
        [],
        set(),
        Entries([LIFE], [RAN]),
        Troubles([]),
    )
    return replace(whole, **more)


def promised(**more: object) -> Promises:
    promises = Promises()
    promises.ids["a"] = 1
    for name, value in more.items():
        setattr(promises, name, value)
    return promises


def ran(*executions: Execution) -> Entries:
    return Entries([LIFE], list(executions))


def row(**more: object) -> list[Row]:
    return [DONE._replace(**more)]


EFFECT = row(kind="effect")
PARENT = {
    "specs": [Spec("a", "parent", 0, "one", {"times": 2})],
    "rows": [DONE._replace(kind="parent"), DONE._replace(id=2, name="a.0", kind="quick")],
    "moves": [*MOVES, *(move._replace(job=2) for move in MOVES)],
    "entries": ran(RAN, execution(2, 11, 12.0)),
}
TWICE = ran(RAN, execution(1, 13, 20.0, pid=101))
COMPLETED_LATER = {
    "entries": TWICE,
    "rows": row(lease=14, result=13),
    "moves": [
        MOVES[0],
        Move(1, "running", "pending", 11, 12),
        Move(1, "pending", "running", 12, 13),
        Move(1, "running", "completed", 13, 14),
    ],
}

BROKEN = {
    "a job that is not there": ("lost", {"promises": promised(ids={"a": 1, "b": 2})}),
    "a job that still runs": ("stuck", {"rows": row(status="running"), "moves": MOVES[:1]}),
    "half a batch": ("enqueued in part, or twice", {"promises": promised(batches=[["a", "b"]])}),
    "a second job of one key": (
        "enqueued in part, or twice",
        {"promises": promised(again={"a": 2})},
    ),
    "a job that nobody enqueued": ("enqueued in part, or twice", {"specs": []}),
    "a parent without a child": ("enqueued in part, or twice", PARENT),
    "an effect without the completion": (
        "effect and completion apart",
        {"rows": row(kind="effect", status="cancelled"), "effects": ["a"], "moves": MOVES[:1]}
        | {"promises": promised(cancelled={"a"})},
    ),
    "a completion without the effect": ("effect and completion apart", {"rows": EFFECT}),
    "an effect that was had twice": (
        "effect and completion apart",
        {"rows": EFFECT, "effects": ["a", "a"]},
    ),
    "two completions": (
        "completed twice by record",
        {"moves": [*MOVES, Move(1, "completed", "completed", 11, 12)]},
    ),
    "a completion by another attempt": (
        "recorded without holding the lease",
        {"rows": row(result=9)},
    ),
    "a completion of what never ended": (
        "completed without having run",
        {"entries": ran(replace(RAN, how=None, at=None, returned=False))},
    ),
    "a completion without what it logged": (
        "completed without its log lines",
        {"rows": row(kind="slow"), "logged": {(1, 9), (2, 11)}},
    ),
    "a move that there is not": (
        "moved against the rules",
        {"moves": [*MOVES, Move(1, "completed", "pending", 12, 12)]},
    ),
    "a token that goes back": (
        "moved against the rules",
        {"moves": [Move(1, "pending", "pending", 13, 12), *MOVES]},
    ),
    "a harmless job that died": (
        "ended as it must not",
        {"rows": row(status="failed", error="why"), "moves": MOVES[:1]},
    ),
    "a dead job that says nothing": (
        "ended as it must not",
        {"rows": row(kind="hopeless", status="failed"), "moves": MOVES[:1]},
    ),
    "a cancelled job that completed": (
        "ended as it must not",
        {"promises": promised(cancelled={"a"})},
    ),
    "an execution for no reason": ("executed again without a reason", COMPLETED_LATER),
    "a claim that began twice": (
        "begun twice under one claim",
        {
            "entries": ran(replace(RAN, how="again"), RAN),
        },
    ),
    "a job of one attempt that began twice": (
        "begun twice with one attempt",
        COMPLETED_LATER
        | {"rows": row(kind="once", lease=14, result=13)}
        | {"troubles": Troubles([Trouble("killed", 100, 10.5, 10.6)])},
    ),
    "a job of one attempt that died for no reason": (
        "ended as it must not",
        {"rows": row(kind="once", status="failed", error="no"), "moves": MOVES[:1]},
    ),
    "a job that began too soon": (
        "begun before it was due",
        {"entries": ran(replace(RAN, early=0.5))},
    ),
    "a process that was left": (
        "processes that ended badly, or did not",
        {"problems": ["process 7 was left behind"]},
    ),
    "a worker that ended by itself": (
        "processes that ended badly, or did not",
        {"ended": [Ended(1, 0.0, 9.0, True, "Traceback")]},
    ),
    "a damaged database": ("damage in the database", {"damage": ["row 7 is missing"]}),
}


def broken(found: Evidence) -> set[str]:
    return {promise for promise, what in judge(found).broken.items() if what}


def test_nothing_is_broken_when_all_went_well() -> None:
    assert broken(evidence()) == set()
    assert {promise for promise, _ in BROKEN.values()} == PROMISES.keys()


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_promise_is_named(what: str) -> None:
    promise, flaw = BROKEN[what]

    expected = {promise}
    if "completion by another" in what:
        # Nobody ran under that lease either.
        expected.add("completed without having run")
    assert broken(evidence(**flaw)) == expected


EXCUSES = {
    "killed soon after its end": (Trouble("killed", 100, 11.5, 11.6), True),
    "killed long after its end": (Trouble("killed", 100, 15.0, 15.1), False),
    "killed before": (Trouble("killed", 100, 5.0, 5.1), False),
    "another one was killed": (Trouble("killed", 102, 10.5, 10.6), False),
    "stopped": (Trouble("stopped", 100, 10.5, 17.0), True),
    "hurried": (Trouble("hurried", 100, 10.5, 15.0), True),
    "no database": (Trouble("outage", None, 10.5, 13.0), True),
    "no database later": (Trouble("outage", None, 23.0, 25.0), False),
    "only sessions were cut": (Trouble("cut", None, 10.5, 12.0), False),
}


@pytest.mark.parametrize("excuse", EXCUSES)
def test_a_second_execution_needs_an_excuse_of_its_own(excuse: str) -> None:
    trouble, counts = EXCUSES[excuse]

    found = evidence(**COMPLETED_LATER, troubles=Troubles([trouble]))

    assert broken(found) == (set() if counts else {"executed again without a reason"})


def test_a_handler_that_failed_because_its_session_was_cut_is_excused() -> None:
    failed = COMPLETED_LATER | {
        "entries": ran(replace(RAN, how="StoreUnavailable"), TWICE.executions[1])
    }

    assert broken(evidence(**failed)) == {"executed again without a reason"}
    cut = Troubles([Trouble("cut", None, 10.5, 12.0)])
    assert broken(evidence(**failed, troubles=cut)) == set()


def test_a_handler_in_a_child_is_excused_when_its_parent_was_killed() -> None:
    lives = [Life(90, 1, 0.0), Life(100, 90, 0.1)]
    troubles = Troubles([Trouble("killed", 90, 10.5, 10.6)])
    entries = Entries(lives, TWICE.executions)

    assert broken(evidence(**COMPLETED_LATER | {"entries": entries}, troubles=troubles)) == set()


def test_a_job_of_one_attempt_may_die_with_its_worker() -> None:
    failed = {"rows": row(kind="once", status="failed", error="killed"), "moves": MOVES[:1]}
    killed = Troubles([Trouble("killed", 100, 10.5, 10.6)])

    assert broken(evidence(**failed, troubles=killed)) == set()


def test_a_worker_that_found_no_database_may_end() -> None:
    outage = Troubles([Trouble("outage", None, 1.0, 3.0)])
    unready, ready = Ended(1, 2.0, 2.5, False, "no server"), Ended(1, 2.0, 2.5, True, "gave up")

    assert broken(evidence(ended=[unready], troubles=outage)) == set()
    assert broken(evidence(ended=[ready], troubles=outage)) != set()


def test_what_a_process_could_not_write_to_its_end_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "100.1").write_text(
        "life 1 5.0\n"
        "began 1 11 a 1 0.0 0.0 0.0 10.0\n"
        "ended 1 11 11.0\n"
        "began 2 11 b 1 0.0 0.0 0.0 12.0\n"
        "ended 2 1"
    )

    entries = read(tmp_path)

    assert entries.lives == [Life(100, 1, 5.0)]
    assert [(one.job, one.at, one.how) for one in entries.executions] == [
        (1, 11.0, "ended"),
        (2, None, None),
    ]
