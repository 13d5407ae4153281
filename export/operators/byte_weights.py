"""Weights of quantized layers as bytes, less a zero where they need one."""

from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.images import QuantizedConv2dOp
from redpebble.dialect.ops.quantized_layers import GREATEST_WEIGHT
from redpebble.dialect.tensors import shape_of
from redpebble.export.operators.images import spatial, window_attributes
from redpebble.export.writing.node_builder import NodeBuilder
from redpebble.sparse.csr import CscMatrix

Integers = NDArray[np.int64]


class Window(NamedTuple):
    """The attributes of a convolution, the shape of its weight, and the axes behind the channels."""

    attributes: dict[str, list[int]]
    weight_shape: tuple[int, ...]
    axes: int

    @staticmethod
    def of(op: QuantizedConv2dOp) -> "Window":
        """Return the window of a convolution."""
        inputs, outputs = shape_of(op.weight)
        shape = (outputs, inputs // len(op.window.taps), *spatial(op, op.window.kernel_size))
        return Window(window_attributes(op), shape, len(shape_of(op.x)) - 2)


class IntegerMatrix(NamedTuple):
    """A matrix [inputs, outputs] of integers, held in floats, and the least and greatest of each output, or 0."""

    value: ir.Value
    least: Integers
    greatest: Integers

    @staticmethod
    def of(weight: SSAValue, builder: NodeBuilder) -> "IntegerMatrix":
        """Return the weight of a layer."""
        owner = weight.owner
        assert isinstance(owner, ConstantOp | SparseConstantOp)
        sparse = CscMatrix.from_dense(owner.array) if isinstance(owner, ConstantOp) else owner.weight
        least, greatest = (np.zeros(sparse.shape[1], np.int64) for _ in range(2))
        values = sparse.values.astype(np.int64)
        np.minimum.at(least, sparse.columns, values)
        np.maximum.at(greatest, sparse.columns, values)
        return IntegerMatrix(builder.operand(weight), least, greatest)

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest of all."""
        return int(self.least.min(initial=0)), int(self.greatest.max(initial=0))

    @property
    def is_signed(self) -> bool:
        """Whether signed bytes hold all entries."""
        least, greatest = self.bounds
        return least >= -128 and greatest <= 127

    @property
    def has_one_zero(self) -> bool:
        """Whether bytes less one zero for all outputs are all entries."""
        least, greatest = self.bounds
        return greatest - least <= GREATEST_WEIGHT

    def halves(self, builder: NodeBuilder) -> "tuple[IntegerMatrix, IntegerMatrix]":
        """Return two matrices whose sum this is, each of which has one zero."""
        half = builder.node("Floor", builder.node("Mul", self.value, builder.scalar(0.5)))
        rest = builder.node("Sub", self.value, half)
        return (
            IntegerMatrix(half, np.array([-128]), np.array([127])),
            IntegerMatrix(rest, np.array([-127]), np.array([128])),
        )

    def codes(self, builder: NodeBuilder, window: Window | None, *, signed: bool) -> tuple[ir.Value, Integers]:
        """Return bytes, in the shape of a window's weight if there is one, and their zero: one, or one an output."""
        zero = np.zeros((), np.int64) if signed else np.array(-self.bounds[0]) if self.has_one_zero else -self.least
        kind = ir.DataType.INT8 if signed else ir.DataType.UINT8
        value = self.value
        if np.any(zero):
            value = builder.node("Sub", value, builder.initializers.literal((-zero).astype(np.float32)))
        value = builder.node("Cast", value, to=int(kind))
        if window is not None:
            turned = builder.node("Transpose", value, perm=(1, 0))
            value = builder.node("Reshape", turned, builder.integers(window.weight_shape))
        return value, zero
