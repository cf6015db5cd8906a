from yaoki.cli.show.table import Column, plain_lines
from yaoki.cli.show.text import width

COLUMNS = (Column("ID", right=True), Column("TYPE", gives=True), Column("", gives=True))


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    lines = plain_lines(COLUMNS, [["7", "mail", "x"], ["120", "領収書", ""]], None)

    assert lines == [" ID  TYPE", "  7  mail    x", "120  領収書"]


def test_what_gives_is_cut_and_nothing_else() -> None:
    rows = [["1234567890", "a-very-long-type-name", "because " * 20]]

    lines = plain_lines(COLUMNS, rows, 60)

    assert [width(line) <= 60 for line in lines] == [True, True]
    assert "1234567890  a-very-long-type-name  because" in lines[1]
    assert lines[1].endswith("…")


def test_a_room_that_is_too_small_for_all_leaves_something_of_each() -> None:
    [_, line] = plain_lines(COLUMNS, [["1", "t" * 50, "w" * 50]], 10)

    assert line == " 1  ttttttt…  wwwwwww…"
