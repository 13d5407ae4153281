"""Permute the neurons of every group that is free to be permuted.

```mlir
%h = pebble.linear %x, %w bias %b : (tensor<?x4xf32>, tensor<4x2xf32>, tensor<2xf32>) -> tensor<?x2xf32>
%y = pebble.linear %h, %v : (tensor<?x2xf32>, tensor<2x3xf32>) -> tensor<?x3xf32>
// -> the columns of %w, the entries of %b and the rows of %v in another order
```

The function stays what it is, up to the rounding of sums. With `seed` the orders are random: networks come with their
neurons in the order in which they were trained, and what an order gains is what it gains over a shuffled network.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from ...dialect.attributes.row_panels import PanelsAttr
from ...dialect.ops.constants import ConstantOp, SparseConstantOp
from ...dialect.tensors import shape_of
from ..analysis.permutation_groups import PermutationGroup, permutation_groups
from ..analysis.weights import Indices, Weight, constant_for, inputs_at, outputs_at
from ..rewriting.replacing import replace


@dataclass(frozen=True)
class PermuteNeurons(ModulePass):
    """Permute every free group at random."""

    name = "pebble-permute-neurons"
    seed: int = 0

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        rng = np.random.default_rng(self.seed)
        free = [group for group in permutation_groups(op) if not group.pinned]
        permute({group: rng.permutation(group.size) for group in free})


def permute(orders: Mapping[PermutationGroup, Indices]) -> None:
    """Permute the constants of each group: its neuron i becomes what neuron `order[i]` was, order [size]."""
    indices: dict[SSAValue, dict[int, Indices]] = {}
    for group, order in orders.items():
        for value, axis, start in group.runs:
            if isinstance(value.owner, ConstantOp | SparseConstantOp):
                whole = indices.setdefault(value, {}).setdefault(axis, np.arange(shape_of(value)[axis]))
                whole[start : start + group.size] = start + order
    for value, along in indices.items():
        assert isinstance(value.owner, Operation)
        _reorder(value.owner, along)


def _reorder(op: Operation, along: Mapping[int, Indices]) -> None:
    """Replace a constant by one whose axes are in the orders `along`."""
    match op:
        case SparseConstantOp():
            weight: Weight = op.weight
            rows, columns = along.get(0), along.get(1)
            weight = weight if columns is None else outputs_at(weight, columns)
            constant = constant_for(weight if rows is None else inputs_at(weight, rows))
            assert isinstance(constant, SparseConstantOp)
            constant.panels = op.panels if op.panels is None or columns is None else _permuted(op.panels, columns)
            replace(op, constant)
        case ConstantOp():
            array = op.array
            for axis, order in along.items():
                array = np.take(array, order, axis)
            replace(op, ConstantOp(array))
        case _:
            raise ValueError(f"{op.name} is no constant")


def _permuted(panels: PanelsAttr, order: Indices) -> PanelsAttr:
    """Return the panels of outputs of which the one at `order[i]` goes to i."""
    position = np.empty(len(order), dtype=np.int64)
    position[order] = np.arange(len(order))
    moved = [np.sort(position[panel]).tolist() for _, some in panels.panels for panel in some]
    return PanelsAttr.of(moved, panels.shared)
