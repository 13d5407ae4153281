"""Turn recurrences into a linear layer over all steps, and a loop over steps with a linear layer of the state.

```mlir
%y, %h = pebble.recurrence "rnn" "forward" %x, %w, %r bias %b activations [#pebble.activation<tanh>] : ...
// ->
%p = pebble.linear %x, %w_0 bias %b_0 : (tensor<?x?x4xf32>, ...) -> tensor<?x?x8xf32>
%s, %l = pebble.scan %p : tensor<?x?x8xf32> -> (tensor<?x?x8xf32>, tensor<?x8xf32>) {
^bb0(%step : tensor<?x8xf32>, %before : tensor<?x8xf32>):
  %r = pebble.linear %before, %r_0 : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %sum = pebble.add %step, %r : ...
  %after = pebble.activate <tanh> %sum : ...
  pebble.yield %after : tensor<?x8xf32>
}
%y = pebble.reshape %s to <[d0, 1, d1, 8]> : ...
%h = pebble.reshape %l to <[1, d0, 8]> : ...
```

What reads the inputs alone is done for all steps at once: weights are read once for a tile of many steps. Only what
waits for the step before is in the loop, whose weights stay in the cache if it holds them. Gates lie side by side, so
that one activation runs over all that share it. Directions are loops of their own, put side by side behind. The weights
are stored as `pebble-sparsify` stores those of other layers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.passes import ModulePass

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.ops.constants import ConstantOp, constant_array
from ...dialect.ops.elementwise import ActivateOp, AddOp, MulOp, SubOp
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.movement import ConcatOp, ReshapeOp, SplitOp, TargetShapeAttr, copied
from ...dialect.ops.recurrences import CELLS, DIRECTIONS, Cell, RecurrenceOp, ScanOp
from ...dialect.ops.regions import YieldOp
from ...dialect.provenance import origin_of, set_provenance, value_name
from ..rewriting.erase_unused import erase_unused
from ..rewriting.replacing import pass_on
from .sparsify import Sparsify

Array = NDArray[np.float32]
Op = TypeVar("Op", bound=Operation)


@dataclass(frozen=True)
class ExpandRecurrences(ModulePass):
    """Turn recurrences with constant weights into linear layers and loops over steps."""

    name = "pebble-expand-recurrences"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        found = [one for one in op.walk() if isinstance(one, RecurrenceOp) and all(map(_is_known, _parameters(one)))]
        for candidate in found:
            _expand(candidate)
        if found:
            erase_unused(op.body)
            Sparsify().apply(ctx, op)


def _parameters(op: RecurrenceOp) -> Sequence[SSAValue | None]:
    return op.weight, op.recurrent, op.bias, op.peepholes


def _is_known(value: SSAValue | None) -> bool:
    return value is None or constant_array(value) is not None


@dataclass(frozen=True)
class Parameters:
    """The constants of one direction: weights [inputs, outputs], and what is added to the products with them."""

    weight: Array
    recurrent: Array
    added: Array | None
    """Added to the products of the inputs, for all steps at once."""
    added_later: Array | None
    """Added to the products of the state."""
    peepholes: Array | None

    @staticmethod
    def of(op: RecurrenceOp, number: int) -> "Parameters":
        """Return those of a direction of a recurrence.

        Raises:
            ValueError: a weight is no constant.
        """
        found = [None if value is None else constant_array(value) for value in _parameters(op)]
        weight, recurrent, bias, peepholes = (None if array is None else array[number] for array in found)
        if weight is None or recurrent is None:
            raise ValueError("a weight is no constant")
        added = later = None
        if bias is not None:
            added, later = bias[: len(bias) // 2], bias[len(bias) // 2 :].copy()
            # the products of the state with the last gate of a GRU may be multiplied before they are added
            kept = 2 * op.hidden if op.cell.linear_before_reset else len(later)
            added = added + np.where(np.arange(len(later)) < kept, later, np.float32(0))
            later[:kept] = 0
        later = later if op.cell.linear_before_reset else None
        return Parameters(weight.T, recurrent.T, added, later, peepholes)


def _expand(op: RecurrenceOp) -> None:
    made = _Made(op)
    loops = [made.loop(number, reverse=reverse) for number, reverse in enumerate(DIRECTIONS[op.cell.direction])]
    every = [made.reshape(loop.sequence, [copied(0), 1, copied(1), op.hidden]) for loop in loops]
    results = [made.side_by_side(every, 1)]
    for index in range(CELLS[op.cell.kind].states):
        last = [made.reshape(loop.finals[index], [1, copied(0), op.hidden]) for loop in loops]
        results.append(made.side_by_side(last, 0))
    for old, new in zip(op.outputs, results, strict=True):
        assert isinstance(new.owner, Operation)
        set_provenance(new.owner, origin_of(op), [value_name(old)])
    block = op.parent
    assert block is not None
    block.insert_ops_before(made.ops, op)
    pass_on(op.outputs, results)
    block.erase_op(op)


@dataclass
class _Made:
    """The ops that take the place of a recurrence."""

    op: RecurrenceOp

    def __post_init__(self) -> None:
        self.ops: list[Operation] = []
        self._starts: list[Sequence[SSAValue]] = []
        directions = len(DIRECTIONS[self.op.cell.direction])
        for value in self.op.starts:
            parts = [value] if directions == 1 else self._add(SplitOp(value, 0, [1] * directions)).parts
            self._starts.append([self.reshape(part, [copied(1), self.op.hidden]) for part in parts])

    def _add(self, op: Op) -> Op:
        self.ops.append(op)
        return op

    def reshape(self, x: SSAValue, target: Sequence[int]) -> SSAValue:
        """Return `x` in another shape."""
        return self._add(ReshapeOp(x, TargetShapeAttr(target))).result

    def side_by_side(self, parts: Sequence[SSAValue], axis: int) -> SSAValue:
        """Return the results of all directions as one."""
        return parts[0] if len(parts) == 1 else self._add(ConcatOp(parts, axis)).result

    def constant(self, array: Array) -> SSAValue:
        """Return a constant in front of the loop."""
        return self._add(ConstantOp(np.ascontiguousarray(array))).result

    def loop(self, number: int, *, reverse: bool) -> ScanOp:
        """Return the loop of one direction, behind the layer of its inputs."""
        op, parameters = self.op, Parameters.of(self.op, number)
        bias = None if parameters.added is None else self.constant(parameters.added)
        products = self._add(LinearOp(op.x, self.constant(parameters.weight), bias))
        set_provenance(products, origin_of(op), [])
        facts = CELLS[op.cell.kind]
        body = ScanOp.body_for(products.result, [op.hidden] * facts.states)
        count = len(facts.activations)
        activations = op.activations.data[number * count : (number + 1) * count]
        step = _Step(op.cell, body.block, activations, parameters, self)
        body.block.add_op(YieldOp(step.states()))
        return self._add(
            ScanOp(products.result, [both[number] for both in self._starts], op.lengths, body, reverse=reverse)
        )


@dataclass(frozen=True)
class _Step:
    """The ops of one step of a cell."""

    cell: Cell
    block: Block
    activations: Sequence[ActivationAttr]
    parameters: Parameters
    outside: _Made

    def states(self) -> Sequence[SSAValue]:
        """Return the states after a step."""
        cells: dict[str, Callable[[], Sequence[SSAValue]]] = {"lstm": self._lstm, "gru": self._gru, "rnn": self._rnn}
        return cells[self.cell.kind]()

    def _rnn(self) -> Sequence[SSAValue]:
        x, h = self.block.args
        return [self._gate(0, self._sum(x, self._layer(h, self.parameters.recurrent)))]

    def _gru(self) -> Sequence[SSAValue]:
        x, h = self.block.args
        recurrent, hidden = self.parameters.recurrent, self.outside.op.hidden
        of_x, new_x = self._parts(x, 2 * hidden, hidden)
        if self.cell.linear_before_reset:
            of_h, new_h = self._parts(self._layer(h, recurrent), 2 * hidden, hidden)
            z, r = self._parts(self._gate(0, self._sum(of_x, of_h)), hidden, hidden)
            new_h = self._product(r, new_h)
        else:
            of_h = self._layer(h, recurrent[:, : 2 * hidden])
            z, r = self._parts(self._gate(0, self._sum(of_x, of_h)), hidden, hidden)
            new_h = self._layer(self._product(r, h), recurrent[:, 2 * hidden :])
        new = self._gate(1, self._sum(new_x, new_h))
        # (1 - z) new + z h
        return [self._sum(new, self._product(z, self._add(SubOp(h, new)).result))]

    def _lstm(self) -> Sequence[SSAValue]:
        x, h, c = self.block.args
        hidden, peepholes = self.outside.op.hidden, self.parameters.peepholes
        sums = self._sum(x, self._layer(h, self.parameters.recurrent))
        if peepholes is not None:
            return self._lstm_with_peepholes(self._parts(sums, *[hidden] * 4), c, np.split(peepholes, 3))
        of_gates, of_new = self._parts(sums, 3 * hidden, hidden)
        i, o, f = self._parts(self._gate(0, of_gates), *[hidden] * 3)
        c = self._sum(self._product(f, c), self._product(i, self._gate(1, of_new)))
        return [self._product(o, self._activated(2, c)), c]

    def _lstm_with_peepholes(
        self, sums: Sequence[SSAValue], before: SSAValue, peepholes: Sequence[Array]
    ) -> Sequence[SSAValue]:
        (i, o, f, new), (p_i, p_o, p_f) = sums, map(self.outside.constant, peepholes)
        i, f = (self._gate(0, self._sum(gate, self._product(before, p))) for gate, p in ((i, p_i), (f, p_f)))
        c = self._sum(self._product(f, before), self._product(i, self._gate(1, new)))
        o = self._gate(0, self._sum(o, self._product(c, p_o)))
        return [self._product(o, self._activated(2, c)), c]

    def _layer(self, h: SSAValue, weight: Array) -> SSAValue:
        later = self.parameters.added_later
        bias = None if later is None else self.outside.constant(later)
        layer = self._add(LinearOp(h, self.outside.constant(weight), bias))
        set_provenance(layer, origin_of(self.outside.op), [])
        return layer.result

    def _gate(self, number: int, x: SSAValue) -> SSAValue:
        """Return an activation of what a gate is made of, which may be bounded."""
        clip = self.cell.clip
        if clip:
            x = self._add(ActivateOp(x, ActivationAttr("clip", (-clip, clip)))).result
        return self._activated(number, x)

    def _activated(self, number: int, x: SSAValue) -> SSAValue:
        return self._add(ActivateOp(x, self.activations[number])).result

    def _sum(self, left: SSAValue, right: SSAValue) -> SSAValue:
        return self._add(AddOp(left, right)).result

    def _product(self, left: SSAValue, right: SSAValue) -> SSAValue:
        return self._add(MulOp(left, right)).result

    def _parts(self, x: SSAValue, *sizes: int) -> Sequence[SSAValue]:
        return self._add(SplitOp(x, 1, sizes)).parts

    def _add(self, op: Op) -> Op:
        self.block.add_op(op)
        return op
