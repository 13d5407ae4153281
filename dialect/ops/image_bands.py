"""Depth-first layers of an image network: bands of tiles run through all of them, not one layer after the other."""

from collections.abc import Sequence
from typing import Annotated, Final

from xdsl.ir import Operation
from xdsl.utils.exceptions import VerifyException

from ..record import Record, Text, written
from ..tensors import shape_of
from .elementwise import ActivateOp, BinaryOp
from .images import Conv2dOp, Depthwise2dOp, Interleave2dOp, Pool2dOp, Resample2dOp, image_shape
from .movement import ConcatOp, SplitOp
from .tile_depth_first import numbers_text, parse_numbers

FEWEST_BANDS: Final = 2
FEWEST_OPS: Final = 2
MOST_TAPS: Final = 49
"""Taps of a convolution in bands, at most: code for many relies on all tiles in a row."""


class BandGroupAttr(Record, text="ops {ops}, bands {bands}, {reason}"):
    """Ops of an image network, counted from 0, that run in so many bands of their last one's tiles, and why.

    ```mlir
    #pebble.band_group<ops 0 to 2, bands 90, "2.1 of 33.3 MB at a time">
    ```
    """

    name = "pebble.band_group"

    ops: Annotated[range, written(parse_numbers, numbers_text)]
    """The numbers of the ops in the body."""
    bands: int
    reason: Text

    def verify(self) -> None:
        if self.ops.start < 0 or len(self.ops) < FEWEST_OPS:
            raise VerifyException(f"expected {FEWEST_OPS} ops or more, got {numbers_text(self.ops)}")
        if self.bands < FEWEST_BANDS:
            raise VerifyException(f"expected {FEWEST_BANDS} bands or more, got {self.bands}")


class BandsAttr(Record, text="{groups}"):
    """The groups of ops of an image network that run depth first: `#pebble.bands<[...]>`."""

    name = "pebble.bands"

    groups: Sequence[BandGroupAttr]

    def verify(self) -> None:
        numbers = [op for group in self.groups for op in group.ops]
        if not numbers or numbers != sorted(set(numbers)):
            raise VerifyException("expected groups of ops that follow each other")


def runs_in_bands(op: Operation) -> bool:
    """Return whether each tile of what an op yields needs no more than some tiles of what it reads."""
    match op:
        case Conv2dOp():
            return op.codes is None and len(op.window.taps) <= MOST_TAPS
        case Depthwise2dOp() | Resample2dOp() | Interleave2dOp() | ConcatOp() | SplitOp():
            return True
        case Pool2dOp():
            return not op.window.is_all_of(*image_shape(op.x)[2:])
        case ActivateOp():
            return True
        case BinaryOp():
            return all(
                len(shape_of(one)) < 3 or shape_of(one)[2:] == shape_of(op.results[0])[2:] for one in op.operands
            )
        case _:
            return False


def verify_bands(ops: Sequence[Operation], schedule: BandsAttr) -> None:
    """Check that the groups are ops of a body which run in bands.

    Raises:
        VerifyException: they are not; names an op.
    """
    for group in schedule.groups:
        if group.ops.stop > len(ops):
            raise VerifyException(f"expected groups of {len(ops)} ops, got ops {numbers_text(group.ops)}")
        for number in group.ops:
            if not runs_in_bands(ops[number]):
                raise VerifyException(f"expected ops that run in bands, got op {number}, {ops[number].name}")
