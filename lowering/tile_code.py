"""The code of a tile: rows in, the layers one after the other on feature-major buffers, rows out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from redpebble.dialect.constants import ConstantOp, constant_array
from redpebble.dialect.elementwise import ActivateOp, BinaryOp
from redpebble.dialect.layers import LayerNormOp, LinearOp, LogSoftmaxOp, ReduceMeanOp, RmsNormOp, SoftmaxOp
from redpebble.dialect.movement import ConcatOp, SplitOp
from redpebble.dialect.network import NetworkOp
from redpebble.dialect.tensors import shape_of
from redpebble.dialect.tile import TileOp, YieldOp
from redpebble.lowering.connection_stream import pack_stream, working_rows
from redpebble.lowering.elementwise import BinaryForm, Operand, activate, binary
from redpebble.lowering.emission import FLOAT_BYTES, POINTER, Code, byte_at, float_at, i64
from redpebble.lowering.kernels import FAMILIES
from redpebble.lowering.linear import OUTPUT_PADDING, LinearForm
from redpebble.lowering.network_kernel import NetworkForm, network_loop
from redpebble.lowering.planning import Lifetime, Plan, plan_offsets
from redpebble.lowering.reductions import layer_norm, log_softmax, reduce_mean, rms_norm, softmax
from redpebble.lowering.tables import VECTOR_ROOM, ConstantTable
from redpebble.lowering.transposition import columns_to_rows, rows_to_columns


def features_of(value: SSAValue) -> int:
    """Return the number of features of a value in a tile."""
    return shape_of(value)[-1]


def plan_scratch(op: TileOp, width: int) -> tuple[dict[SSAValue, int], int]:
    """Return the offset in bytes of every value of the tile's body for tiles of `width` columns, and their total."""
    ops = list(op.body.block.ops)
    lifetimes: dict[SSAValue, Lifetime] = {}
    for argument in op.body.block.args:
        lifetimes[argument] = Lifetime(_buffer_bytes(argument, width), 0, 0)
    for step, inner in enumerate(ops):
        for operand in inner.operands:
            if operand in lifetimes:
                lifetimes[operand] = lifetimes[operand]._replace(last=step)
        for result in inner.results:
            lifetimes[result] = Lifetime(_buffer_bytes(result, width), step, step)
    plan: Plan = plan_offsets(list(lifetimes.values()))
    return dict(zip(lifetimes, plan.offsets, strict=True)), plan.total


def _buffer_bytes(value: SSAValue, width: int) -> int:
    owner = value.owner
    # what a network works on lies behind its first result
    extra = working_rows(owner).total if isinstance(owner, NetworkOp) and value is owner.outputs[0] else 0
    return (features_of(value) + OUTPUT_PADDING + extra) * width * FLOAT_BYTES + VECTOR_ROOM * FLOAT_BYTES


@dataclass(frozen=True)
class TileCode:
    """The code of one tile for one width, under construction."""

    code: Code
    builder: ir.IRBuilder
    constants: ConstantTable
    constant_table: ir.Value
    width: int
    places: dict[SSAValue, ir.Value]
    """The feature-major buffer of every value of the body."""

    def load_rows(self, target: SSAValue, rows: ir.Value, count: ir.Value) -> None:
        """Emit the way in: `count` rows from `rows` on become the columns of `target`."""
        features = i64(features_of(target))
        function = rows_to_columns(self.code, self.width)
        self.builder.call(function, [rows, self.places[target], features, count, i64(self.width)])

    def store_rows(self, source: SSAValue, rows: ir.Value, count: ir.Value) -> None:
        """Emit the way out: the columns of `source` become `count` rows from `rows` on."""
        features = i64(features_of(source))
        function = columns_to_rows(self.code, self.width)
        self.builder.call(function, [self.places[source], rows, features, count, i64(self.width)])

    def emit(self, op: Operation) -> None:
        """Emit one op of the body.

        Raises:
            ValueError: the op has no feature-major code.
        """
        match op:
            case LinearOp():
                self._emit_linear(op)
            case ActivateOp():
                self._call(activate(self.code, op.activation, self.width), [op.x, op.result], features_of(op.x))
            case BinaryOp():
                self._emit_binary(op)
            case SoftmaxOp():
                self._call(softmax(self.code, self.width), [op.x, op.result], features_of(op.x))
            case LogSoftmaxOp():
                self._call(log_softmax(self.code, self.width), [op.x, op.result], features_of(op.x))
            case ReduceMeanOp():
                self._call(reduce_mean(self.code, self.width), [op.x, op.result], features_of(op.x))
            case LayerNormOp():
                self._emit_layer_norm(op)
            case RmsNormOp():
                function = rms_norm(self.code, self.width, op.epsilon.value.data)
                self._call(function, [op.x, op.scale, op.result], features_of(op.x))
            case ConcatOp():
                self._emit_pieces(list(op.parts), op.result, gather=True)
            case SplitOp():
                self._emit_pieces(list(op.parts), op.x, gather=False)
            case NetworkOp():
                self._emit_network(op)
            case YieldOp():
                pass
            case _:
                raise ValueError(f"{op.name} has no code inside a pebble.tile")

    def _call(self, function: ir.Function, values: Sequence[SSAValue], features: int) -> None:
        self.builder.call(function, [*(self._pointer(value) for value in values), i64(features)])

    def _pointer(self, value: SSAValue) -> ir.Value:
        """Return the buffer of a value of the body, or the packed values of a constant."""
        if value in self.places:
            return self.places[value]
        array = constant_array(value)
        if array is None:
            raise ValueError("a tile uses a value from outside that is no constant")
        return self._constant((value, "values"), array)

    def _constant(self, key: tuple[object, ...], values: NDArray[np.float32]) -> ir.Value:
        if not self.constants.has(key):
            self.constants.add_values(key, values)
        return self.constants.pointers(self.builder, self.constant_table, key)[0]

    def _emit_linear(self, op: LinearOp) -> None:
        name = op.kernel.family_at(self.width) if op.kernel is not None else ""
        if name not in FAMILIES:
            known = ", ".join(sorted(FAMILIES))
            raise ValueError(f"pebble.linear has no kernel of ours chosen, accepted are {known}")
        family = FAMILIES[name]
        inputs, outputs = shape_of(op.weight)
        key = (op.weight, op.bias, name)
        if not self.constants.has(key):
            bias = constant_array(op.bias) if op.bias is not None else np.zeros(outputs, dtype=np.float32)
            if bias is None:
                raise ValueError("bias is no constant")
            self.constants.add(key, family.pack(op.weight, bias))
        packed = self.constants.pointers(self.builder, self.constant_table, key)
        kernel = family.emit(self.code, LinearForm(self.width, op.activation))
        arguments = [self.places[op.x], self.places[op.result], *packed, i64(inputs), i64(outputs)]
        self.builder.call(kernel, arguments)

    def _emit_binary(self, op: BinaryOp) -> None:
        features = features_of(op.result)
        form = BinaryForm(op.name, _operand(op.left, features), _operand(op.right, features), self.width)
        self._call(binary(self.code, form), [op.left, op.right, op.result], features)

    def _emit_layer_norm(self, op: LayerNormOp) -> None:
        features = features_of(op.x)
        if op.bias is not None:
            bias = self._pointer(op.bias)
        else:
            bias = self._constant(("zeros", features), np.zeros(features, dtype=np.float32))
        function = layer_norm(self.code, self.width, op.epsilon.value.data)
        arguments = [self.places[op.x], self._pointer(op.scale), bias, self.places[op.result], i64(features)]
        self.builder.call(function, arguments)

    def _emit_pieces(self, parts: Sequence[SSAValue], whole: SSAValue, *, gather: bool) -> None:
        """Emit the copies between `parts` and `whole`, which lie in it one after the other."""
        copy, first = activate(self.code, None, self.width), 0
        for part in parts:
            inside = float_at(self.builder, self.places[whole], i64(first * self.width))
            source, target = (self.places[part], inside) if gather else (inside, self.places[part])
            self.builder.call(copy, [source, target, i64(features_of(part))])
            first += features_of(part)

    def _emit_network(self, op: NetworkOp) -> None:
        """Emit the loop over a network's stream; what it works on lies behind its first result, see `plan_scratch`."""
        key = (op, "stream")
        if not self.constants.has(key):
            self.constants.add(key, [pack_stream(op)])
        (stream,) = self.constants.pointers(self.builder, self.constant_table, key)
        first, rows = op.outputs[0], working_rows(op)
        behind = (features_of(first) + OUTPUT_PADDING) * self.width
        slots, spilled = (
            float_at(self.builder, self.places[first], i64(behind + row * self.width)) for row in (0, rows.slots)
        )
        buffers = [*(self.places[value] for value in (*op.inputs, *op.outputs)), spilled]
        table = self.builder.alloca(POINTER, len(buffers))
        for index, buffer in enumerate(buffers):
            self.builder.store(buffer, self.builder.gep(table, [i64(index)], source_etype=POINTER))
        loop = network_loop(self.code, NetworkForm(self.width, op.activations.data))
        self.builder.call(loop, [stream, slots, table])


def _operand(value: SSAValue, features: int) -> Operand:
    """Return how a two-operand kernel over `features` features reads `value`."""
    if isinstance(value.owner, ConstantOp):
        return "per_feature" if value.owner.array.size == features and features != 1 else "one_value"
    return "tile" if features_of(value) == features else "one_row"


def scratch_places(builder: ir.IRBuilder, scratch: ir.Value, offsets: dict[SSAValue, int]) -> dict[SSAValue, ir.Value]:
    """Return the addresses of buffers at `offsets` bytes in `scratch`."""
    return {value: byte_at(builder, scratch, i64(offset)) for value, offset in offsets.items()}
