"""What has begun, as another process reads it."""

from pathlib import Path

from yaoki.store.ops.settling import Held
from yaoki.worker.board import Board, BoardReader


def test_what_has_begun_and_not_ended_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "board").touch()
    board = Board(str(tmp_path / "board"), 2)
    reader = BoardReader(str(tmp_path / "board"))
    (tmp_path / "board").unlink()
    assert reader.begun() == set()

    board.begin(Held(7, 1))
    board.begin(Held(2**62, 1))
    assert reader.begun() == {7, 2**62}
    board.begin(Held(8, 1))  # there is no room; nothing is said of it
    board.end(Held(8, 1))
    board.end(Held(7, 1))
    board.begin(Held(9, 1))

    assert reader.begun() == {9, 2**62}


def test_a_claim_that_ends_does_not_end_the_next_one_of_the_same_job(tmp_path: Path) -> None:
    (tmp_path / "board").touch()
    board = Board(str(tmp_path / "board"), 2)
    board.begin(Held(7, 1))
    board.begin(Held(7, 3))

    board.end(Held(7, 1))

    assert BoardReader(str(tmp_path / "board")).begun() == {7}


def test_one_can_do_without_it(tmp_path: Path) -> None:
    assert Board.if_possible(None, 2) is None
    assert Board.if_possible(str(tmp_path / "missing" / "board"), 2) is None
