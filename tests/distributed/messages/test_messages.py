"""Memory for messages: places of an inbox have room and stay apart, what was given back is taken again."""

from redpebble.distributed.messages.messages import MessagePool
from redpebble.distributed.messages.shared_messages import Way, inbox_places
from redpebble.runtime.memory import address_of

LINE = 64


def test_every_way_has_its_own_lines_of_an_inbox() -> None:
    ways = [Way(1, tag, room) for tag, room in enumerate((1, 64, 65, 4096, 0))]
    places = inbox_places(ways, 40 - 40 % LINE)
    assert all(place % LINE == 0 for place in places)
    for way, place, following in zip(ways, places, places[1:], strict=False):
        # two counters, a line each, stand before the message
        assert following - place >= 2 * LINE + way.room
    assert inbox_places([], 128) == [128]


def test_memory_that_was_given_back_is_taken_again() -> None:
    pool = MessagePool()
    first, other = pool.take(1000), pool.take(1000)
    assert address_of(first) != address_of(other)
    assert len(first) >= 1000
    pool.give(first)
    assert address_of(pool.take(900)) == address_of(first)
