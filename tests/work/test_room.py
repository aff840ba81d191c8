"""How much an instance takes in hand."""

from __future__ import annotations

from whippletree.work.room import Room


def test_half_of_the_room_is_taken_at_a_time_and_never_more_than_there_is() -> None:
    room = Room(smallest=5, largest=100)
    assert room.free() == 3
    room.taken(3)
    assert room.free() == 2
    room.taken(2)
    assert room.free() == 0
    room.ended(1, seconds=0.5)
    assert room.free() == 1


def test_room_grows_while_work_ends_soon_and_shrinks_while_it_does_not() -> None:
    room = Room(smallest=10, largest=100)
    for _ in range(30):
        room.taken(5)
        room.ended(5, seconds=0.01)
    assert (room.limit, room.free()) == (100, 50)
    for _ in range(30):
        room.taken(5)
        room.ended(5, seconds=2)
    assert (room.limit, room.free()) == (10, 5)
