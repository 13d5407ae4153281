"""Dead rows of a tile: rows of a batch that have become zeros, and the layers after which they are dropped.

A row of zeros stays one in a layer that makes zeros of the bias alone: its weights are finite, and its activation of
each bias is 0, or is rounded to the code of 0. Where all layers from some place on are such, a row that is zero there
is zero at the end.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Block
from xdsl.utils.exceptions import VerifyException

from ..attributes.activations import activate
from ..attributes.codes import codes_in
from ..record import Record
from .constants import SparseConstantOp, constant_array
from .layers import LinearOp
from .tile_chain import chain_of

EXACT_ZEROS = ("clip", "leaky_relu", "relu")
"""Activations whose zeros are the same in every implementation: they compare and multiply, and round nothing away."""


class DeadRowsAttr(Record, text="dropped after {layers}, tiles of {width}"):
    """Layers of a tile, counted from 0, behind which rows of zeros are dropped, and the columns of its tiles.

    ```mlir
    #pebble.dead_rows<dropped after [0, 1, 3], tiles of 96>
    ```

    The rows that are left, of as many tiles as it takes, fill a tile of their own, which goes on when it is full.
    """

    name = "pebble.dead_rows"

    layers: Sequence[int]
    width: int

    def verify(self) -> None:
        layers = list(self.layers)
        if not layers or layers != sorted(set(layers)) or layers[0] < 0:
            raise VerifyException(f"expected ascending numbers of layers after which rows are dropped, got {layers}")
        if self.width < 16 or self.width % 16:
            raise VerifyException(f"expected a multiple of 16 columns in a tile, got {self.width}")


def first_kept_zero(layers: Sequence[LinearOp]) -> int:
    """Return the first layer from which on all of a chain make zeros of zeros; their number if there is none."""
    first = len(layers)
    while first and keeps_zeros(layers[first - 1]):
        first -= 1
    return first


def keeps_zeros(layer: LinearOp) -> bool:
    """Return whether a layer certainly makes a row of zeros of one."""
    if layer.activation is not None and layer.activation.kind not in EXACT_ZEROS:
        return False
    if layer.times is not None:
        multiplier = constant_array(layer.times)
        return multiplier is not None and not np.any(
            layer.on_codes.results(layer.on_codes.added, multiplier, codes_in(layer.result.type))
        )
    values = _weights(layer)
    bias = np.zeros(1, dtype=np.float32) if layer.bias is None else constant_array(layer.bias)
    if values is None or bias is None or not np.isfinite(values).all():
        return False
    result = bias if layer.activation is None else activate(layer.activation, bias)
    return not np.any(result)


def _weights(layer: LinearOp) -> NDArray[np.float32] | None:
    constant = layer.weight.owner
    return constant.weight.values if isinstance(constant, SparseConstantOp) else constant_array(layer.weight)


def verify_dead_rows(body: Block, dropped: DeadRowsAttr) -> None:
    """Check that the rows that are dropped cannot come to anything.

    Raises:
        VerifyException: they could, or the attribute names layers that there are not.
    """
    layers = chain_of(body)
    if not layers:
        raise VerifyException("dead rows are dropped from chains of layers only")
    first, dropping = first_kept_zero(layers), dropped.layers
    if dropping[-1] >= len(layers) - 1:
        raise VerifyException(f"expected rows dropped before layer {len(layers) - 1}, got after layer {dropping[-1]}")
    if dropping[0] + 1 < first:
        raise VerifyException(
            f"rows dropped after layer {dropping[0]}, but layer {first - 1} makes more than zeros of them"
        )
