"""Linear layers and graphs of neurons inside a tile: packed weights, kernels, shares of outputs for threads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from ...dialect.ops.constants import constant_array
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.tile import TileOp
from ...dialect.tensors import shape_of
from ...kernels.families import are_rows
from ...kernels.family import PackedArrays
from ..kernels.kernel_form import LinearForm, layer_weights
from ..kernels.table import (
    ChosenKernel,
    PackedFormat,
    any_rows_code_of,
    code_of,
    kernel_at,
    row_major_code_of,
)
from ..llvm.flow import call
from ..llvm.values import Bytes, Floats, Index, Number
from .depth_first_groups import groups_at
from .network_code import NetworkCode
from .thread_shares import Borders, Cut
from .tile_code import TileCode, TileEmitter
from .tile_memory import features_of


def emit_linear(op: LinearOp, tile: TileCode, _: Cut) -> None:
    """Emit a layer by itself, or the group of layers that it is the last one of."""
    parent = op.parent_op()
    assert isinstance(parent, TileOp)
    group = groups_at(parent, tile.width).get(op)
    if group is None:
        width = tile.width if tile.rows is None else tile.rows.width
        # what families of other widths pack is one share
        kernel = kernel_at(op.kernel, width)
        _LayerCode(op, tile, kernel).emit(op.borders if kernel.format in _shared_formats(op, parent) else ())
    elif op is group.last:
        with tile.only_for(0):
            _networks(tile).emit_group(group)


@dataclass(frozen=True)
class RowsOfLayer:
    """The rows of a layer in a tile of rows: most of them, their number, and the values between those of x and of y."""

    width: int
    count: Number
    x_apart: int
    y_apart: int
    direct: Mapping[SSAValue, Floats]
    """The addresses of the rows of results that leave the tile at once."""


def emit_linear_rows(op: LinearOp, tile: TileCode, rows: RowsOfLayer) -> None:
    """Emit a layer for all rows of a tile, of which `tile` is the first one."""
    parent = op.parent_op()
    assert isinstance(parent, TileOp)
    kernel = kernel_at(op.kernel, rows.width)
    _LayerCode(op, tile, kernel, rows).emit(op.borders if kernel.format in _shared_formats(op, parent) else ())


def _shared_formats(op: LinearOp, tile: TileOp) -> set[PackedFormat]:
    """Return the formats of a layer's kernels that threads share; in tiles of rows its kernel of one column may be."""
    widths = tile.schedule.shared
    kernels = [kernel_at(op.kernel, width) for width in widths]
    if are_rows(kernel.family.name for width in widths for kernel in _kernels_at(tile, width)):
        kernels.append(kernel_at(op.kernel, 1))
    return {kernel.format for kernel in kernels}


def _kernels_at(tile: TileOp, width: int) -> list[ChosenKernel]:
    layers = [inner for inner in tile.body.block.ops if isinstance(inner, LinearOp)]
    return [kernel_at(inner.kernel, width) for inner in layers if inner.kernel is not None]


def _networks(tile: TileCode) -> NetworkCode:
    outside = None if tile.rows is None else (tile.rows.direct, tile.rows.count)
    return NetworkCode(tile.code, tile.tables, tile.width, tile.feature_at, outside)


@dataclass(frozen=True)
class _LayerCode:
    """The code of one layer by one kernel."""

    op: LinearOp
    tile: TileCode
    kernel: ChosenKernel
    rows_of_layer: RowsOfLayer | None = None

    def emit(self, borders: Borders) -> None:
        """Emit the layer as a whole, or the shares between borders that the calling thread has."""
        tile, key = self.tile, (self.op.weight, self.op.bias, self.kernel.format, borders)
        constants, table = tile.tables
        pack = partial(_packed_layer, self._width, bool(borders))
        if not borders:
            packed = constants.pointers(table, key, pack, self.op)
            with tile.only_for(0):
                self._call(packed, 0, shape_of(self.op.weight)[1])
            return
        count, indices = len(borders) - 1, constants.indices(key, pack, self.op)
        if tile.team is not None and tile.team.share_count != count:
            raise ValueError(f"a pebble.linear is cut into {count} shares, its tile into {tile.team.share_count}")

        def share(number: Number, first: Number, outputs: Number) -> None:
            self._call(constants.share_pointers(table, indices, number, count), first, outputs)

        tile.each_share(borders, share)

    @property
    def _width(self) -> int:
        """The width of the tile for which the kernel is chosen."""
        if self.rows_of_layer is not None:
            return self.rows_of_layer.width
        return self.tile.width if self.tile.rows is None else self.tile.rows.width

    def _call_rows(self, packed: Sequence[Bytes], first: Index, count: Index, rows: RowsOfLayer) -> None:
        """Emit the call of a kernel whose tiles are rows."""
        op, tile, family = self.op, self.tile, self.kernel.family
        x, inputs, form = tile.pointer(op.x), shape_of(op.weight)[0], LinearForm(rows.width, op.activation)
        y = rows.direct[op.result] if op.result in rows.direct else tile.pointer(op.result)
        function = row_major_code_of(family).emit_apart(tile.code, form)
        call(function, x, y.at(first), *packed, inputs, count, rows.count, rows.x_apart, rows.y_apart)

    def _call(self, packed: Sequence[Bytes], first: Index, count: Index) -> None:
        """Emit the call of the kernel for `count` outputs from the first one on."""
        if self.rows_of_layer is not None:
            self._call_rows(packed, first, count, self.rows_of_layer)
            return
        op, tile, family = self.op, self.tile, self.kernel.family
        rows, form = tile.rows, LinearForm(tile.width, op.activation)
        x, inputs = tile.pointer(op.x), shape_of(op.weight)[0]
        if rows is None or not family.any_rows:
            function = code_of(family).emit(tile.code, form)
            call(function, x, tile.feature_at(op.result, first), *packed, inputs, count)
        elif op.result in rows.direct:
            y, apart = rows.direct[op.result].at(first), features_of(op.result)
            function = any_rows_code_of(family).emit_leaving(tile.code, form)
            call(function, x, y, *packed, inputs, count, rows.count, apart)
        else:
            y = tile.feature_at(op.result, first)
            function = any_rows_code_of(family).emit_rows(tile.code, form)
            call(function, x, y, *packed, inputs, count, rows.count)


def _packed_layer(width: int, is_cut: bool, op: Operation | None) -> list[NDArray[np.generic]]:
    """Return the arrays of a layer for tiles of some columns, whole or in the shares of threads."""
    assert isinstance(op, LinearOp)
    return _packed(op, kernel_at(op.kernel, width), op.borders if is_cut else ())


def _packed(op: LinearOp, kernel: ChosenKernel, borders: Borders) -> list[NDArray[np.generic]]:
    """Return the arrays of each share of a layer, one share after the other; those of an empty share are empty.

    Raises:
        ValueError: the bias is no constant.
    """
    outputs = shape_of(op.weight)[1]
    bias = constant_array(op.bias) if op.bias is not None else np.zeros(outputs, dtype=np.float32)
    if bias is None:
        raise ValueError("bias is no constant")
    weights, pack = layer_weights(op.weight, bias, kernel.blocks), kernel.family.pack
    if not borders:
        return list(pack(weights))
    packed: list[PackedArrays] = [
        pack(weights.share(first, end)) if first < end else () for first, end in pairwise(borders)
    ]
    count = max(map(len, packed))
    nothing = np.zeros(0, dtype=np.uint8)
    return [array for arrays in packed for array in (arrays or (nothing,) * count)]


LAYER_EMITTERS: Final[Mapping[type[Operation], TileEmitter]] = MappingProxyType(
    {
        LinearOp: emit_linear,
    }
)
"""Layers with weights."""
