"""The code of a tile: rows in, the layers one after the other on feature-major buffers, rows out."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from redpebble.dialect.ops.constants import ConstantOp, constant_array
from redpebble.dialect.ops.elementwise import ActivateOp, BinaryOp
from redpebble.dialect.ops.layers import LayerNormOp, LinearOp, LogSoftmaxOp, ReduceMeanOp, RmsNormOp, SoftmaxOp
from redpebble.dialect.ops.movement import ConcatOp, SplitOp
from redpebble.dialect.ops.network import NetworkOp
from redpebble.dialect.ops.regions import YieldOp
from redpebble.dialect.ops.tile import TileOp
from redpebble.dialect.tensors import shape_of
from redpebble.lowering.kernels.dense_outputs import DenseOutputs
from redpebble.lowering.kernels.elementwise import BinaryForm, Operand, activate, binary
from redpebble.lowering.kernels.kernel_form import LinearForm, PackedArrays, outputs_of
from redpebble.lowering.kernels.table import KernelFamily, family_of
from redpebble.lowering.llvm.builder import I64, Code, byte_at, counted_loop, entry_of, float_at, i64
from redpebble.lowering.llvm.call_tables import ConstantTable
from redpebble.lowering.llvm.reductions import (
    ColumnForm,
    column_parts,
    layer_norm,
    log_softmax,
    reduce_mean,
    rms_norm,
    softmax,
)
from redpebble.lowering.llvm.transposition import columns_to_far_rows, columns_to_rows, rows_to_columns
from redpebble.lowering.tiles.depth_first_groups import groups_at
from redpebble.lowering.tiles.network_code import NetworkCode
from redpebble.lowering.tiles.thread_shares import WHOLE, Borders, Cut, copied_parts
from redpebble.lowering.tiles.tile_memory import Span, features_of

Piece = Callable[[ir.Value, ir.Value], None]
"""Emits the work on some features: (first feature, their number)."""


STRIP_FLOATS = 1 << 16
"""Of a strip of features that is transposed at a time."""

STRIPS_FROM = 4
"""Strips from which on it is done in strips."""


@dataclass(frozen=True)
class Crew:
    """What a thread that shares a tile with others knows."""

    pieces: int
    span: tuple[ir.Value, ir.Value]
    """The first of its pieces, and the first one that is no longer its."""
    own: tuple[ir.Value, Collection[SSAValue]]
    """Scratch memory of the thread, and the values that lie there."""
    meet: Callable[[], None]
    """Emits the call that returns when all threads have made it."""


@dataclass(frozen=True)
class TileRows:
    """The rows that a tile stands for."""

    width: int
    """Columns for which kernels are chosen; the tile may have more, so that vectors hold whole columns."""
    count: ir.Value
    direct: Mapping[SSAValue, ir.Value]
    """The addresses of the rows of those values that ops read there, or write there, and nowhere else."""


@dataclass(frozen=True)
class TileCode:
    """The code of one tile for one width, under construction; without a crew one thread does everything."""

    code: Code
    builder: ir.IRBuilder
    tables: tuple[ConstantTable, ir.Value]
    """Packed constants, and the table of their addresses."""
    width: int
    scratch: ir.Value
    spans: dict[SSAValue, Span]
    """Where each value of the body lies in the scratch memory, feature-major."""
    crew: Crew | None = None
    rows: TileRows | None = None
    """None where all columns count."""

    def load_rows(self, target: SSAValue, rows: tuple[ir.Value, ir.Value], cut: Cut = WHOLE) -> None:
        """Emit the way in: `rows`, the first one's address and their number, become the columns of `target`."""
        pointer, count = rows
        stride, function = i64(features_of(target)), rows_to_columns(self.code, self.width)

        def piece(first: ir.Value, features: ir.Value) -> None:
            source, columns = float_at(self.builder, pointer, first), self._feature_at(target, first)
            self.builder.call(function, [source, columns, stride, features, count, i64(self.width)])

        self._by_features(cut, features_of(target), self._in_strips(features_of(target), piece))

    def store_rows(self, source: SSAValue, rows: tuple[ir.Value, ir.Value], cut: Cut = WHOLE) -> None:
        """Emit the way out: the columns of `source` become `rows`, the first one's address and their number."""
        pointer, count = rows
        transpose = columns_to_far_rows if self._leaves_cache(features_of(source)) else columns_to_rows
        stride, function = i64(features_of(source)), transpose(self.code, self.width)

        def piece(first: ir.Value, features: ir.Value) -> None:
            columns, target = self._feature_at(source, first), float_at(self.builder, pointer, first)
            self.builder.call(function, [columns, target, stride, features, count, i64(self.width)])

        self._by_features(cut, features_of(source), self._in_strips(features_of(source), piece))

    def _in_strips(self, total: int, piece: Piece) -> Piece:
        """Return the same work done some features at a time, where all together leave the cache.

        Rows are transposed a vector of them at a time: what is written for one has to be there still for the next.
        """
        if not self._leaves_cache(total):
            return piece
        strip = STRIP_FLOATS // self.width

        def strips(first: ir.Value, features: ir.Value) -> None:
            builder = self.builder
            with counted_loop(builder, features, strip) as done:
                left = builder.sub(features, done)
                count = builder.select(builder.icmp_signed("<", left, i64(strip)), left, i64(strip))
                piece(builder.add(first, done), count)

        return strips

    def _leaves_cache(self, features: int) -> bool:
        return features * self.width > STRIPS_FROM * STRIP_FLOATS

    def emit(self, op: Operation, cut: Cut = WHOLE) -> None:
        """Emit one op of the body; a crew shares it as `cut` says.

        Raises:
            ValueError: the op has no feature-major code.
        """
        match op:
            case LinearOp():
                self._emit_layer(op)
            case ActivateOp():
                self._emit_activate(op, cut)
            case BinaryOp():
                self._emit_binary(op, cut)
            case SoftmaxOp() | LogSoftmaxOp() | ReduceMeanOp() | LayerNormOp() | RmsNormOp():
                self._emit_by_columns(op)
            case ConcatOp() | SplitOp():
                self._for_one(lambda: self._emit_copies(op))
            case NetworkOp():
                self._for_one(lambda: self._networks.emit_network(op))
            case YieldOp():
                pass
            case _:
                raise ValueError(f"{op.name} has no code inside a pebble.tile")

    def _feature_at(self, value: SSAValue, feature: ir.Value) -> ir.Value:
        """Return the address of a feature of a value of the body."""
        return float_at(self.builder, self._pointer(value), self.builder.mul(feature, i64(self.width)))

    def _pointer(self, value: SSAValue) -> ir.Value:
        """Return the buffer of a value of the body, or the packed values of a constant."""
        if value in self.spans:
            own = self.crew is not None and value in self.crew.own[1]
            scratch = self.crew.own[0] if self.crew is not None and own else self.scratch
            return byte_at(self.builder, scratch, i64(self.spans[value].start))
        array = constant_array(value)
        if array is None:
            raise ValueError("a tile uses a value from outside that is no constant")
        return self._constant((value, "values"), array)

    def _constant(self, key: tuple[object, ...], values: NDArray[np.float32]) -> ir.Value:
        constants, table = self.tables
        if not constants.has(key):
            constants.add_values(key, values)
        return constants.pointers(self.builder, table, key)[0]

    def _by_features(self, cut: Cut, features: int, piece: Piece) -> None:
        """Emit `piece` for all features at once, or for each piece of the calling thread."""
        if self.crew is None or cut.by == "everyone":
            piece(i64(0), i64(features))
            return
        if cut.by != "features":
            self._for_one(lambda: piece(i64(0), i64(features)))
            return
        self._each_piece(cut.borders, self.crew.span, lambda _, first, count: piece(first, count))

    def _each_piece(
        self,
        borders: Borders,
        span: tuple[ir.Value, ir.Value],
        piece: Callable[[ir.Value, ir.Value, ir.Value], None],
    ) -> None:
        """Emit `piece` (number, first feature, features) in a loop over those pieces from `span` that are not empty."""
        builder, (constants, table), key = self.builder, self.tables, ("borders", borders)
        if not constants.has(key):
            constants.add(key, [np.array(borders, dtype=np.int64)])
        places = constants.pointers(builder, table, key)[0]
        start, end = span
        with counted_loop(builder, builder.sub(end, start)) as turn:
            number = builder.add(start, turn)
            pair = builder.gep(places, [number], source_etype=I64)
            first, last = (entry_of(builder, pair, index, I64) for index in (0, 1))
            with builder.if_then(builder.icmp_signed("<", first, last)):
                piece(number, first, builder.sub(last, first))

    def _for_one(self, work: Callable[[], object], number: int = 0) -> None:
        """Emit `work` for the thread that has piece `number`."""
        if self.crew is None:
            work()
            return
        first, end = self.crew.span
        after_first = self.builder.icmp_signed("<=", first, i64(number))
        before_end = self.builder.icmp_signed("<", i64(number), end)
        with self.builder.if_then(self.builder.and_(after_first, before_end)):
            work()

    def _emit_layer(self, op: LinearOp) -> None:
        """Emit a layer by itself, or the group of layers that it is the last one of."""
        tile = op.parent_op()
        group = groups_at(tile, self.width).get(op) if isinstance(tile, TileOp) else None
        if group is None:
            self._emit_linear(op)
        elif op is group.last:
            self._for_one(lambda: self._networks.emit_group(group))

    @property
    def _networks(self) -> NetworkCode:
        def address(value: SSAValue, feature: int) -> ir.Value:
            return self._feature_at(value, i64(feature))

        outside = None if self.rows is None else (self.rows.direct, self.rows.count)
        return NetworkCode(self.code, self.builder, self.tables, self.width, address, outside)

    def _emit_linear(self, op: LinearOp) -> None:
        width = self.width if self.rows is None else self.rows.width
        family = family_of(op.kernel, width)
        (constants, table), builder = self.tables, self.builder
        outputs = shape_of(op.weight)[1]
        borders = op.borders if family in self._cut_families(op) else ()
        key = (op.weight, op.bias, family, borders)
        if not constants.has(key):
            constants.add(key, _packed(op, family, borders))
        if not borders:
            packed = constants.pointers(builder, table, key)
            self._for_one(lambda: self._call_linear(op, family, packed, (i64(0), i64(outputs))))
            return
        pieces = len(borders) - 1
        if self.crew is not None and self.crew.pieces != pieces:
            raise ValueError(f"a pebble.linear is cut into {pieces} pieces, its tile into {self.crew.pieces}")

        def piece(number: ir.Value, first: ir.Value, count: ir.Value) -> None:
            packed = constants.piece_pointers(builder, table, key, (number, pieces))
            self._call_linear(op, family, packed, (first, count))

        span = (i64(0), i64(pieces)) if self.crew is None else self.crew.span
        self._each_piece(borders, span, piece)

    def _call_linear(
        self, op: LinearOp, family: KernelFamily, packed: Sequence[ir.Value], piece: tuple[ir.Value, ir.Value]
    ) -> None:
        """Emit the kernel of a layer on a piece of its outputs: the first one and their number."""
        (first, count), rows, form = piece, self.rows, LinearForm(self.width, op.activation)
        x, inputs = self._pointer(op.x), i64(shape_of(op.weight)[0])
        if rows is None or not isinstance(family, DenseOutputs):
            kernel = family.emit(self.code, form)
            self.builder.call(kernel, [x, self._feature_at(op.result, first), *packed, inputs, count])
        elif op.result in rows.direct:
            y, apart = float_at(self.builder, rows.direct[op.result], first), i64(features_of(op.result))
            kernel = family.emit_leaving(self.code, form)
            self.builder.call(kernel, [x, y, *packed, inputs, count, rows.count, apart])
        else:
            kernel, y = family.emit_rows(self.code, form), self._feature_at(op.result, first)
            self.builder.call(kernel, [x, y, *packed, inputs, count, rows.count])

    def _cut_families(self, op: LinearOp) -> set[KernelFamily]:
        """Return the kernel families of a layer that shared tiles use; what others pack stays in one piece."""
        tile = op.parent_op()
        assert isinstance(tile, TileOp)
        return {family_of(op.kernel, width) for width in tile.schedule.together.by_width}

    def _emit_activate(self, op: ActivateOp, cut: Cut) -> None:
        function = activate(self.code, op.activation, self.width)

        def piece(first: ir.Value, features: ir.Value) -> None:
            source, target = (self._feature_at(value, first) for value in (op.x, op.result))
            self.builder.call(function, [source, target, features])

        self._by_features(cut, features_of(op.x), piece)

    def _emit_binary(self, op: BinaryOp, cut: Cut) -> None:
        features = features_of(op.result)
        form = BinaryForm(op.name, _operand(op.left, features), _operand(op.right, features), self.width)
        function = binary(self.code, form)

        def piece(first: ir.Value, count: ir.Value) -> None:
            operands = [self._operand_at(value, (kind, first)) for value, kind in zip(op.operands, kinds, strict=True)]
            self.builder.call(function, [*operands, self._feature_at(op.result, first), count])

        kinds: tuple[Operand, Operand] = (form.left, form.right)
        self._by_features(cut, features, piece)

    def _operand_at(self, value: SSAValue, place: tuple[Operand, ir.Value]) -> ir.Value:
        """Return the address from which a two-operand kernel reads `value`, from some feature on."""
        kind, first = place
        match kind:
            case "tile":
                return self._feature_at(value, first)
            case "per_feature":
                return float_at(self.builder, self._pointer(value), first)
            case "one_row" | "one_value":
                return self._pointer(value)

    def _emit_by_columns(self, op: SoftmaxOp | LogSoftmaxOp | ReduceMeanOp | LayerNormOp | RmsNormOp) -> None:
        """Emit work over the features of each column; a crew shares the columns."""
        parts = column_parts(self.code, self.width, self.crew.pieces) if self.crew is not None else 1
        for part in range(parts):
            form = ColumnForm(self.width, part, parts)
            self._for_one(lambda form=form: self._emit_columns(op, form), part)

    def _emit_columns(
        self, op: SoftmaxOp | LogSoftmaxOp | ReduceMeanOp | LayerNormOp | RmsNormOp, form: ColumnForm
    ) -> None:
        """Emit the columns of `form`."""
        parameters: list[ir.Value] = []
        match op:
            case SoftmaxOp():
                function = softmax(self.code, form)
            case LogSoftmaxOp():
                function = log_softmax(self.code, form)
            case ReduceMeanOp():
                function = reduce_mean(self.code, form)
            case LayerNormOp():
                function = layer_norm(self.code, form, op.epsilon.value.data)
                parameters = [self._pointer(op.scale), self._layer_norm_bias(op)]
            case RmsNormOp():
                function = rms_norm(self.code, form, op.epsilon.value.data)
                parameters = [self._pointer(op.scale)]
        features = i64(features_of(op.x))
        self.builder.call(function, [self._pointer(op.x), *parameters, self._pointer(op.result), features])

    def _layer_norm_bias(self, op: LayerNormOp) -> ir.Value:
        if op.bias is not None:
            return self._pointer(op.bias)
        features = features_of(op.x)
        return self._constant(("zeros", features), np.zeros(features, dtype=np.float32))

    def _emit_copies(self, op: ConcatOp | SplitOp) -> None:
        """Emit the copies of parts that do not lie in the whole."""
        copy, whole = activate(self.code, None, self.width), op.result if isinstance(op, ConcatOp) else op.x
        for part, first in copied_parts(op, self.spans, self.width):
            inside, alone = self._feature_at(whole, i64(first)), self._pointer(part)
            source, target = (alone, inside) if isinstance(op, ConcatOp) else (inside, alone)
            self.builder.call(copy, [source, target, i64(features_of(part))])


def _operand(value: SSAValue, features: int) -> Operand:
    """Return how a two-operand kernel over `features` features reads `value`."""
    if isinstance(value.owner, ConstantOp):
        return "per_feature" if value.owner.array.size == features and features != 1 else "one_value"
    return "tile" if features_of(value) == features else "one_row"


def _packed(op: LinearOp, family: KernelFamily, borders: Borders) -> list[NDArray[np.generic]]:
    """Return the arrays of each piece of a layer, one piece after the other; those of an empty piece are empty.

    Raises:
        ValueError: the bias is no constant.
    """
    outputs = shape_of(op.weight)[1]
    bias = constant_array(op.bias) if op.bias is not None else np.zeros(outputs, dtype=np.float32)
    if bias is None:
        raise ValueError("bias is no constant")
    if not borders:
        return list(family.pack(op.weight, bias))
    pairs = list(pairwise(borders))
    packed: list[PackedArrays] = [
        family.pack(outputs_of(op.weight, first, end), bias[first:end]) if first < end else () for first, end in pairs
    ]
    count = max(map(len, packed))
    nothing = np.zeros(0, dtype=np.uint8)
    return [array for arrays in packed for array in (arrays or (nothing,) * count)]
