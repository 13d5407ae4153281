"""Weights of quantized layers as bytes, less a zero where they need one."""

from math import gcd
from typing import NamedTuple

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from ...dialect.ops.constants import constant_matrix
from ...dialect.ops.images import Conv2dOp
from ...dialect.ops.quantized_layers import GREATEST_WEIGHT
from ...dialect.tensors import shape_of
from ...sparse.csr import CscMatrix
from ..writing.node_builder import NodeBuilder
from .images import spatial, window_attributes

Integers = NDArray[np.int64]
Bytes = NDArray[np.int8] | NDArray[np.uint8]


class Window(NamedTuple):
    """The attributes of a convolution, the shape of its weight, and the axes behind the channels."""

    attributes: dict[str, list[int] | int]
    weight_shape: tuple[int, ...]
    axes: int
    groups: int

    @staticmethod
    def of(op: Conv2dOp) -> "Window":
        """Return the window of a convolution, whose channels are in as many groups as its weight allows."""
        inputs, outputs = shape_of(op.weight)
        channels = inputs // len(op.window.taps)
        groups = _group_count(_entries(op.weight), channels)
        attributes = {**window_attributes(op), **({"group": groups} if groups > 1 else {})}
        shape = (outputs, channels // groups, *spatial(op, op.window.kernel_size))
        return Window(attributes, shape, len(shape_of(op.x)) - 2, groups)


class IntegerMatrix(NamedTuple):
    """A matrix [inputs, outputs] of integers, held in floats, and the least and greatest of each output, or 0."""

    value: ir.Value
    least: Integers
    greatest: Integers

    @staticmethod
    def of(weight: SSAValue, window: Window | None, builder: NodeBuilder) -> "IntegerMatrix":
        """Return the weight of a layer, or of a convolution: that of inputs of a group, where it has some."""
        sparse = _entries(weight)
        if window is None or window.groups == 1:
            value = builder.operand(weight)
        else:
            inputs = sparse.shape[0] // window.groups
            sparse = sparse._replace(shape=(inputs, sparse.shape[1]), rows=sparse.rows % inputs)
            value = builder.initializers.add_sparse(weight, "group", sparse)
        least, greatest = (np.zeros(sparse.shape[1], np.int64) for _ in range(2))
        values = sparse.values.astype(np.int64)
        np.minimum.at(least, sparse.columns, values)
        np.maximum.at(greatest, sparse.columns, values)
        return IntegerMatrix(value, least, greatest)

    @property
    def bounds(self) -> tuple[int, int]:
        """The least and the greatest of all."""
        return int(self.least.min(initial=0)), int(self.greatest.max(initial=0))

    @property
    def is_signed(self) -> bool:
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

    def codes(self, builder: NodeBuilder, window: Window | None, *, signed: bool) -> tuple[ir.Value, Bytes]:
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
        return value, zero.astype(np.int8) if signed else zero.astype(np.uint8)


def _entries(weight: SSAValue) -> CscMatrix:
    matrix = constant_matrix(weight)
    assert matrix is not None
    return matrix


def _group_count(weight: CscMatrix, channels: int) -> int:
    """Return the largest number of groups of channels, and of outputs, each of which reads its own channels alone."""
    inputs, outputs = weight.shape
    rows, columns = weight.rows, weight.columns
    most = gcd(channels, outputs)
    return next(
        groups
        for groups in range(most, 0, -1)
        if most % groups == 0 and np.array_equal(rows // (inputs // groups), columns // (outputs // groups))
    )
