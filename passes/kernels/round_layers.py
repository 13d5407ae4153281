"""Let sparse layers compute with bfloat16 where that is predicted to be faster, and say of the others why they do not.

```mlir
%y = pebble.sparse_network %x ... {
^bb0(%a : ...):
  %h = pebble.linear %a, %w kernel <count_blocks from 1, ...> : ...
// ->
%y = pebble.sparse_network %x ... {
^bb0(%a : ...):
  %h = pebble.linear %a, %v precision "bf16" kernel <count_blocks from 1, bfloat_pairs from 32, ...> : ...
```

Layers of sparse networks alone, convolutions as well: what computes by connections. Their weights are rounded here,
their inputs by the layers. What was found is written on the module, and reports show it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple, TypeGuard

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from ...dialect.ops.constants import SparseConstantOp
from ...dialect.ops.images import Conv2dOp
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.quantized_layers import BFLOAT
from ...dialect.ops.sparse_network import SparseNetworkOp
from ...dialect.provenance import node_name
from ...foundation.bfloat import rounded_to_bfloat
from ...kernels.formats import bfloat_tiles
from ...kernels.machine import Machine, MachineOptions
from ...kernels.measured.neighbours import Examples
from ...kernels.tile_widths import PIXELS, WIDTHS, time_of_rows
from ...kernels.work import Layer, Tile
from ...sparse.csr import CscMatrix
from ..analysis.block_choices import LayerTimes, with_blocks
from ..analysis.layer_costs import layers_of
from ..rewriting.erase_unused import erase_unused
from ..rewriting.replacing import take_names
from .choose_kernels import kernel_for

ROUNDED: Final = "pebble.rounded"
"""The attribute of a module that says which layers compute with bfloat16, and which do not."""

WORTH_ROUNDING: Final = 0.9
"""Time of a rounded layer over that of the layer as it was, below which it is rounded: bits are lost for good."""

WORTH_TILES: Final = 0.7
"""The same where tiles do it: near the size of a cache, and in convolutions, they take up to a third longer than is
predicted."""

NO_INSTRUCTIONS: Final = "this CPU has no instructions for it (avx512_bf16, or bf16 on ARM)"


class Sides(NamedTuple):
    """A layer among others as they are, and one that may be rounded among others that may."""

    plain: Layer
    rounded: Layer


@dataclass(frozen=True)
class RoundLayers(MachineOptions, ModulePass):
    """Round the layers of sparse networks that gain by it."""

    name = "pebble-round-layers"

    rows: int = 0
    """The rows that layers get at once, 0 for tiles of the widest kind."""
    obstacle: str = ""
    """The reason why no layer can be rounded; empty where there is none."""

    @staticmethod
    def on(machine: Machine, rows: int, obstacle: str = "") -> "RoundLayers":
        """Return the pass for a machine."""
        return RoundLayers(**RoundLayers.numbers(machine), rows=rows, obstacle=obstacle)

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if self.rows < 0:
            raise PassFailedException(f"{self.name}: expected rows of 0 or more, got {self.rows}")
        networks = [one for one in op.walk() if isinstance(one, SparseNetworkOp)]
        layers = [one for network in networks for one in network.walk() if _is_sparse(one)]
        obstacle = self.obstacle or ("" if self.bfloat else NO_INSTRUCTIONS)
        if obstacle:
            left = [obstacle]
        else:
            known = _layers_beside(layers, self.machine)
            left = [text for one in zip(layers, known, strict=True) if (text := self._left(*one))]
        count = 0 if obstacle else len(layers) - len(left)
        some = f"{count} of {len(layers)} sparse layers compute with bfloat16"
        op.attributes[ROUNDED] = StringAttr("; ".join([some, *left]))
        erase_unused(op.body)

    def _left(self, op: LinearOp | Conv2dOp, sides: Sides) -> str:
        """Round a layer that gains; return the reason why another one is left as it is."""
        assert isinstance(op.weight.owner, SparseConstantOp)
        layer, rounded = sides
        # no kernel that rounds was measured on the examples: they would correct the others alone
        machine, rows, unit = replace(self.machine, examples=Examples()), self.rows or WIDTHS[-1], "rows"
        if isinstance(op, Conv2dOp):
            rows, unit = PIXELS, "pixels"
        _, before = with_blocks(layer, {}, machine, {})
        rounded, after = with_blocks(rounded, {}, machine, {})
        where = f"{node_name(op) or op.name} ({layer.inputs} -> {layer.outputs})"
        share = _us(after, rows) / _us(before, rows)
        by_family = after.predicted[WIDTHS[-1]]
        is_by_tiles = min(by_family, key=lambda name: by_family[name]) == bfloat_tiles.FAMILY.name
        if share > (WORTH_TILES if is_by_tiles else WORTH_ROUNDING):
            if isinstance(op, Conv2dOp):
                # it was priced as if it were rounded
                op.kernel = kernel_for(op.weight.owner.weight, layer, before, machine)
            return f"{where} would take {share:.2f} of its time for {rows} {unit}"
        weight = _rounded(op.weight.owner.weight)
        if weight is None:
            return f"{where} has weights beyond the range of bfloat16"
        _store(op, weight)
        op.kernel = kernel_for(weight, rounded, after, machine)
        return ""


def _layers_beside(ops: Sequence[LinearOp | Conv2dOp], machine: Machine) -> list[Sides]:
    """Return layers, linear ones each among all of these: a tile of columns passes one after the other.

    Tiles of weights hold zeros, too, and may leave a cache that connections fit.
    """
    linear = [op for op in ops if isinstance(op, LinearOp)]
    layers, tile = layers_of([op.weight for op in linear]), Tile(WIDTHS[-1], machine.lanes, machine.l1_bytes)
    own = [bfloat_tiles.work(layer, tile).stream_bytes if machine.bfloat_tiles else 0.0 for layer in layers]
    among = {
        op: Sides(layer, replace(layer, rounded=True, other_bytes=max(layer.other_bytes, sum(own) - of_layer)))
        for op, layer, of_layer in zip(linear, layers, own, strict=True)
    }
    return [among[op] if isinstance(op, LinearOp) else _alone(op) for op in ops]


def _alone(op: Conv2dOp) -> Sides:
    (layer,) = layers_of([op.weight])
    return Sides(layer, replace(layer, rounded=True))


def _is_sparse(op: Operation) -> TypeGuard[LinearOp | Conv2dOp]:
    return isinstance(op, LinearOp | Conv2dOp) and op.times is None and isinstance(op.weight.owner, SparseConstantOp)


def _us(times: LayerTimes, rows: int) -> float:
    """Return the microseconds of some rows by the best kernels."""
    return time_of_rows({width: min(times.predicted[width].values()) for width in WIDTHS}, rows)


def _rounded(weight: CscMatrix) -> CscMatrix | None:
    values = rounded_to_bfloat(weight.values)
    if not np.array_equal(np.isfinite(values), np.isfinite(weight.values)):
        return None
    return CscMatrix(weight.shape, weight.pointers, weight.rows, values)


def _store(op: LinearOp | Conv2dOp, weight: CscMatrix) -> None:
    """Let a layer read a weight of the same pattern, and be rounded."""
    before = op.weight.owner
    assert isinstance(before, SparseConstantOp)
    assert before.parent is not None
    stored = SparseConstantOp(weight)
    stored.panels, stored.facts = before.panels, before.facts
    take_names(stored, before)
    before.parent.insert_op_after(stored, before)
    op.operands[1] = stored.result
    op.precision = StringAttr(BFLOAT)
