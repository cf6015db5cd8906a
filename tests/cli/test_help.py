import pytest

from tests.cli.golden import Golden
from tests.cli.program import Program
from yaoki.cli.main import program


@pytest.mark.parametrize("command", sorted(program.commands))
def test_the_help_of_each_command_is_as_written_down(
    yaoki: Program, golden: Golden, command: str
) -> None:
    ran = yaoki(command, "--help")

    assert (ran.code, ran.err) == (0, "")
    golden(f"help-{command}", ran.told())


def test_the_help_of_the_program_is_as_written_down(yaoki: Program, golden: Golden) -> None:
    ran = yaoki("--help")

    golden("help", ran.told())


def test_without_a_command_the_help_is_shown_as_wrong_usage(yaoki: Program) -> None:
    ran = yaoki()

    assert ran.code == 2
    assert ran.out == ""
    assert ran.err == yaoki("-h").out


def test_no_line_of_help_is_cut_off(yaoki: Program) -> None:
    ran = yaoki("--help")

    assert "..." not in ran.out.partition("Commands:")[2]


def test_the_version_is_said(yaoki: Program) -> None:
    ran = yaoki("--version")

    assert ran.code == 0
    assert ran.out.startswith("yaoki 0.")
