"""Buffers of values of the IR, some of which lie in the buffers of others, in one piece of memory."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from xdsl.ir import SSAValue

from .buffer_packing import Lifetime, plan_offsets


class Place(NamedTuple):
    """A value lies in the buffer of `whole`, maybe its own, from some feature or channel of that on."""

    whole: SSAValue
    first: int


class Use(NamedTuple):
    """The steps in which the values of a buffer are computed, and the last one that reads any."""

    first: int
    newest: int
    last: int

    def with_values_of(self, other: "Use") -> "Use":
        """Return the use of a buffer that holds the values of both."""
        return Use(min(self.first, other.first), max(self.newest, other.newest), max(self.last, other.last))


class SharedPlan(NamedTuple):
    """The offset of each buffer, by the value that is all of it; those of other memory; the bytes of all."""

    starts: dict[SSAValue, int]
    others: Sequence[int]
    total: int


@dataclass
class SharedBuffers:
    """Buffers of values, of which one may lie in that of another: the parts of a concat or a split in the whole."""

    values: list[SSAValue] = field(default_factory=list[SSAValue])
    used: dict[SSAValue, Use] = field(default_factory=dict[SSAValue, Use])
    """The use of each buffer, by the value that is all of it."""
    places: dict[SSAValue, Place] = field(default_factory=dict[SSAValue, Place])
    """Place of each value in another one, which may lie in a third: `place` has the place in the buffer."""

    def add(self, value: SSAValue, first: int, last: int) -> None:
        """Give a value a buffer of its own, from the step that computes it to the last one that reads it."""
        self.values.append(value)
        self.used[value] = Use(first, first, last)

    def place(self, value: SSAValue) -> Place:
        """Return the place of a value in the buffer it lies in, which later calls find at once."""
        on_the_way = list[SSAValue]()
        while value in self.places:
            on_the_way.append(value)
            value = self.places[value].whole
        found = Place(value, 0)
        for one in reversed(on_the_way):
            found = Place(value, found.first + self.places[one].first)
            self.places[one] = found
        return found

    def put(self, value: SSAValue, whole: SSAValue, first: int) -> None:
        """Let a value that has its own buffer lie in `whole`, with all that lies in it."""
        root, start = self.place(whole)
        self.places[value] = Place(root, start + first)
        self.used[root] = self.used[root].with_values_of(self.used.pop(value))

    def plan(self, size: Callable[[SSAValue], int], others: Sequence[Lifetime] = ()) -> SharedPlan:
        """Return the offsets of all buffers, of so many bytes each, and of other memory beside them."""
        roots = dict.fromkeys(self.place(value).whole for value in self.values)
        lives = [Lifetime(size(root), self.used[root].first, self.used[root].last) for root in roots]
        offsets, total = plan_offsets([*lives, *others])
        return SharedPlan(dict(zip(roots, offsets, strict=False)), offsets[len(roots) :], total)
