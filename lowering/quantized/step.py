"""Quantized layers as a step of a program: rows of floats become bytes, layer by layer, and floats again.

Some rows go through all layers before the next ones do. Hidden neurons lie in the order of their panels, by which the
weights of the next layer are packed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from redpebble.dialect.ops.constants import SparseConstantOp, constant_array
from redpebble.dialect.ops.quantized_layers import QuantizedLayer, QuantizedLayersOp
from redpebble.dialect.semantics.quantized import rounds_sums
from redpebble.dialect.symbolic_sizes import Size, product
from redpebble.dialect.tensors import shape_of
from redpebble.kernels.byte_lookup import LookupForm, by_length, pack
from redpebble.lowering.llvm.builder import (
    FLOAT_BYTES,
    I64,
    POINTER,
    Code,
    byte_at,
    counted_loop,
    float_at,
    i64,
)
from redpebble.lowering.llvm.call_tables import ConstantTable, SizeTable
from redpebble.lowering.llvm.vectors import Lanes
from redpebble.lowering.program import TiledRows, TileTime
from redpebble.lowering.quantized.byte_lanes import lookup_form
from redpebble.lowering.quantized.lookup_layer import LayerEnd, Strided, lookup_layer
from redpebble.lowering.quantized.rounding import WORDS, CodeBounds, Rounding
from redpebble.sparse.csr import CscMatrix, Indices

MOST_ROWS: Final = 64
"""Rows that go through the layers together: what they read of a layer is read once for all of them."""

LINE: Final = 64

SHARED_ROWS: Final = 8
"""Rows that threads do not part."""

ROWS_US: Final = 10.0
"""Microseconds of so many rows: only for how threads share them."""


def quantized_rows(op: QuantizedLayersOp, sizes: SizeTable) -> Size:
    """Return the rows of the step."""
    return product(sizes.shapes[op.x][:-1])


def quantized_tiles() -> TiledRows:
    """Return how threads may cut those rows: what a row becomes does not depend on it."""
    return TiledRows((TileTime(SHARED_ROWS, 1, ROWS_US),), 1)


def quantized_scratch_bytes(op: QuantizedLayersOp) -> int:
    """Return the bytes of scratch memory that a thread needs."""
    return MOST_ROWS * sum(_stride(layer.inputs) for layer in op.layers)


def _stride(features: int) -> int:
    """Return the bytes from a row of codes to the next: whole vectors, read beyond by a window, in other cache sets."""
    return (features // LINE + 2) * LINE


@dataclass(frozen=True)
class QuantizedStep:
    """The code of a step."""

    code: Code
    builder: ir.IRBuilder
    op: QuantizedLayersOp
    constants: ConstantTable
    table: ir.Value
    """The table of the addresses of packed constants."""
    scratch: ir.Value

    def emit(self, x: ir.Value, y: ir.Value, begin: ir.Value, end: ir.Value) -> None:
        """Emit rows `begin` to `end`, some of them at a time."""
        builder = self.builder
        inputs, outputs = shape_of(self.op.x)[-1], shape_of(self.op.result)[-1]
        with counted_loop(builder, builder.sub(end, begin), MOST_ROWS) as done:
            row = builder.add(begin, done)
            left = builder.sub(end, row)
            count = builder.select(builder.icmp_signed("<", left, i64(MOST_ROWS)), left, i64(MOST_ROWS))
            source = Strided(float_at(builder, x, builder.mul(row, i64(inputs))), i64(FLOAT_BYTES * inputs))
            target = Strided(float_at(builder, y, builder.mul(row, i64(outputs))), i64(FLOAT_BYTES * outputs))
            self._emit_rows(source, target, count)

    def _emit_rows(self, x: Strided, y: Strided, count: ir.Value) -> None:
        builder, layers = self.builder, self.op.layers
        (bounds,) = self._pointers(-1)
        buffers = self._buffers()
        builder.call(quantizing(self.code, layers[0].inputs), [*x, *buffers[0], bounds, count])
        form = lookup_form(self.code.target)
        for index, (source, target) in enumerate(zip(buffers, [*buffers[1:], y], strict=True)):
            stride = _stride(layers[index].inputs)
            function = lookup_layer(self.code, form, layer_end(self.op, index), stride)
            builder.call(function, [source.address, *target, *self._pointers(index), count])

    def _buffers(self) -> list[Strided]:
        offset, buffers = 0, list[Strided]()
        for layer in self.op.layers:
            stride = _stride(layer.inputs)
            buffers.append(Strided(byte_at(self.builder, self.scratch, i64(offset)), i64(stride)))
            offset += MOST_ROWS * stride
        return buffers

    def _pointers(self, index: int) -> list[ir.Value]:
        key = (self.op, "layer", index)
        if not self.constants.has(key):
            form = lookup_form(self.code.target)
            self.constants.add(key, partial(_input_bounds) if index < 0 else partial(_packed, form, index), self.op)
        return self.constants.pointers(self.builder, self.table, key)


def layer_end(op: QuantizedLayersOp, index: int) -> LayerEnd:
    """Return what becomes of the sums of a layer."""
    layer, last = op.layers[index], index == len(op.layers) - 1
    outputs = layer.outputs
    if last and op.output is None:
        return LayerEnd("values", layer.activation, outputs)
    kind = "rounded" if last else "codes"
    return LayerEnd(kind, None if rounds_sums(layer) else layer.activation, outputs)


def quantizing(code: Code, features: int) -> ir.Function:
    """Return `void (x, x stride, y, y stride, bounds, rows)`, strides in bytes: rows of floats to rows of codes."""
    width = code.target.lanes if features >= code.target.lanes else 1

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        x, y, bounds, rows = Strided(*args[:2]), Strided(*args[2:4]), args[4], args[5]
        lanes = Lanes(builder, code.target, width)
        rounding = Rounding.read(lanes, bounds)
        with counted_loop(builder, rows) as row:
            source, target = x.row(builder, row).address, y.row(builder, row).address
            with counted_loop(builder, i64(features), width) as start:
                # the last vector lies over the one before, so that nothing behind the row is read
                last = i64(features - width)
                first = builder.select(builder.icmp_signed("<", start, last), start, last)
                values = lanes.load(float_at(builder, source, first))
                codes = rounding.code(rounding.quotient(values))
                builder.store(codes, byte_at(builder, target, first), align=1)

    return code.function(f"quantize_{features}", [POINTER, I64, POINTER, I64, POINTER, I64], body)


def _input_bounds(op: Operation | None) -> list[NDArray[np.generic]]:
    assert isinstance(op, QuantizedLayersOp)
    return [CodeBounds.of(op.codes.data[0]).words()]


def _packed(form: LookupForm, index: int, op: Operation | None) -> list[NDArray[np.generic]]:
    """Return the arrays of `Packed` for a layer of `op`."""
    assert isinstance(op, QuantizedLayersOp)
    layer, weight = op.layers[index], weight_of(op.layers[index])
    before = _order(op, index - 1) if index else np.arange(layer.inputs)
    order = _order(op, index)
    panels = pack(weight, form, order, np.argsort(before))
    codes = op.codes.data[index + 1] if index + 1 < len(op.codes) else None
    multiplier = _constant(layer.multiplier)
    if codes is not None and rounds_sums(layer):
        multiplier = multiplier / np.float32(codes.scale)
    positive = layer.activation is not None and layer.activation.kind.data == "relu"
    bounds = np.zeros(WORDS, np.int32) if codes is None else CodeBounds.of(codes, positive=positive).words()
    padding = (0, -len(order) % form.lanes)
    bias = _bias(layer, weight)[order]
    return [*panels, np.pad(bias, padding), np.pad(multiplier[order], padding), bounds]


def _order(op: QuantizedLayersOp, index: int) -> Indices:
    """Return the order in which the outputs of a layer lie: those of the last one as they are."""
    layers = op.layers
    return np.arange(layers[index].outputs) if index == len(layers) - 1 else by_length(weight_of(layers[index]))


def _bias(layer: QuantizedLayer, weight: CscMatrix) -> NDArray[np.int32]:
    """Return the bias [outputs] of sums of unsigned codes, for which the zero counts as any other code."""
    sums = np.bincount(weight.columns, weight.values, weight.shape[1]).astype(np.int64)
    # as in onnxruntime sums wrap around
    return (_constant(layer.bias).astype(np.int64) - layer.codes.unsigned_zero * sums).astype(np.int32)


def weight_of(layer: QuantizedLayer) -> CscMatrix:
    """Return the weight of a layer without its zeros."""
    owner = layer.weight.owner
    return owner.weight if isinstance(owner, SparseConstantOp) else CscMatrix.from_dense(_constant(layer.weight))


def _constant(value: SSAValue) -> NDArray[np.float32]:
    array = constant_array(value)
    assert array is not None
    return array
