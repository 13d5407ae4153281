"""The ONNX nodes that stand for one op of the IR, before they are named and put into the graph."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir
from xdsl.ir import SSAValue

from ...dialect.ops.constants import ConstantOp, SparseConstantOp
from ...frontend.operators.attributes import MICROSOFT
from ...sparse.csr import CscMatrix
from ..original import Array

Attribute = int | float | str | Sequence[int] | Sequence[float] | Sequence[str] | ir.TensorProtocol


class Constants(Protocol):
    """Source of the ONNX values of constants."""

    def plain(self, value: SSAValue) -> ir.Value:
        """Return the constant `value` in the shape that it has in the IR."""
        ...

    def matrix(self, value: SSAValue) -> tuple[ir.Value, bool]:
        """Return the constant weight `value`, and whether it lies as [outputs, inputs]."""
        ...

    def edges(self, value: SSAValue) -> tuple[ir.Value, ir.Value]:
        """Return weights [edges, 1] and gaps [edges] of the graph `value`, target by target."""
        ...

    def row(self, value: SSAValue) -> ir.Value:
        """Return the constant vector `value` [N], maybe as [1, N]."""
        ...

    def literal(self, array: Array) -> ir.Value:
        """Return a constant that an operator asks for."""
        ...

    def add_part(self, value: SSAValue, part: str, array: Array) -> ir.Value:
        """Return a new constant of the shape of `array`, called after `value` and what it holds of it."""
        ...

    def add_sparse(self, value: SSAValue, part: str, matrix: CscMatrix) -> ir.Value:
        """Return the same for a matrix [inputs, outputs] that may be mostly zeros."""
        ...


@dataclass(frozen=True)
class NodeBuilder:
    """The nodes of one op in the order in which they run; the emitters of `export/operators/table.py` add them."""

    opset: int
    initializers: Constants
    lookup: Callable[[SSAValue], ir.Value]
    nodes: list[ir.Node] = field(default_factory=list[ir.Node])

    def operand(self, value: SSAValue) -> ir.Value:
        """Return the ONNX value of an operand."""
        return self.lookup(value)

    def weight(self, value: SSAValue) -> tuple[ir.Value, bool]:
        """Return the ONNX value of a weight [inputs, outputs], and whether it lies transposed."""
        if isinstance(value.owner, ConstantOp | SparseConstantOp):
            return self.initializers.matrix(value)
        return self.lookup(value), False

    def bias(self, value: SSAValue) -> ir.Value:
        """Return the ONNX value of a bias [outputs], maybe with a leading axis of size 1."""
        return self.initializers.row(value) if isinstance(value.owner, ConstantOp) else self.lookup(value)

    def node(self, operator: str, *inputs: ir.Value | None, **attributes: Attribute) -> ir.Value:
        """Add a node with one output, and return the output."""
        return self.parts(operator, inputs, 1, **attributes)[0]

    def parts(
        self, operator: str, inputs: Sequence[ir.Value | None], count: int, **attributes: Attribute
    ) -> Sequence[ir.Value]:
        """Add a node with `count` outputs, and return them."""
        made = ir.Node("", operator, inputs, ir.convenience.convert_attributes(attributes), num_outputs=count)
        self.nodes.append(made)
        return made.outputs

    def of_microsoft(self, operator: str, *inputs: ir.Value | None, **attributes: Attribute) -> ir.Value:
        """Add a node of an operator of onnxruntime's with one output, and return the output."""
        converted = ir.convenience.convert_attributes(attributes)
        self.nodes.append(ir.Node(MICROSOFT, operator, inputs, converted, num_outputs=1))
        return self.nodes[-1].outputs[0]

    def scalar(self, number: float) -> ir.Value:
        """Return a constant of rank 0."""
        return self.initializers.literal(np.array(number, dtype=np.float32))

    def floats(self, numbers: Sequence[float]) -> ir.Value:
        """Return a constant vector of floats."""
        return self.initializers.literal(np.array(numbers, dtype=np.float32))

    def integer(self, number: int) -> ir.Value:
        """Return a constant int64 of rank 0."""
        return self.initializers.literal(np.array(number, dtype=np.int64))

    def integers(self, numbers: Sequence[int]) -> ir.Value:
        """Return a constant vector of int64, as axes and shapes are given."""
        return self.initializers.literal(np.array(numbers, dtype=np.int64))


Emitter = Callable[[Any, NodeBuilder], Sequence[ir.Value]]
"""Adds the nodes for an op to a builder and returns one ONNX value for each of the op's results."""
