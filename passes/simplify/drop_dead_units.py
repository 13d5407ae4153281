"""Drop neurons and channels that no connection leaves or enters.

```mlir
%h = pebble.linear %x, %w bias %b activation <relu> : (tensor<?x4xf32>, tensor<4x3xf32>, ...) -> tensor<?x3xf32>
%y = pebble.linear %h, %v bias %c : (tensor<?x3xf32>, tensor<3x2xf32>, ...) -> tensor<?x2xf32>
// -> row 0 of %v and column 1 of %w are zero
%h = pebble.linear %x, %w_2 bias %b_2 activation <relu> : (tensor<?x4xf32>, tensor<4x1xf32>, ...) -> tensor<?x1xf32>
%y = pebble.linear %h, %v_2 bias %c_plus_constant : (tensor<?x1xf32>, tensor<1x2xf32>, ...) -> tensor<?x2xf32>
```

A unit, a neuron here, without outgoing connections in any layer that reads it is dropped. One without incoming ones is
the constant activation(bias): it is added to the biases of its readers, then dropped. A constant channel is left where
a reader has pads, whose zeros would differ from it, or where a window stands between, unless it is zero. Dropping may
leave other units dead, so this is repeated until nothing changes. At least one unit stays in a layer. A unit that
touches NaN or inf stays, and so do the model's inputs.

Heads of attentions are units as well, keys and values with all queries that read them. One is dropped where no
connection of any layer reads its results, or where its values are zeros; at least one stays. One layer that makes
queries, keys and values is taken apart where a head is unread: see `rewriting/joint_layers.py`. A layer that finds the
step of its codes at each call reads the range of all units: there those alone go that hold zeros.
"""

from collections.abc import Set
from itertools import cycle

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from ...dialect.ops.attention import AttentionOp
from ..analysis.weights import has_incoming, has_outgoing
from ..rewriting.erase_unused import erase_unused
from ..rewriting.heads import heads_of, unread_heads
from ..rewriting.joint_layers import read_directly, take_apart
from ..rewriting.units import Layer, layers_with_units, units_of


class DropDeadUnits(ModulePass):
    """Drop neurons and channels without outgoing or incoming connections."""

    name = "pebble-drop-dead-units"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        attentions = [one for one in op.walk() if isinstance(one, AttentionOp)]
        for attention in attentions:
            read_directly(attention)
            if unread_heads(attention).any():
                take_apart(attention)
        layers = layers_with_units(op)
        known = {layer.op for layer in layers}
        for attention in attentions:
            drop_dead_heads(attention, known)
        # units without readers die from the last layer to the first, constants the other way round: each sweep in its
        # direction finishes a chain of layers; one that drops nothing is the last
        sweeps = cycle((layers[::-1], layers))
        while sum(drop_dead(layer) for layer in next(sweeps)) > 0:
            pass
        erase_unused(op.body)


def drop_dead_heads(attention: AttentionOp, known: Set[Operation]) -> None:
    """Drop the dead heads of an attention whose layers are among those that read finite values."""
    heads = heads_of(attention)
    if heads is None or not all(layer.op in known for layer in (*heads.makers, *heads.readers)):
        return
    dead = np.zeros(heads.count, dtype=np.bool_)
    if not any(reader.op.finds_codes for reader in heads.readers):
        dead |= unread_heads(attention)
    values = heads.makers[-1]
    if values.op.activation is None:
        dead |= ~heads.any_of(has_incoming(values.weight) | (values.bias != 0))
    dead &= heads.finite()
    if dead.all():
        dead[0] = False
    if dead.any():
        heads.take(np.flatnonzero(~dead))


def drop_dead(layer: Layer) -> bool:
    """Drop the dead units of one layer; return whether there were any."""
    units = units_of(layer)
    if units is None:
        return False
    read = [reader.by_unit(has_outgoing(reader.weight)).any(axis=1) for reader in units.readers]
    unread = ~np.logical_or.reduce(read)
    constant = ~has_incoming(layer.weight) & ~unread
    if not (unread | constant).any():
        return False
    values, finite = units.values_without_input(), units.finite()
    constant &= np.isfinite(values).all(axis=0)
    if any(reader.op.finds_codes for reader in units.readers):
        # the range of all units that such a layer reads is the step of its codes; zeros are always inside
        zero = np.equal(values, 0).all(axis=0) & ~has_incoming(layer.weight)
        unread, constant = unread & zero, constant & zero
    # constants stay where a reader's bias cannot take them all
    for dead in (unread | constant, unread):
        dropped = dead & finite
        if dropped.all() and len(dropped):
            dropped[0] = False
        added = [np.where(constant & dropped, value, 0.0) for value in values]
        biases = [reader.with_values(value) for reader, value in zip(units.readers, added, strict=True)]
        if dropped.any() and all(reader.holds_bias(bias) for reader, bias in zip(units.readers, biases, strict=True)):
            units.take(np.flatnonzero(~dropped))
            for reader, bias in zip(units.readers, biases, strict=True):
                if not np.array_equal(bias, reader.bias):
                    reader.set_bias(bias)
            return True
    return False
