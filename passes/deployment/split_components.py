"""Compute layers in groups whose neurons are not connected with those of other groups, where that is faster.

```mlir
%h = pebble.linear %x, %w bias %b activation <relu> : (tensor<?x1024xf32>, tensor<1024x1024xf32>, ...) -> ...
%y = pebble.linear %h, %v bias %c : ...
// -> neither %w nor %v joins one of 16 sets of neurons with another one
%y = pebble.grouped_layers %x, %w_2, %b_2, %v_2, %c_2 activations [#pebble.activation<relu>, unit] orders [...]
    nodes ["fc1", "fc2"] because "16 parts of layers 1024-1024-1024 in 16 groups of 64-64-64, ..."
    : (tensor<?x1024xf32>, tensor<1024x64x1xf32>, tensor<1024xf32>, ...) -> tensor<?x1024xf32>
```

For runtimes that multiply by zeros. The neurons may stand in any order; parts of different sizes share groups, whose
empty places get weights of zero. Layers that read each other stay apart as long as their parts do, and are put into
another order in between where they do not. Chains end at values that something else reads, at activations that make NaN
or infinity of finite values, and where the number of rows cannot be restored from one unknown axis. What stands in for
the connections that are 0 is theirs: see `redpebble.passes.analysis.finiteness`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from typing import Final

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import InsertPoint, Rewriter
from xdsl.utils.exceptions import PassFailedException

from ...dialect.ops.constants import ConstantOp
from ...dialect.ops.grouped_layers import GroupedLayer, GroupedLayersOp
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.tile_chain import only_reader
from ...dialect.provenance import node_name, set_provenance, value_name
from ...dialect.tensors import DYNAMIC, shape_of
from ...kernels.grouped_cost import LayerSize, rows_around
from ...sparse.csr import CscMatrix
from ...theory.components.joint_parts import NOWHERE, LayerParts, layer_parts
from ...theory.components.split_plan import LEAST_GAIN, Chain, Run, Segment, in_place, runs_that_pay
from ..analysis.finiteness import is_partial, nonfinite_values
from ..analysis.weights import Doubles, Floats, Indices, Weight
from ..rewriting.erase_unused import erase_unused
from ..rewriting.parameters import bias_of, has_constant_parameters, place_constant, weight_of_linear
from ..rewriting.replacing import pass_on

# Weights and biases of layers in groups, and the orders between them.


def positions_of(members: Indices, count: int) -> Indices:
    """Return for each of `count` neurons its position among those of `members` [groups, width], or `NOWHERE`."""
    positions = np.full(count, NOWHERE)
    flat = members.ravel()
    filled = np.flatnonzero(flat != NOWHERE)
    positions[flat[filled]] = filled
    return positions


def grouped_weight(weight: Weight, inputs: Indices, outputs: Indices) -> Floats:
    """Return a weight [inputs, outputs] as [outputs of all groups, inputs of a group, 1]; empty positions get zeros.

    `inputs` and `outputs` are the neurons of each group; no connection may lead from one to another.
    """
    matrix = weight if isinstance(weight, CscMatrix) else CscMatrix.from_dense(weight)
    stays = matrix.values != 0
    rows = positions_of(inputs, matrix.shape[0])[matrix.rows[stays]]
    columns = positions_of(outputs, matrix.shape[1])[matrix.columns[stays]]
    width = inputs.shape[1]
    assert np.array_equal(rows // width, columns // outputs.shape[1])
    stored = np.zeros((outputs.size, width, 1), dtype=np.float32)
    stored[columns, rows % width, 0] = matrix.values[stays]
    return stored


def grouped_bias(bias: Doubles, outputs: Indices) -> Floats:
    """Return a bias [outputs of all groups]; empty positions get zeros."""
    flat = outputs.ravel()
    return np.where(flat == NOWHERE, 0.0, bias[np.maximum(flat, 0)]).astype(np.float32)


def orders_of(segments: Sequence[Segment], inputs: int, outputs: int) -> list[Indices | None]:
    """Return the order of the values before each segment, and behind the last; None where they stay.

    An empty position takes the first value of its group, or the first of all: whatever it holds, its weights are zeros.
    """
    orders: list[Indices | None] = []
    positions = np.arange(inputs)
    for segment in segments:
        members = segment.levels[0]
        filled = np.where(members == NOWHERE, np.maximum(members[:, :1], 0), members)
        stays = segment is segments[0] and in_place(members, inputs)
        orders.append(None if stays else positions[filled.ravel()])
        last = segment.levels[-1]
        positions = positions_of(last, int(last.max()) + 1)
    return [*orders, None if in_place(segments[-1].levels[-1], outputs) else positions]


MOST_WIDTHS: Final = 6
"""Widths of layers that a report lists."""


@dataclass(frozen=True)
class SplitComponents(ModulePass):
    """Compute layers in groups where that is predicted to be faster for any number of rows."""

    name = "pebble-split-components"

    least_gain: float = LEAST_GAIN
    """Predicted speedup from which on groups are taken."""

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if not 0.0 <= self.least_gain < float("inf"):
            raise PassFailedException(f"{self.name}: expected a least gain of 0 or more, got {self.least_gain}")
        nonfinite = nonfinite_values(op)
        for func in [found for found in op.ops if isinstance(found, FuncOp)]:
            layers = [layer for layer in func.body.ops if isinstance(layer, LinearOp)]
            weights = sum(prod(shape_of(layer.weight)) for layer in layers)
            for chain in _chains([layer for layer in layers if layer.x not in nonfinite and _can_be_split(layer)]):
                self._split(chain, weights)
        erase_unused(op.body)

    def _split(self, layers: Sequence[LinearOp], weights: int) -> None:
        parts = tuple(_parts(weight_of_linear(layer)) for layer in layers)
        if not any(parts):
            return
        sizes = tuple(LayerSize(*shape_of(layer.weight)) for layer in layers)
        rows = rows_around(_row_count(layers[0].x))
        other_weights = weights - sum(size.weights for size in sizes)
        for run in runs_that_pay(Chain(sizes, parts, rows, other_weights), self.least_gain):
            _replace(layers[run.segments[0].start : run.segments[-1].stop], run)


def _can_be_split(layer: LinearOp) -> bool:
    shape = shape_of(layer.x)
    if len(shape) < 2 or shape[:-1].count(DYNAMIC) > 1 or 0 in (*shape, shape_of(layer.result)[-1]):
        return False
    return has_constant_parameters(layer)


def _chains(layers: Sequence[LinearOp]) -> Iterator[list[LinearOp]]:
    """Yield the layers that nothing but the next one reads together with it."""
    waiting = dict.fromkeys(layers)
    while waiting:
        chain = [next(iter(waiting))]
        del waiting[chain[0]]
        while not is_partial(chain[-1].activation):
            following = only_reader(chain[-1].result)
            if not isinstance(following, LinearOp) or following not in waiting:
                break
            chain.append(following)
            del waiting[following]
        yield chain


def _parts(weight: Weight) -> LayerParts | None:
    matrix = weight if isinstance(weight, CscMatrix) else CscMatrix.from_dense(weight)
    if not matrix.values.all():
        matrix = CscMatrix.from_dense(matrix.to_dense())
    return layer_parts(matrix.pattern)


def _row_count(x: SSAValue) -> int | None:
    leading = shape_of(x)[:-1]
    return None if DYNAMIC in leading else prod(leading)


def _replace(layers: Sequence[LinearOp], run: Run) -> None:
    """Let an op for groups take the place of layers."""
    last = layers[-1]
    inputs, outputs = shape_of(layers[0].weight)[0], shape_of(last.weight)[1]
    *orders, last_order = orders_of(run.segments, inputs, outputs)
    grouped: list[GroupedLayer] = []
    for segment, order in zip(run.segments, orders, strict=True):
        for number, (inputs_of, outputs_of) in enumerate(pairwise(segment.levels)):
            grouped.append(_grouped(layers[len(grouped)], inputs_of, outputs_of, order if number == 0 else None))
    op = GroupedLayersOp(layers[0].x, grouped, last_order, _reason(layers, run))
    set_provenance(op, node_name(layers[0]), [value_name(last.result)])
    Rewriter.insert_op(op, InsertPoint.before(last))
    pass_on(last.results, op.results)
    for layer in reversed(layers):
        Rewriter.erase_op(layer)


def _grouped(layer: LinearOp, inputs: Indices, outputs: Indices, order: Indices | None) -> GroupedLayer:
    """Return a layer in groups of some inputs and outputs [groups, members], its constants before it."""
    weight: Floats = grouped_weight(weight_of_linear(layer), inputs, outputs)
    bias = grouped_bias(bias_of(layer), outputs)
    constants = [
        place_constant(ConstantOp(array), layer, replaced)
        for array, replaced in ((weight, layer.weight), (bias, layer.bias))
    ]
    return GroupedLayer(node_name(layer), constants[0], constants[1], layer.activation, order)


def _reason(layers: Sequence[LinearOp], run: Run) -> str:
    """Return how the layers are split, and what that is predicted to gain."""
    parts = [
        f"{segment.groups} groups of {_widths([level.shape[1] for level in segment.levels])}"
        for segment in run.segments
    ]
    sizes = _widths([shape_of(layers[0].x)[-1], *(shape_of(layer.result)[-1] for layer in layers)])
    gains = ", ".join(f"{gain:.2g}x at {rows}" for rows, gain in run.gains.items())
    return f"{sizes} as {', then '.join(parts)}; predicted {gains} rows"


def _widths(widths: Sequence[int]) -> str:
    """Return the neurons of each level, those in the middle left out where there are many."""
    texts = [str(width) for width in widths]
    return "-".join(texts if len(texts) <= MOST_WIDTHS else [*texts[:2], "...", texts[-1]])
