"""Tile widths of a layer, the kernel of each, and its times and bytes there: read from the IR."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Final

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from ...kernels.families import FAMILIES
from ...kernels.work import Layer, Tile
from ...sparse.csr import CONNECTION_BYTES
from ..ops.constants import SparseConstantOp, constant_array
from ..ops.images import Conv2dOp
from ..ops.layers import LinearOp
from ..ops.tile import TileOp
from ..ops.tile_chain import chain_of
from ..ops.tile_depth_first import LayerGroupAttr
from ..tensors import shape_of

ANY_TILE: Final = Tile(1, 8, 32 << 10)
"""Any tile: the bytes that a kernel reads of a weight do not depend on it."""

DEPTH_FIRST: Final = "depth_first"
"""Stands for the family at widths at which a layer runs with others."""


@dataclass(frozen=True)
class LayerNumbers:
    """Facts of a layer by the width of its tiles, ascending: families, microseconds, and bytes that move."""

    families: Mapping[int, str] = field(default_factory=dict[int, str])
    predicted: Mapping[int, float] = field(default_factory=dict[int, float])
    measured: Mapping[int, float] = field(default_factory=dict[int, float])
    moved: Mapping[int, float] = field(default_factory=dict[int, float])
    at_most: tuple[int, ...] = ()
    """Widths at which a layer's tiles are at most as many as rows would fill, and the numbers of a full one."""
    reason: str = ""
    """The reason why the layer does not run by itself, or not for all rows."""


def layer_numbers(module: ModuleOp) -> dict[LinearOp | Conv2dOp, LayerNumbers]:
    """Return what is known of each linear layer of a module, in the order of execution."""
    found = {op: _one_by_one(op) for op in module.walk() if isinstance(op, LinearOp | Conv2dOp)}
    for tile in (op for op in module.walk() if isinstance(op, TileOp)):
        found |= _in_tile(tile)
    return found


def connection_count(op: LinearOp | Conv2dOp) -> int:
    """Return the connections of a layer, all that there may be where its weight is no constant."""
    known = connections_of(op.weight)
    return prod(shape_of(op.weight)) if known is None else known


def connections_of(weight: SSAValue) -> int | None:
    """Return the entries of a constant that are stored sparse, or are not zero; None for no constant."""
    if isinstance(weight.owner, SparseConstantOp):
        return len(weight.owner.values)
    array = constant_array(weight)
    return None if array is None else int((array != 0).sum())


def _weight_bytes(op: LinearOp | Conv2dOp, family: str = "") -> float:
    """Return the bytes of a weight as a family's kernel reads it; codes of few bits are less than floats."""
    inputs, outputs = shape_of(op.weight)
    owner = op.weight.owner
    if not isinstance(owner, SparseConstantOp):
        return 4.0 * inputs * outputs
    if family in FAMILIES and FAMILIES[family].rounds == "groups":
        counts = np.diff(owner.weight.pointers)
        return FAMILIES[family].work(Layer(inputs, counts), ANY_TILE).stream_bytes
    return float(CONNECTION_BYTES * connection_count(op))


def _one_by_one(op: LinearOp | Conv2dOp, widths: tuple[int, ...] | None = None) -> LayerNumbers:
    """Return the numbers of a layer that runs by itself in tiles of some widths, or of all where there are no tiles."""
    if op.kernel is None:
        return LayerNumbers()
    predicted, measured = op.kernel.predicted, op.kernel.measured
    if widths is None:
        # pixels come in tiles of one width, which has a time
        widths = tuple(sorted(predicted if isinstance(op, Conv2dOp) else {*predicted, *op.kernel.choices}))
    used = widths
    families, features = {width: op.kernel.family_at(width) for width in used}, sum(shape_of(op.weight))
    weights = {family: _weight_bytes(op, family) for family in {*families.values()}}
    return LayerNumbers(
        families,
        {width: predicted[width] for width in used if width in predicted},
        {width: measured[width] for width in used if width in measured},
        {width: weights[family] + 4.0 * width * features for width, family in families.items()},
    )


def _in_tile(tile: TileOp) -> dict[LinearOp, LayerNumbers]:
    if tile.dead_rows is not None:
        return _on_live_rows(tile, tile.dead_rows.layers, tile.dead_rows.width)
    widths = tuple(tile.schedule.widths)
    found = {op: _one_by_one(op, widths) for op in tile.body.block.walk() if isinstance(op, LinearOp)}
    if tile.depth_first is None:
        return found
    layers, start = chain_of(tile.body.block), tile.depth_first.width
    depth_first = [width for width in widths if width >= start]
    for group in tile.depth_first.groups:
        members = [layers[number] for number in group.layers]
        connections = max(1, sum(map(connection_count, members)))
        for op in members:
            one_by_one = _one_by_one(op, tuple(width for width in widths if width < start))
            found[op] = _in_group(op, one_by_one, (group, depth_first), connections)
    return found


def _in_group(
    op: LinearOp, one_by_one: LayerNumbers, group: tuple[LayerGroupAttr, list[int]], connections: int
) -> LayerNumbers:
    """Return the numbers of a layer of a group that runs depth first at some widths, and has so many connections.

    Times and values of the group are parted by connections; weights are read once for a tile.
    """
    known, widths = group
    share = connection_count(op) / connections

    def part(times: Mapping[int, float], unit: float = 1.0) -> dict[int, float]:
        return {width: unit * share * times[width] for width in widths if width in times}

    where = f"layers {known.layers.start} to {known.layers[-1]} depth first"
    return LayerNumbers(
        {**one_by_one.families, **dict.fromkeys(widths, DEPTH_FIRST)},
        {**one_by_one.predicted, **part(known.predicted)},
        {**one_by_one.measured, **part(known.measured)},
        {**one_by_one.moved, **{width: _weight_bytes(op) + far for width, far in part(known.kilobytes, 1e3).items()}},
        reason=f"{where}: {known.reason}",
    )


def _on_live_rows(tile: TileOp, dropping: Sequence[int], width: int) -> dict[LinearOp, LayerNumbers]:
    """Return the numbers of layers; rows of zeros are dropped behind those numbered `dropping`, in tiles of `width`.

    Rows that fill no such tile, and those of batches that threads share, run in ordinary ones.
    """
    ordinary = [one for one in tile.schedule.widths if one < width or one in tile.schedule.shared]
    found: dict[LinearOp, LayerNumbers] = {}
    for number, op in enumerate(chain_of(tile.body.block)):
        numbers, stage = _one_by_one(op, tuple(sorted({*ordinary, width}))), sum(layer < number for layer in dropping)
        families = {one: f"{name} on live rows" if one == width else name for one, name in numbers.families.items()}
        all_live = f"; at {width} as if every row lived" if stage else ""
        found[op] = LayerNumbers(
            families,
            numbers.predicted,
            numbers.measured,
            numbers.moved,
            (width,) if stage else (),
            f"stage {stage + 1} of {len(dropping) + 1}, between which rows of zeros are dropped{all_live}",
        )
    return found
