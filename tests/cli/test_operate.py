import pytest

from tests.cli.golden import Golden
from tests.cli.program import Program, on_both
from yaoki import Yaoki

pytestmark = on_both


@pytest.fixture
def dead(app: Yaoki) -> list[int]:
    """Three failed jobs: two of type mail (one in queue slow), one of type fax."""
    app.enqueue("mail", {})
    app.enqueue("mail", {}, queue="slow")
    app.enqueue("fax", {})
    claimed = app.claim("w", limit=3)
    for job in claimed:
        app.fail(job, "broken for good", retry=False)
    return sorted(job.id for job in claimed)


def test_failed_jobs_are_put_back_by_their_ids(
    yaoki: Program, app: Yaoki, dead: list[int], golden: Golden
) -> None:
    ran = yaoki("retry", "1", "3")

    assert [app.get(job_id).status for job_id in dead] == ["pending", "failed", "pending"]
    golden("retry", ran.told())


def test_of_several_jobs_the_good_ones_are_done_and_the_bad_ones_said(
    yaoki: Program, app: Yaoki, dead: list[int], golden: Golden
) -> None:
    ran = yaoki("retry", "99", "2")

    assert app.get(2).status == "pending"
    assert ran.code == 1
    golden("retry-one-unknown", ran.told())


@pytest.mark.parametrize(
    ("narrowed", "back"),
    [
        ((), [1, 2, 3]),
        (("--type", "mail"), [1, 2]),
        (("--queue", "slow"), [2]),
        (("--type", "fax", "--queue", "slow"), []),
    ],
)
def test_all_failed_jobs_are_put_back_or_those_of_a_type_or_queue(
    yaoki: Program, app: Yaoki, dead: list[int], narrowed: tuple[str, ...], back: list[int]
) -> None:
    ran = yaoki("retry", "--all-failed", *narrowed)

    assert ran.code == 0
    assert [job_id for job_id in dead if app.get(job_id).status == "pending"] == back
    assert ran.out.startswith(f"{len(back)} job")


def test_a_pending_job_is_cancelled_and_a_running_one_asked_to_stop(
    yaoki: Program, app: Yaoki, golden: Golden
) -> None:
    app.enqueue("mail", {}, priority=1)
    app.enqueue("mail", {})
    app.claim("somebody")

    ran = yaoki("cancel", "1", "2")

    assert app.get(1).being_cancelled
    assert app.get(2).status == "cancelled"
    golden("cancel", ran.told())


def test_what_has_ended_otherwise_cannot_be_cancelled(
    yaoki: Program, dead: list[int], golden: Golden
) -> None:
    ran = yaoki("cancel", str(dead[0]))

    assert ran.code == 1
    golden("cancel-failed", ran.told())


def test_an_ended_job_is_deleted_and_a_pending_one_is_not(
    yaoki: Program, app: Yaoki, dead: list[int], golden: Golden
) -> None:
    app.enqueue("mail", {})

    ran = yaoki("discard", "1", "4")

    assert [job.id for job in app.jobs()] == [4, 3, 2]
    assert ran.code == 1
    golden("discard", ran.told())


def test_a_queue_and_a_type_are_paused_and_go_on(
    yaoki: Program, app: Yaoki, golden: Golden
) -> None:
    app.enqueue("mail", {}, queue="slow")
    app.enqueue("fax", {})

    paused = [yaoki("pause", "slow"), yaoki("pause", "--type", "fax")]
    taken = app.claim("w", limit=9)
    resumed = [yaoki("resume", "slow"), yaoki("resume", "--type", "fax")]

    assert taken == []
    assert len(app.claim("w", limit=9)) == 2
    golden("pause", "".join(ran.told() for ran in (*paused, *resumed)))


@pytest.mark.parametrize("arguments", [("pause",), ("pause", "slow", "--type", "fax"), ("resume",)])
def test_either_a_queue_or_a_type_is_paused(yaoki: Program, arguments: tuple[str, ...]) -> None:
    ran = yaoki(*arguments)

    assert ran.code == 2
    assert "name a queue, or --type, and not both" in ran.err
