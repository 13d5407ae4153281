"""`sparse_rows`: compressed rows of outputs, each by itself."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..family import KernelFamily, LayerWeights
from ..layer_with_pattern import LayerWithPattern
from ..tile_widths import WIDTHS
from ..work import Layer, Tile, Work


class PackedRows(NamedTuple):
    """Output n has the connections from `pointers[n]` to `pointers[n + 1]`."""

    pointers: NDArray[np.int64]
    """[outputs + 1]."""
    inputs: NDArray[np.uint32]
    """[connections]."""
    weights: NDArray[np.float32]
    """[connections]."""
    bias: NDArray[np.float32]
    """[outputs]."""


def pack(weights: LayerWeights) -> PackedRows:
    """Return the rows as they stand."""
    matrix = weights.sparse
    return PackedRows(matrix.pointers, matrix.rows.astype(np.uint32), matrix.values, weights.bias)


def work(layer: Layer, tile: Tile) -> Work:
    """Return the work for a call, weights, their multiply-adds, rows, bytes of x again."""
    weights = float(layer.connections)
    again = 4 * weights * tile.width * tile.far_share(layer.inputs) * layer.x_share(tile)
    units = (1.0, weights * tile.passes, weights * tile.line, float(layer.outputs * tile.passes), again)
    return Work(units, 8 * weights + 12 * layer.outputs, tile.passes)


def far_features(layer: LayerWithPattern, capacity: float) -> float:
    """Return the rows of x that a cache for `capacity` rows does not deliver, and all rows of y."""
    return layer.missed_reads(capacity) + layer.outputs


FAMILY = KernelFamily("sparse_rows", pack, work, WIDTHS[1:], far_features=far_features)
