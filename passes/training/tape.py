"""Ops that are written one behind the other, as a backward pass writes them: arithmetic on values and numbers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from xdsl.ir import Block, Operation, SSAValue

from ...dialect.attributes.activations import ActivationAttr
from ...dialect.ops.constants import ConstantOp
from ...dialect.ops.elementwise import ActivateOp, AddOp, DivOp, MulOp, SubOp
from ...dialect.ops.layers import ReduceMeanOp
from ...dialect.tensors import shape_of

STEEP: Final = float(np.finfo(np.float32).max)
"""Slope of a ramp from 0 to 1 that is a step for all but subnormal numbers."""


@dataclass(frozen=True)
class Tape:
    """A place in a block, before an op: what is written comes there, in order."""

    block: Block
    end: Operation

    def write(self, op: Operation) -> Sequence[SSAValue]:
        """Write an op; return its results."""
        self.block.insert_op_before(op, self.end)
        return op.results

    def number(self, value: float, like: SSAValue) -> SSAValue:
        """Return a number, once for each feature of a value."""
        return self.write(ConstantOp(np.full(shape_of(like)[-1:], value, np.float32)))[0]

    def add(self, left: SSAValue, right: SSAValue) -> SSAValue:
        """Return left + right."""
        return self.write(AddOp(left, right))[0]

    def sub(self, left: SSAValue, right: SSAValue) -> SSAValue:
        """Return left - right."""
        return self.write(SubOp(left, right))[0]

    def mul(self, left: SSAValue, right: SSAValue) -> SSAValue:
        """Return left * right."""
        return self.write(MulOp(left, right))[0]

    def div(self, left: SSAValue, right: SSAValue) -> SSAValue:
        """Return left / right."""
        return self.write(DivOp(left, right))[0]

    def times(self, x: SSAValue, factor: float) -> SSAValue:
        """Return x times a number."""
        return x if factor == 1 else self.mul(x, self.number(factor, x))

    def plus(self, x: SSAValue, term: float) -> SSAValue:
        """Return x and a number, added."""
        return x if term == 0 else self.add(x, self.number(term, x))

    def activate(self, kind: str, x: SSAValue, *parameters: float) -> SSAValue:
        """Return an activation of x."""
        return self.write(ActivateOp(x, ActivationAttr(kind, parameters)))[0]

    def square(self, x: SSAValue) -> SSAValue:
        """Return x * x."""
        return self.activate("square", x)

    def step(self, x: SSAValue) -> SSAValue:
        """Return 1 where x is positive, else 0."""
        return self.activate("hard_sigmoid", x, STEEP, 0.0)

    def mean(self, x: SSAValue) -> SSAValue:
        """Return the mean over the last axis, which stays with size 1."""
        return self.write(ReduceMeanOp(x))[0]
