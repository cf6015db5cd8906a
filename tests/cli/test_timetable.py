import json

from tests.cli.golden import Golden
from tests.cli.program import Program


def test_a_policy_is_spelt_out_by_options(yaoki: Program, golden: Golden) -> None:
    ran = yaoki(
        "timetable", "--max-attempts", "5", "--first", "10", "--cap", "600", "--factor", "2"
    )

    assert (ran.code, ran.err) == (0, "")
    golden("timetable-spelt-out", ran.told())


def test_it_is_said_whether_a_policy_fits(yaoki: Program, golden: Golden) -> None:
    fits = yaoki("timetable", "--max-attempts", "3", "--patience", "30m")
    does_not = yaoki("timetable", "--max-attempts", "9", "--patience", "30m")

    assert (fits.code, does_not.code) == (0, 1)
    golden("timetable-patience", fits.told() + does_not.told())


def test_the_attempts_that_are_recommended_fit(yaoki: Program) -> None:
    too_long = yaoki("timetable", "--max-attempts", "50", "--patience", "2h")
    attempts = too_long.out.partition("with --max-attempts ")[2].split()[0]

    ran = yaoki("timetable", "--max-attempts", attempts, "--patience", "2h")

    assert ran.code == 0


def test_ten_thousand_attempts_are_shown_in_short(yaoki: Program) -> None:
    ran = yaoki("timetable", "--max-attempts", "10000")

    assert ran.code == 0
    assert len(ran.out.splitlines()) < 40
    assert "10000" in ran.out


def test_the_policy_of_the_app_is_shown_with_waits_of_its_own(
    yaoki: Program, golden: Golden
) -> None:
    ran = yaoki("--app", "shop:app", "timetable", "own-waits")

    assert ran.code == 0
    golden("timetable-app", ran.told())


def test_what_a_worker_published_is_shown_without_its_code(yaoki: Program, golden: Golden) -> None:
    yaoki("--app", "shop:app", "worker", "--until-empty")

    shown = yaoki("timetable", "broken", "--json")
    own = yaoki("timetable", "own-waits")

    assert json.loads(shown.out)["attempts"] == [
        {"attempt": 1, "earliest": 0.0, "latest": 0.0},
        {"attempt": 2, "earliest": 0.05, "latest": 0.05},
    ]
    golden("timetable-published", own.told())
