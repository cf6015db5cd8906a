"""Three machines: a worker that is cut off loses its jobs to another, and comes back unharmed."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.network.conftest import Site
from tests.network.hosts import Host
from tests.support.databases import ask, assert_intact
from tests.support.eventually import eventually
from yaoki import Job

pytestmark = pytest.mark.crash


def done(site: Site, *jobs: Job, within: float = 30) -> list[Job]:
    """The jobs, once they are completed."""
    ended = [site.app.wait(job, timeout=within) for job in jobs]
    assert [job.status for job in ended] == ["completed"] * len(jobs)
    return ended


@pytest.mark.parametrize(
    ("cut", "heal", "supervised"),
    [
        (Host.pull_the_plug, Host.plug_in, False),
        (Host.lose_everything, Host.lose_nothing, True),
    ],
    ids=["it can see that", "in silence, supervised"],
)
def test_a_worker_that_is_cut_off_is_replaced_and_told_and_refused_and_goes_on(
    site: Site,
    tmp_path: Path,
    cut: Callable[[Host], None],
    heal: Callable[[Host], None],
    supervised: bool,
) -> None:
    left = site.start_worker("left", supervised=supervised)
    end = tmp_path / "end"
    jobs = [
        site.app.enqueue("waits"),
        site.app.enqueue("returns", {"once": str(end)}),
        site.app.enqueue("holds", {"once": str(end)}),
    ]
    kinds = ("waits", "returns", "holds")
    eventually(lambda: {f"left {kind} began" for kind in kinds} <= {*site.written()}, within=20)
    right = site.start_worker("right", supervised=supervised)

    cut(site.left)
    elsewhere = done(site, *jobs)
    left.wait_for_line("nothing more is claimed")
    end.touch()
    eventually(lambda: "left returns returned" in site.written(), within=20)
    heal(site.left)

    # What it has to say is refused, and the handler that still runs is told. It may have said it
    # while it was cut off, and then knows only that it was not heard, or that it is too late.
    said = (
        rf"job {jobs[1].id}: its outcome \(completed\) (is not|was) recorded.* the lease was lost"
    )
    eventually(lambda: re.search(said, left.output), within=30)
    eventually(lambda: "left waits was told: lease lost" in site.written(), within=30)
    right.terminate()
    assert right.wait() == 0
    [again] = done(site, site.app.enqueue("quick"))

    assert again.result == "left"
    for job, before in zip(jobs, elsewhere, strict=True):
        after = site.app.get(job)
        assert (after.result, after.attempt) == ("right", 2)
        assert after.revision == before.revision
        assert str(after.errors[0].error).startswith("lease lost (worker ")
    assert ask(site.app.store, "SELECT host FROM effects") == [("right",)]
    assert_intact(site.app.store)
    left.terminate()
    assert left.wait() == 0
