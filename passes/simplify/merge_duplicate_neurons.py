"""Merge neurons of a layer that always hold the same value.

```mlir
%h = pebble.linear %x, %w : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
%y = pebble.linear %h, %v : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
// -> both columns of %w are equal
%h = pebble.linear %x, %w_0 : (tensor<?x4xf32>, tensor<4x1xf32>) -> tensor<?x1xf32>
%y = pebble.linear %h, %v_0_plus_v_1 : (tensor<?x1xf32>, tensor<1x2xf32>) -> tensor<?x2xf32>
```

Two neurons are equal when their incoming connections, their biases and the constants behind them are, to the last bit.
Their outgoing connections are added. A merge may make neurons of the next layer equal, so this is repeated until
nothing changes. Neurons that touch NaN or inf are left alone.
"""

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from ...dialect.ops.layers import LinearOp
from ...sparse.csr import CscMatrix
from ...sparse.fingerprints import Pairs, equal_lists, first_equal, scrambled, sums_between
from ..analysis.weights import Floats, Indices, Mask, Weight, entries_of, with_inputs_added
from ..rewriting.erase_unused import erase_unused
from ..rewriting.neuron_edits import (
    Neurons,
    finite_neurons,
    keep_neurons,
    layers_with_neurons,
    neurons_of,
)
from ..rewriting.parameters import bias_of, set_weight, weight_of_linear


class MergeDuplicateNeurons(ModulePass):
    """Merge neurons with equal incoming connections."""

    name = "pebble-merge-duplicate-neurons"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        layers = layers_with_neurons(op)
        # in block order a merge reaches the next layer before that is looked at
        while sum(_merge(layer) for layer in layers) > 0:
            pass
        erase_unused(op.body)


def _merge(layer: LinearOp) -> bool:
    """Merge the equal neurons of one layer; return whether there were any."""
    neurons = neurons_of(layer)
    if neurons is None:
        return False
    first = _first_equal(neurons)
    kept = np.flatnonzero(first == np.arange(len(first)))
    if len(kept) == len(first):
        return False
    position = np.searchsorted(kept, first)
    merged = [with_inputs_added(weight_of_linear(reader), position, len(kept)) for reader in neurons.readers]
    overflows = (
        _nonfinite_count(after) > _nonfinite_count(weight_of_linear(reader))
        for reader, after in zip(neurons.readers, merged, strict=True)
    )
    if any(overflows):
        return False
    keep_neurons(neurons, kept)
    for reader, weight in zip(neurons.readers, merged, strict=True):
        set_weight(reader, weight)
    return True


def _nonfinite_count(weight: Weight) -> int:
    return int(np.count_nonzero(~np.isfinite(entries_of(weight))))


def _first_equal(neurons: Neurons) -> Indices:
    """Return for each neuron the first one that is equal to it, [neurons]."""
    weight, constants = weight_of_linear(neurons.layer), _constants(neurons)
    return first_equal_outputs(weight, constants, np.flatnonzero(finite_neurons(neurons)))


def first_equal_outputs(weight: Weight, constants: list[Floats], candidates: Indices) -> Indices:
    """Return for each output of a layer the first one that is equal to it, [outputs].

    Only `candidates` are compared; `constants` [outputs] each belong to the outputs, too.
    """
    prints = _fingerprints(weight, constants)

    def equal(pairs: Pairs) -> Mask:
        (left, right), same = pairs, _equal_columns(weight, *pairs)
        for row in constants:
            same &= row[left] == row[right]
        return same

    return first_equal(prints, candidates, equal)


def _constants(neurons: Neurons) -> list[Floats]:
    """Return the bias and the constants behind the layer, one entry a neuron."""
    rows = [bias_of(neurons.layer).astype(np.float32)]
    return rows + [step.entries for step in neurons.steps if step.entries is not None and len(step.entries) > 1]


def _fingerprints(weight: Weight, constants: list[Floats]) -> NDArray[np.uint64]:
    """Return a number for each neuron [neurons]: the bits of its values, weighted by their places, modulo 2^64."""
    inputs = weight.shape[0]
    factors = scrambled(inputs + len(constants))
    if isinstance(weight, CscMatrix):
        prints = sums_between(weight.pointers, _bits(weight.values) * factors[weight.rows])
    else:
        prints = np.zeros(weight.shape[1], dtype=np.uint64)
        for row, factor in zip(weight, factors[:inputs], strict=True):
            prints += _bits(row) * factor
    for row, factor in zip(constants, factors[inputs:], strict=True):
        prints += _bits(row) * factor
    return prints


def _bits(values: Floats) -> NDArray[np.uint64]:
    # adding 0.0 turns -0.0 into 0.0, which is no connection either
    return (values + np.float32(0.0)).view(np.uint32).astype(np.uint64)


def _equal_columns(weight: Weight, left: Indices, right: Indices) -> Mask:
    """Return for each pair of columns whether they are equal."""
    if isinstance(weight, CscMatrix):
        return equal_lists(weight.pointers, [weight.rows, weight.values], (left, right))
    return np.array((weight[:, left] == weight[:, right]).all(axis=0))
