"""When the next process may be started in a place."""

from yaoki.supervisor.place import GIVES_UP_AFTER, LONG_ENOUGH, Place


def test_the_waits_grow_up_to_half_a_minute_and_start_again_after_a_long_life() -> None:
    place = Place(1)

    waits = [place.failed(lived=1.0, counts=False) for _ in range(11)]

    assert waits[:4] == [0.1, 0.2, 0.4, 0.8]
    assert waits[-2:] == [30.0, 30.0]
    assert place.failed(lived=LONG_ENOUGH, counts=False) == 0.1


def test_while_the_database_is_away_it_is_tried_more_often_and_does_not_count() -> None:
    place = Place(1)

    waits = [place.failed(lived=0.0, counts=False, passing=True) for _ in range(20)]

    assert max(waits) == 3.0
    assert not place.gives_up


def test_it_gives_up_after_so_many_that_never_began_in_a_row() -> None:
    place = Place(1)
    for _ in range(GIVES_UP_AFTER - 1):
        place.failed(lived=0.0, counts=True)
    place.never_ready = 0  # one began
    for _ in range(GIVES_UP_AFTER - 1):
        place.failed(lived=0.0, counts=True)

    assert not place.gives_up
    place.failed(lived=0.0, counts=True)
    assert place.gives_up
