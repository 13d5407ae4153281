"""The steps of a slot, with everything looked up beforehand: a tile goes through hundreds of them in a millisecond."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from redpebble.distributed.messages.messages import Incoming, Outgoing
from redpebble.distributed.native.block_layout import flag_bytes, row_bytes
from redpebble.distributed.parts.block_code import BlockCode
from redpebble.distributed.parts.steps import Route
from redpebble.distributed.run.traffic_report import RankReport
from redpebble.runtime.memory import address_of


@dataclass(frozen=True)
class Place:
    """A buffer of a slot."""

    code: BlockCode
    report: RankReport
    address: int
    features: int


class Compute:
    """Runs a function."""

    def __init__(self, code: BlockCode, function: str, table: NDArray[np.uint64]) -> None:
        """Take the table of addresses that the function gets."""
        self._run, self._table, self._address = code.runner(function), table, address_of(table)

    def may_run(self) -> bool:
        """Return True."""
        return True

    def run(self, samples: int) -> None:
        """Run it."""
        self._run(self._address, samples)


class Dispatch:
    """Sends rows of a buffer."""

    def __init__(self, place: Place, routes: Iterable[Route], ways: Sequence[Outgoing]) -> None:
        """Take the ways of the routes."""
        self._place, self._ways = place, ways
        self._rows = [np.ascontiguousarray(route.rows) for route in routes]

    def may_run(self) -> bool:
        """Return whether what was sent last has gone."""
        return all(way.may_send() for way in self._ways)

    def run(self, samples: int) -> None:
        """Pack and send."""
        place, width = self._place, self._place.code.width
        blocks = -(-samples // width)
        for way, rows in zip(self._ways, self._rows, strict=True):
            numbers = (address_of(rows), len(rows))
            message = way.begin()
            count = place.code.pack(place.address, numbers, message, (place.features, blocks))
            flags, payload = flag_bytes(len(rows), blocks), count * row_bytes(width)
            way.send(flags + payload)
            place.report.sent(count, len(rows) * blocks - count, (payload, flags))


class Collect:
    """Waits for rows of others, and puts them into a buffer."""

    def __init__(
        self, place: Place, routes: Iterable[Route], ways: Sequence[Incoming], following: Sequence[Incoming]
    ) -> None:
        """Take the ways of the routes, and those of the step that waits next."""
        self._place, self._ways, self._following = place, ways, following
        self._spans = [(len(route.rows), int(route.rows[0])) for route in routes]

    def may_run(self) -> bool:
        """Return whether everything has arrived."""
        return all(way.has_arrived() for way in self._ways)

    def run(self, samples: int) -> None:
        """Unpack, and make ready for what comes next, so that it needs no copy on the way."""
        place, width = self._place, self._place.code.width
        shape = (place.features, -(-samples // width))
        for way, span in zip(self._ways, self._spans, strict=True):
            rows = place.code.unpack(way.message, place.address, span, shape)
            way.release()
            place.report.row_bytes_received += rows * row_bytes(width)
        for way in self._following:
            way.expect()


SlotStep = Compute | Dispatch | Collect
