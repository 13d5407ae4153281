"""The steps of a slot, with everything looked up beforehand: a tile goes through hundreds of them in a millisecond."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...runtime.memory import address_of
from ..messages.transport import Incoming, Outgoing
from ..native.block_layout import flag_bytes, row_bytes
from ..parts.block_code import BlockBuffer, BlockCode
from ..parts.steps import Route
from .rank_report import RankReport


@dataclass(frozen=True)
class SlotBuffer:
    """A buffer of a slot, the code that reads and writes it, and the report that counts its rows."""

    code: BlockCode
    report: RankReport
    values: BlockBuffer


class ComputeStep:
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


class SendStep:
    """Sends rows of a buffer."""

    def __init__(self, buffer: SlotBuffer, routes: Iterable[Route], channels: Sequence[Outgoing]) -> None:
        """Take the channels of the routes."""
        self._buffer, self._channels = buffer, channels
        self._rows = [np.ascontiguousarray(route.rows) for route in routes]

    def may_run(self) -> bool:
        """Return whether what was sent last has gone."""
        return all(channel.may_send() for channel in self._channels)

    def run(self, samples: int) -> None:
        """Pack and send."""
        code = self._buffer.code
        blocks = -(-samples // code.width)
        for channel, rows in zip(self._channels, self._rows, strict=True):
            count = code.pack(self._buffer.values, rows, blocks, channel.begin())
            flags, payload = flag_bytes(len(rows), blocks), count * row_bytes(code.width)
            channel.send(flags + payload)
            self._buffer.report.sent(count, len(rows) * blocks - count, payload, flags)


class ReceiveStep:
    """Waits for rows of others, and puts them into a buffer."""

    def __init__(
        self, buffer: SlotBuffer, routes: Iterable[Route], channels: Sequence[Incoming], following: Sequence[Incoming]
    ) -> None:
        """Take the channels of the routes, and those of the step that waits next."""
        self._buffer, self._channels, self._following = buffer, channels, following
        self._rows = [range(int(route.rows[0]), int(route.rows[-1]) + 1) for route in routes]

    def may_run(self) -> bool:
        """Return whether everything has arrived."""
        return all(channel.has_arrived() for channel in self._channels)

    def run(self, samples: int) -> None:
        """Unpack, and make ready for what comes next, so that it needs no copy on the way."""
        code = self._buffer.code
        blocks = -(-samples // code.width)
        for channel, rows in zip(self._channels, self._rows, strict=True):
            count = code.unpack(channel.message, self._buffer.values, rows, blocks)
            channel.release()
            self._buffer.report.row_bytes_received += count * row_bytes(code.width)
        for channel in self._following:
            channel.expect()


ReadyStep = ComputeStep | SendStep | ReceiveStep
