"""Offsets for buffers that are not all alive at the same time."""

from collections.abc import Sequence
from typing import NamedTuple

from .llvm.values import ALIGNMENT


class Lifetime(NamedTuple):
    """A buffer of `size` bytes that is used from step `first` to step `last`, both included."""

    size: int
    first: int
    last: int


class Plan(NamedTuple):
    """The offset in bytes of each buffer, and the bytes they need together."""

    offsets: tuple[int, ...]
    total: int


def plan_offsets(lifetimes: Sequence[Lifetime]) -> Plan:
    """Place buffers so that those alive at the same time do not overlap: first fit, the largest first."""
    placed: list[tuple[int, int, Lifetime]] = []
    offsets = [0] * len(lifetimes)
    for index in sorted(range(len(lifetimes)), key=lambda i: -lifetimes[i].size):
        lifetime = lifetimes[index]
        size = -(-lifetime.size // ALIGNMENT) * ALIGNMENT
        alive = sorted(
            (begin, end)
            for begin, end, other in placed
            if other.first <= lifetime.last and lifetime.first <= other.last
        )
        offset = 0
        for begin, end in alive:
            if offset + size <= begin:
                break
            offset = max(offset, end)
        offsets[index] = offset
        placed.append((offset, offset + size, lifetime))
    return Plan(tuple(offsets), max((end for _, end, _ in placed), default=0))
