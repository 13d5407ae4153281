"""Merge neurons of a layer, or channels of a convolution, that always hold the same.

```mlir
%h = pebble.linear %x, %w : (tensor<?x4xf32>, tensor<4x2xf32>) -> tensor<?x2xf32>
%y = pebble.linear %h, %v : (tensor<?x2xf32>, tensor<2x2xf32>) -> tensor<?x2xf32>
// -> both columns of %w are equal
%h = pebble.linear %x, %w_0 : (tensor<?x4xf32>, tensor<4x1xf32>) -> tensor<?x1xf32>
%y = pebble.linear %h, %v_0_plus_v_1 : (tensor<?x1xf32>, tensor<1x2xf32>) -> tensor<?x2xf32>
```

Two units are equal when their incoming connections, their biases and the constants behind them are, to the last bit.
Their outgoing connections are added, those of channels tap by tap. A merge may make units of the next layer equal, so
this is repeated until nothing changes. Units that touch NaN or inf are left alone, and so are those whose connections a
reader's weight cannot hold the sums of.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from ...sparse.csr import CscMatrix
from ...sparse.fingerprints import Pairs, equal_lists, first_equal, scrambled, sums_between
from ..analysis.weights import Floats, Indices, Mask, Weight, entries_of, with_inputs_added
from ..rewriting.erase_unused import erase_unused
from ..rewriting.units import Layer, Units, layers_with_units, units_of

VALUES_AT_ONCE: Final = 1 << 16
"""Values of a dense weight that are looked at together."""


class MergeEqualUnits(ModulePass):
    """Merge neurons and channels with equal incoming connections."""

    name = "pebble-merge-equal-units"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        layers = layers_with_units(op)
        # in block order a merge reaches the next layer before that is looked at
        while sum(merge_equal(layer) for layer in layers) > 0:
            pass
        erase_unused(op.body)


def merge_equal(layer: Layer) -> bool:
    """Merge the equal units of one layer; return whether there were any."""
    units = units_of(layer)
    if units is None:
        return False
    first = _first_equal(units)
    kept = np.flatnonzero(first == np.arange(len(first)))
    if len(kept) == len(first):
        return False
    position: Indices = np.searchsorted(kept, first)
    merged = [
        with_inputs_added(reader.weight, reader.rows(position), reader.taps * len(kept)) for reader in units.readers
    ]
    for reader, weight in zip(units.readers, merged, strict=True):
        if reader.excess(entries_of(weight)) > reader.excess(entries_of(reader.weight)):
            return False
    units.take(kept, merged)
    return True


def _first_equal(units: Units) -> Indices:
    """Return for each unit the first one that is equal to it, [units]."""
    weight, numbers = units.layer.weight, units.numbers
    prints = _fingerprints(weight, numbers)

    def equal(pairs: Pairs) -> Mask:
        (left, right), same = pairs, _equal_columns(weight, *pairs)
        for row in numbers:
            same &= row[left] == row[right]
        return same

    return first_equal(prints, np.flatnonzero(units.finite()), equal)


def _fingerprints(weight: Weight, constants: list[Floats]) -> NDArray[np.uint64]:
    """Return a number for each unit [units]: the bits of its values, weighted by their places, modulo 2^64."""
    inputs = weight.shape[0]
    factors = scrambled(inputs + len(constants))
    if isinstance(weight, CscMatrix):
        prints = sums_between(weight.pointers, _bits(weight.values) * factors[weight.rows])
    else:
        prints = np.zeros(weight.shape[1], dtype=np.uint64)
        some = max(1, VALUES_AT_ONCE // max(1, weight.shape[1]))
        for start in range(0, inputs, some):
            prints += factors[start : min(start + some, inputs)] @ _bits(weight[start : start + some])
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
