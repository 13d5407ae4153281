"""Rows whose lengths only a call knows: which lengths the values of an image network have, and their tiles.

The code of such a network is made once. Its places are counted in tiles, of which a call has as many as it needs:

    buffer     at (tiles of the longest row) * (its place where each buffer has one tile)
    tile n     pixels n * tile .. of which `used` are there; windows read zeros behind them, or what pads are
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from xdsl.ir import Operation, SSAValue

from ...dialect.ops.image_network import ImageNetworkOp
from ...dialect.ops.images import Pool2dOp, WindowOp, fewest_windows
from ...dialect.shape_inference import body_shapes
from ...dialect.symbolic_sizes import Size, SymbolicShape, windows_of
from ..llvm.values import Number
from ..program import LeastSize
from .geometry import Plane


class OpenLength(NamedTuple):
    """A length in a call, and the tiles that it takes."""

    pixels: Number
    tiles: Number

    def used(self, number: Number, tile: int) -> Number:
        """Return the pixels of a tile, by its number."""
        return (self.pixels - number * tile).smaller(tile)


@dataclass(frozen=True)
class OpenRows:
    """The lengths of a network, each once, by number, and the pixels of its tiles."""

    tile: int
    sizes: Sequence[Size]
    values: Mapping[SSAValue, int]
    copies: Mapping[Operation, int]
    """The length of the copies of pixels that a window of a stride reads."""

    @staticmethod
    def of(op: ImageNetworkOp, shapes: Mapping[SSAValue, SymbolicShape], tile: int) -> "OpenRows":
        """Return the lengths of an image network."""
        numbers: dict[Size, int] = {}
        inner = body_shapes(op, shapes)
        held: list[SSAValue] = [*op.body.block.args]
        for each in op.body.block.ops:
            held += each.results
        values = {value: numbers.setdefault(inner[value][-1], len(numbers)) for value in held}
        windows = [each for each in op.body.block.ops if isinstance(each, WindowOp)]
        strides = {each: each.window.stride[1] for each in windows}
        copies: dict[Operation, int] = {
            each: numbers.setdefault(windows_of(inner[each.x][-1], stride - 1, stride), len(numbers))
            for each, stride in strides.items()
        }
        return OpenRows(tile, [*numbers], values, copies)

    def plane(self, number: int) -> Plane:
        """Return the plane of a length, of which it describes one tile."""
        return Plane(1, self.tile, self.tile, self.tile, length=number)


def least_lengths(op: ImageNetworkOp, shapes: Mapping[SSAValue, SymbolicShape]) -> list[LeastSize]:
    """Return the least lengths of rows, for windows as onnxruntime has them: a pooling of stride 1 may have none."""
    inner, found = body_shapes(op, shapes), dict[LeastSize, None]()
    for each in op.body.block.ops:
        if isinstance(each, WindowOp) and each.window.added_to_length < each.window.stride[1]:
            stride = each.window.stride[1]
            fewest = 1 if fewest_windows(each) else 0 if isinstance(each, Pool2dOp) and stride == 1 else stride
            found[LeastSize(inner[each.x][-1], fewest - each.window.added_to_length)] = None
    return [*found]
