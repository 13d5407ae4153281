"""The ways of all messages of a part: through shared memory where it can be, over MPI elsewhere."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from redpebble.distributed.messages.messages import Incoming, MpiPost, Outgoing
from redpebble.distributed.messages.shared_messages import Way, open_inboxes
from redpebble.distributed.native.block_layout import flag_bytes, row_bytes
from redpebble.distributed.parts.part_file import Part
from redpebble.distributed.parts.steps import Call, Receive, Route, Send

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

SLOTS: Final = 3
"""Tiles in flight: one computes, one waits, one fills the gaps between them."""

End = tuple[int, int]
"""A step of the part and a slot."""


@dataclass(frozen=True)
class Ways:
    """The ways of a part's messages, in the order of the routes of a step."""

    mpi: MpiPost
    outgoing: dict[End, list[Outgoing]]
    incoming: dict[End, list[Incoming]]

    @staticmethod
    def open(comm: "Intracomm", part: Part, blocks: tuple[int, int], *, shared: bool) -> "Ways":
        """Open the ways for tiles of so many blocks of so many samples; all ranks call it, with the same `shared`."""
        ends = [
            ((index, slot), step, Way(route.rank, tag_of(step.tag, slot), message_bytes(route, blocks)))
            for index, step in enumerate(part.steps)
            if not isinstance(step, Call)
            for slot in range(SLOTS)
            for route in step.routes
        ]
        mpi = MpiPost(comm)
        arriving = [way for _, step, way in ends if isinstance(step, Receive)]
        near = open_inboxes(comm, arriving) if shared else None
        ways = Ways(mpi, {}, {})
        for end, step, way in ends:
            post = near if near is not None and near.reaches(way.rank) else mpi
            if isinstance(step, Send):
                ways.outgoing.setdefault(end, []).append(post.outgoing(*way))
            else:
                ways.incoming.setdefault(end, []).append(post.incoming(*way))
        return ways

    def all_gone(self) -> bool:
        """Return whether nothing is on its way over MPI any more."""
        self.mpi.progress()
        return self.mpi.is_idle


def tag_of(number: int, slot: int) -> int:
    """Return the tag of a value's messages from one slot to the same of another rank."""
    return number * SLOTS + slot


def message_bytes(route: Route, blocks: tuple[int, int]) -> int:
    """Return the bytes of a message that leaves nothing out, of (number, width) blocks."""
    number, width = blocks
    return flag_bytes(len(route.rows), number) + len(route.rows) * number * row_bytes(width)
