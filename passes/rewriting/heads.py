"""Heads of an attention between linear layers: keys and values of one head, and all queries that read them.

Units of another kind: a head is some columns of the weights that make queries, keys and values, and some rows of those
that read the results.
"""

from dataclasses import dataclass
from typing import cast

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from ...dialect.ops.attention import AttentionOp
from ...dialect.ops.constants import ConstantOp, constant_array
from ...dialect.ops.layers import LinearOp
from ...dialect.tensors import f32_tensor, shape_of
from ..analysis.finiteness import is_partial
from ..analysis.weights import Indices, Mask, finite_inputs, finite_outputs, has_outgoing, inputs_at
from .parameters import place_constant
from .units import Layer, Units, constants_of_layer


@dataclass(frozen=True)
class AttentionHeads:
    """The heads of an attention, the layers that make queries, keys and values, and those that read the results."""

    op: AttentionOp
    makers: tuple[Layer, Layer, Layer]
    readers: tuple[Layer, ...]

    @property
    def count(self) -> int:
        """The number of heads that keys have."""
        return self.op.head_counts.keys

    def any_of(self, features: Mask) -> Mask:
        """Return for each head whether it holds for one of its features, [heads], of [features of all heads]."""
        return np.asarray(features.reshape(self.count, -1).any(axis=1))

    def finite(self) -> Mask:
        """Return for each head whether all constants that it touches are finite, [heads]."""
        finite = np.ones(self.count, dtype=np.bool_)
        for maker in self.makers:
            finite &= ~self.any_of(~finite_outputs(maker.weight) | ~np.isfinite(maker.bias))
        for reader in self.readers:
            finite &= ~self.any_of(~finite_inputs(reader.weight))
        return finite

    def take(self, which: Indices) -> None:
        """Let head i become head `which[i]`."""
        op, (queries, keys) = self.op, self.op.head_counts
        shared, value_size = queries // keys, op.value_size
        for maker in self.makers:
            Units(maker, (), constants_of_layer(maker), ()).take(self._features(which, maker.weight.shape[1]))
        for reader in self.readers:
            reader.set_weight(inputs_at(reader.weight, self._features(which, reader.weight.shape[0])))
        if op.mask is not None and shape_of(op.mask)[1] != 1:
            mask = constant_array(op.mask)
            assert mask is not None
            of_queries = self._features(which, queries)
            op.operands[3] = place_constant(ConstantOp(np.ascontiguousarray(mask[:, of_queries])), op, op.mask)
        op.properties["heads"] = IntegerAttr(shared * len(which), i64)
        op.properties["kv_heads"] = IntegerAttr(len(which), i64)
        shape = (*shape_of(op.result)[:-1], shared * len(which) * value_size)
        Rewriter.replace_value_with_new_type(op.result, f32_tensor(shape))

    def _features(self, which: Indices, count: int) -> Indices:
        """Return the features of some heads, of so many of all heads."""
        size = count // self.count
        return (which[:, None] * size + np.arange(size)).reshape(-1)


def heads_of(op: AttentionOp) -> AttentionHeads | None:
    """Return the heads of an attention, or None where something else relies on them or parameters are no constants."""
    makers, readers = [_maker(value) for value in (op.q, op.k, op.v)], readers_of(op)
    if None in makers or not readers:
        return None
    if len({cast("Layer", one).op for one in makers}) < len(makers):
        return None
    if op.mask is not None and shape_of(op.mask)[1] != 1 and constant_array(op.mask) is None:
        return None
    return AttentionHeads(op, cast("tuple[Layer, Layer, Layer]", tuple(makers)), tuple(readers))


def readers_of(op: AttentionOp) -> list[Layer]:
    """Return the layers that read the results; none where something else does, too, or parameters are no constants."""
    readers = [
        Layer(use.operation)
        for use in op.result.uses
        if isinstance(use.operation, LinearOp) and use.index == 0 and Layer(use.operation).is_known
    ]
    return readers if len(readers) == len([*op.result.uses]) else []


def unread_heads(op: AttentionOp) -> Mask:
    """Return for each head of the keys whether no connection of any layer reads its results, [heads]."""
    readers, count = readers_of(op), op.head_counts.keys
    if not readers:
        return np.zeros(count, dtype=np.bool_)
    read = np.logical_or.reduce([has_outgoing(reader.weight) for reader in readers])
    return np.asarray(~read.reshape(count, -1).any(axis=1))


def _maker(value: SSAValue) -> Layer | None:
    """Return the layer that makes a value for nobody else."""
    op = value.owner
    is_layer = isinstance(op, LinearOp) and value.has_one_use() and Layer(op).is_known and not is_partial(op.activation)
    return Layer(cast("LinearOp", op)) if is_layer else None
