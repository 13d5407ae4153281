"""The widths of tiles, and how threads share them."""

from collections.abc import Sequence
from dataclasses import field

from xdsl.utils.exceptions import VerifyException

from ...kernels.tile_widths import least_rows
from ..record import Record
from .latencies import Times


class ScheduleAttr(Record, text="widths = {widths}[, shares = {shares}][, serial {serial}][, shared {shared}]"):
    """The widths of a tile, and how threads share it.

    ```mlir
    #pebble.schedule<widths = [1, 16, 64], shares = 2, serial [1: 9.1, 16: 95.3, 64: 241.0],
        shared [16: 61.0, 64: 160.2]>
    ```

    `widths` are batch columns, ascending; code exists for each, and a batch is cut into as few tiles as they allow.
    With several `shares`, ops are cut into so many. Tiles of the widths in `shared` may be done by as many threads,
    each its share of every op; otherwise one thread does a tile, share after share. The numbers are
    estimates of the microseconds of a tile; from them follows for each batch how threads do its tiles.
    """

    name = "pebble.schedule"

    widths: Sequence[int]
    shares: int = 1
    serial: Times = field(default_factory=dict[int, float])
    """Microseconds by width of one thread."""
    shared: Times = field(default_factory=dict[int, float])
    """Microseconds by width of as many threads as there are shares."""

    @property
    def least_rows(self) -> dict[int, int]:
        """The rows from which a tile of each width is used, ascending.

        Where there are times, a wider tile is used as soon as it takes no longer than the best that narrower ones can
        do; otherwise when more than the middle between it and the next narrower one is left.
        """
        widths, serial_us = self.widths, self.serial
        if not all(width in serial_us for width in widths):
            pairs = zip((0, *widths), widths, strict=False)
            return {width: less + (width - less) // 2 + 1 if less else 1 for less, width in pairs}
        return least_rows({width: serial_us[width] for width in widths})

    def verify(self) -> None:
        widths = tuple(self.widths)
        if not widths or list(widths) != sorted(set(widths)) or widths[0] < 1:
            raise VerifyException(f"expected ascending positive tile widths, got {list(widths)}")
        if self.shares < 1 or (self.shares == 1 and self.shared):
            raise VerifyException(f"expected 1 or more shares, and several for shared times, got {self.shares}")
        for width in self.serial:
            if width not in widths:
                raise VerifyException(f"expected a time at one of the widths {list(widths)}, got {width}")
        shared = tuple(self.shared)
        if shared != widths[len(widths) - len(shared) :]:
            raise VerifyException(f"expected shared times at the widest of {list(widths)}, got {list(shared)}")
