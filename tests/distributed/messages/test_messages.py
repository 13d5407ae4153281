"""Memory for messages: mailboxes have room and stay apart, what was given back is taken again."""

from redpebble.distributed.messages.channels import MessagePool, mailbox_offsets
from redpebble.distributed.messages.transport import Channel
from redpebble.runtime.memory import address_of

LINE = 64


def test_every_channel_has_its_own_lines_of_an_inbox() -> None:
    channels = [Channel(1, tag, capacity) for tag, capacity in enumerate((1, 64, 65, 4096, 0))]
    offsets = mailbox_offsets(channels, 40 - 40 % LINE)
    assert all(offset % LINE == 0 for offset in offsets)
    for channel, offset, following in zip(channels, offsets, offsets[1:], strict=False):
        # two counters, a line each, stand before the message
        assert following - offset >= 2 * LINE + channel.capacity
    assert mailbox_offsets([], 128) == [128]


def test_memory_that_was_given_back_is_taken_again() -> None:
    pool = MessagePool()
    first, other = pool.take(1000), pool.take(1000)
    assert address_of(first) != address_of(other)
    assert len(first) >= 1000
    pool.give(first)
    assert address_of(pool.take(900)) == address_of(first)
