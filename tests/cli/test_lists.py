import json

import pytest

from tests.cli import fixed
from tests.cli.golden import Golden
from tests.cli.program import Program, on_both

LISTS = {
    "jobs": ("jobs",),
    "jobs-failed": ("jobs", "--status", "failed"),
    "jobs-of-queue": ("jobs", "--queue", "mail", "--limit", "1"),
    "jobs-of-worker": ("jobs", "--worker", "own-worker"),
    "jobs-none": ("jobs", "--type", "no-such-type"),
    "queues": ("queues",),
    "workers": ("workers",),
    "timetable": ("timetable", "mail"),
}


@on_both
@pytest.mark.parametrize("name", LISTS)
def test_a_list_is_shown_as_written_down(still: Program, golden: Golden, name: str) -> None:
    ran = still(*LISTS[name])

    golden(name, ran.told())


@on_both
@pytest.mark.parametrize("name", ["jobs-failed", "jobs-of-queue", "queues", "workers", "timetable"])
def test_a_list_as_json_is_shown_as_written_down(still: Program, golden: Golden, name: str) -> None:
    ran = still(*LISTS[name], "--json")

    json.loads(ran.out)
    golden(f"{name}-json", ran.told())


@on_both
@pytest.mark.parametrize(
    ("type", "status"),
    [
        ("import", "completed"),
        ("resize", "failed"),
        ("report", "running"),
        ("mail", "pending"),
        ("請求書を送る", "pending"),
    ],
)
def test_a_job_is_shown_as_written_down(
    still: Program, golden: Golden, type: str, status: str
) -> None:
    jobs = json.loads(still("jobs", "--type", type, "--status", status, "--json").out)["jobs"]

    ran = still("job", str(jobs[-1]["id"]))

    golden(f"job-{type if type.isascii() else 'unicode'}", ran.told())


@on_both
def test_a_job_as_json_is_shown_as_written_down(still: Program, golden: Golden) -> None:
    job = fixed.job_of(still.url, "import", "completed")

    ran = still("job", str(job.id), "--json")

    assert json.loads(ran.out)["result"] == {"imported": 3}
    golden("job-json", ran.told())


@on_both
def test_whole_numbers_of_any_size_are_exact_in_json(still: Program) -> None:
    listed = json.loads(still("jobs", "--type", "請求書を送る", "--json").out)

    assert listed["jobs"][0]["payload"]["金額"] == 10**30


@on_both
def test_every_page_of_a_list_is_reached_by_its_cursor(still: Program) -> None:
    everything = [job["id"] for job in json.loads(still("jobs", "--json").out)["jobs"]]

    found, cursor = [], None
    while True:
        more = () if cursor is None else ("--cursor", cursor)
        page = json.loads(still("jobs", "--limit", "4", "--json", *more).out)
        found += [job["id"] for job in page["jobs"]]
        cursor = page["cursor"]
        if cursor is None:
            break

    assert found == everything


def test_secret_values_are_shown_nowhere(still: Program) -> None:
    [one] = [
        job
        for job in json.loads(still("jobs", "--type", "mail", "--json").out)["jobs"]
        if "card" in job["payload"]
    ]

    shown = [
        still("jobs", "--json").out,
        still("jobs").out,
        still("job", str(one["id"])).out,
        still("job", str(one["id"]), "--json").out,
    ]

    assert one["payload"]["card"] == "***"
    assert not [text for text in shown if "4111" in text]
    assert '"card": "***"' in shown[2]


def test_what_a_terminal_would_obey_never_reaches_it(still: Program) -> None:
    failed = fixed.job_of(still.url, "resize", "failed")

    shown = "".join(
        still(*arguments).out
        for arguments in (
            ("jobs",),
            ("jobs", "--json"),
            ("job", str(failed.id)),
            ("job", str(failed.id), "--json"),
            ("watch", str(failed.id)),
            ("watch", str(failed.id), "--json"),
        )
    )

    assert not {"\x1b", "\r", "\u2028", "\x9b"} & set(shown)
    assert r"\x1b[2J" in shown
