"""The sparse weights of a module and the groups of neurons between them, as the search for orders sees them."""

from typing import NamedTuple

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from ...dialect.ops.constants import SparseConstantOp, few_bits_of
from ...dialect.ops.layers import LinearOp, float_layers
from ...dialect.tensors import shape_of
from ...kernels.work import Layer
from ...theory.neuron_order.neuron_groups import Axis, GroupedWeight, NeuronGroups
from .layer_costs import layers_of
from .permutation_groups import PermutationGroup, permutation_groups
from .weights import Indices, weight_of


class NeuronView(NamedTuple):
    """Layers with sparse weights, what they cost as they are, and the groups that tie them.

    Group g of `groups` is `members[g]`; the last one of `groups` holds what belongs to none, and is pinned.
    """

    linears: tuple[LinearOp, ...]
    layers: tuple[Layer, ...]
    groups: NeuronGroups
    members: tuple[PermutationGroup, ...]


def neuron_view(module: ModuleOp) -> NeuronView:
    """Return the view of a module without tiles; a layer whose weight is no constant has no order to gain from.

    Nor has one on codes, as far as prices of kernels of floats tell: its neurons are moved with those of others. Those
    of a weight of few bits stay: groups of neighbouring inputs share scales.
    """
    every = [op for op in float_layers(module.walk()) if weight_of(op.weight) is not None]
    layers = layers_of([op.weight for op in every])
    sparse = [
        (op, layer) for op, layer in zip(every, layers, strict=True) if _is_sparse(op) and not _has_codes(op.weight)
    ]
    weights = dict.fromkeys(op.weight for op, _ in sparse)
    members = tuple(group for group in permutation_groups(module) if any(run.value in weights for run in group.runs))
    starts = np.append(0, np.cumsum([group.size for group in members])).astype(np.int64)
    axes = _axes(members, starts)
    count = int(starts[-1])
    grouped = tuple(_grouped(op.weight, axes, count) for op, _ in sparse)
    pinned = [group.pinned or any(_has_codes(run.value) for run in group.runs) for group in members]
    free = np.array([*(not one for one in pinned), False])
    # an axis of size 1 has no group: its neuron is the one behind all others
    groups = NeuronGroups(np.append(starts, count + 1), free, grouped)
    return NeuronView(tuple(op for op, _ in sparse), tuple(layer for _, layer in sparse), groups, members)


def _is_sparse(op: LinearOp) -> bool:
    return isinstance(op.weight.owner, SparseConstantOp)


def _has_codes(weight: SSAValue) -> bool:
    """Return whether kernels read codes that groups of inputs have scales for."""
    few_bits = few_bits_of(weight)
    return few_bits is not None and few_bits.may_round_inputs


Run = tuple[int, int, int]
"""A group on an axis: its start there, its first neuron, and its size."""


def _axes(members: tuple[PermutationGroup, ...], starts: Indices) -> dict[tuple[SSAValue, int], list[Run]]:
    axes: dict[tuple[SSAValue, int], list[Run]] = {}
    for group, first in zip(members, starts.tolist(), strict=False):
        for value, axis, start in group.runs:
            axes.setdefault((value, axis), []).append((start, first, group.size))
    return axes


def _grouped(value: SSAValue, axes: dict[tuple[SSAValue, int], list[Run]], count: int) -> GroupedWeight:
    owner = value.owner
    assert isinstance(owner, SparseConstantOp)
    weight = owner.weight
    inputs, outputs = (_axis(shape_of(value)[axis], axes.get((value, axis), []), count) for axis in (0, 1))
    return GroupedWeight(weight.pattern, inputs, outputs)


def _axis(size: int, runs: list[Run], count: int) -> Axis:
    neurons, starts = np.full(size, count, dtype=np.int64), np.zeros(size, dtype=np.int64)
    for start, first, length in runs:
        neurons[start : start + length] = first + np.arange(length)
        starts[start : start + length] = start
    return Axis(neurons, starts)
