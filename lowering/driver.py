"""The whole network: one exported function for each step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from llvmlite import ir
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.utils.hints import isa

from ..dialect.ops.attention import Attention
from ..dialect.ops.constants import ConstantOp, SparseConstantOp, is_constant
from ..dialect.ops.elementwise import BinaryOp
from ..dialect.ops.foreign import INT64
from ..dialect.ops.graphs.aggregate import AggregateOp
from ..dialect.ops.graphs.attend_edges import OVER_EDGES, AttendEdgesOp
from ..dialect.ops.graphs.attend_sorted import OVER_SORTED, AttendSortedOp
from ..dialect.ops.graphs.edges_of_call import AggregateSortedOp, EdgeListOp, SortEdgesOp, is_index_tensor
from ..dialect.ops.image_network import ImageNetworkOp
from ..dialect.ops.layers import BatchMatmulTransposeBOp
from ..dialect.ops.movement import ReshapeOp, TakeOp
from ..dialect.ops.quantized_layers import QuantizedLayersOp
from ..dialect.ops.tile import TileOp
from ..dialect.ops.training.gradients import SampledProductOp, SumRowsOp
from ..dialect.reports.layer_report import Report
from ..dialect.reports.module_report import module_report
from ..dialect.shape_inference import symbolic_shapes
from ..dialect.symbolic_sizes import NAME, Size, SymbolicShape, product
from ..dialect.tensors import byte_kind
from .attention.step import (
    AttentionStep,
    Range,
    attention_rows,
    attention_scratch_bytes,
    attention_tiles,
    sizes_taken_as_equal,
)
from .cpu_target import CpuTarget
from .gradients.sampled_product import (
    SampledProductStep,
    emit_sum_rows,
    sampled_rows,
    sampled_scratch_bytes,
    sampled_tiles,
)
from .graphs.edge_list import FAILURE_BYTES, EdgeListStep, edges_taken_as_equal
from .graphs.sorted_edges import SortedStep, SortStep, sort_tiles, sorted_sum_rows, sorted_sum_tiles
from .graphs.step import EdgeStep, edge_rows, edge_tiles
from .images.step import ImageStep, image_tiles
from .llvm.builder import I64, POINTER, Code, entry_of
from .llvm.call_tables import ConstantTable, SizeTable, values_of_constant
from .program import EqualSizes, LeastSize, Program, Step, Temporary, Tensor, TiledRows
from .quantized.step import (
    QuantizedStep,
    quantized_rows,
    quantized_scratch_bytes,
    quantized_tiles,
)
from .tile_sharing import TileSharing
from .tiles import row_major
from .tiles.batch_matmul import ProductStep, product_scratch_bytes, product_tiles
from .tiles.row_major import RowMajorStep
from .tiles.row_major_buffers import RowMajorBuffers, returned_values, root
from .tiles.tile_loop import RowRange, Sharing, TileStep, emit_tile_loop, same_from, tile_times

Tensors = tuple[Tensor, ...]

BYTE_DTYPES = {"u8": "uint8", "s8": "int8"}

STEP_ARGUMENTS = (POINTER, POINTER, POINTER, POINTER, I64, I64)
"""buffers, constants, sizes, scratch, begin, end."""

SHARED_ARGUMENTS = (*STEP_ARGUMENTS, POINTER, POINTER, POINTER, I64, I64)
"""Arguments of a step, then scratch of the thread, barrier, team, number of the thread, threads."""


def lower(module: ModuleOp, target: CpuTarget) -> Program:
    """Return the program of `module`, whose row-wise ops are in tiles and whose linear layers have kernels.

    Raises:
        ValueError: an op has no code, or a size cannot be computed from those of the inputs.
    """
    return Lowering(function_of(module), target).program(module_report(module))


def function_of(module: ModuleOp) -> FuncOp:
    """Return the function of a module."""
    return next(op for op in module.body.block.ops if isinstance(op, FuncOp))


def tensors_of(func: FuncOp, shapes: Mapping[SSAValue, SymbolicShape]) -> tuple[Tensors, Tensors]:
    """Return inputs and outputs."""
    return _tensors(func.args, func.arg_attrs, shapes), _tensors(returned_values(func), func.res_attrs, shapes)


def timed(tiled: TiledRows, op: TileOp) -> TiledRows:
    """Return the tiles of a step with the times that the schedule of `op` gives."""
    return replace(tiled, times=tile_times(op), same_from=same_from(op))


class Lowering:
    """One function on its way to a program."""

    def __init__(self, func: FuncOp, target: CpuTarget) -> None:
        self.func = func
        self.code = Code(target, ir.Module("redpebble"))
        self.shapes = symbolic_shapes(func)
        self.sizes = SizeTable(self.shapes)
        self.constants = ConstantTable()
        self.tiles = TileSharing(self.code.module)
        self.buffers = RowMajorBuffers(func)
        self.scratch_bytes = 0

    def program(self, report: Report) -> Program:
        """Emit every step, and the copies at the end."""
        ops = steps_of(self.func)
        numbers = {op: index for index, op in enumerate(ops)}
        steps = [self._emit_step(index, op) for index, op in enumerate(ops)]
        if self.buffers.copies:
            steps.append(self._emit_copies(len(steps)))
        self.tiles.place(self.constants)
        inputs, outputs = tensors_of(self.func, self.shapes)
        temporaries = [
            Temporary(product(self.shapes[value]), *self.buffers.lifetime(value, numbers))
            for value in self.buffers.temporaries
        ]
        return Program(
            llvm_ir=str(self.code.module),
            target=self.code.target,
            inputs=inputs,
            outputs=outputs,
            temporaries=tuple(temporaries),
            sizes=tuple(self.sizes.entries),
            equal=tuple(self._assumed_equal()),
            least=tuple(
                LeastSize(self.shapes[op.x][op.axis.value.data], op.least_size)
                for op in self.func.body.block.ops
                if isinstance(op, TakeOp)
            ),
            constants=tuple(self.constants.arrays),
            scratch_bytes=self.scratch_bytes,
            steps=tuple(steps),
            report=report,
            zeroed=tuple(self._zeroed(ops)),
        )

    def _emit_step(self, index: int, op: Operation) -> Step:
        """Emit the function of one op."""
        symbol = f"step{index}"

        def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
            if isinstance(op, TileOp):
                self._emit_tiles(builder, args, op)
                return
            if isinstance(op, ImageNetworkOp):
                self._emit_images(builder, args, op)
                return
            buffers, constants, sizes, scratch, *rows = args
            known = [value for value in _touched(op) if not isinstance(value.owner, SparseConstantOp)]
            pointers = {value: self._pointer(builder, buffers, constants, value) for value in known}
            if isinstance(op, Attention):
                AttentionStep(self.code, builder, self.sizes, sizes, op, pointers, scratch).emit(Range(*rows))
                return
            if isinstance(op, QuantizedLayersOp):
                values = self.sizes.value(builder, sizes, product(self.shapes[op.x])) if op.is_dynamic else None
                quantized = QuantizedStep(self.code, builder, op, self.constants, constants, scratch, values)
                quantized.emit(pointers[op.x], pointers[op.result], *rows)
                return
            step = RowMajorStep(self.code, builder, self.sizes, sizes, pointers)
            if isinstance(op, BatchMatmulTransposeBOp):
                ProductStep(op, step, scratch).emit(*rows)
                return
            if isinstance(op, OVER_EDGES):
                EdgeStep(op, step, self.constants, constants).emit(*rows)
                return
            if isinstance(op, EdgeListOp):
                EdgeListStep(op, step, scratch).emit()
                return
            if isinstance(op, SortEdgesOp):
                SortStep(op, step).emit()
                return
            if isinstance(op, OVER_SORTED):
                SortedStep(op, step).emit(*rows)
                return
            if isinstance(op, SumRowsOp):
                emit_sum_rows(op, step)
                return
            if isinstance(op, SampledProductOp):
                SampledProductStep(op, step, self.constants, constants, scratch).emit(*rows)
                return
            row_major.emit(op, step)

        self.code.function(symbol, STEP_ARGUMENTS, body, exported=True)
        match op:
            case TileOp():
                rows = product(self.shapes[op.inputs[0]][:-1])
                return Step(symbol, rows, TiledRows(tile_times(op), same_from(op), self._emit_shared_step(index, op)))
            case ImageNetworkOp():
                shared = self._emit_shared_images(index, op)
                return Step(symbol, self.shapes[op.inputs[0]][0], image_tiles(op, shared))
            case Attention():
                self.scratch_bytes = max(self.scratch_bytes, attention_scratch_bytes(op))
                return Step(symbol, attention_rows(op, self.sizes), attention_tiles())
            case QuantizedLayersOp():
                self.scratch_bytes = max(self.scratch_bytes, quantized_scratch_bytes(op))
                return Step(symbol, quantized_rows(op, self.sizes), quantized_tiles())
            case AggregateOp() | AttendEdgesOp():
                return Step(symbol, edge_rows(op, self.shapes[op.x]), edge_tiles())
            case SampledProductOp():
                self.scratch_bytes = max(self.scratch_bytes, sampled_scratch_bytes(op, self.code.target.lanes))
                return Step(symbol, sampled_rows(op), sampled_tiles())
            case BatchMatmulTransposeBOp():
                self.scratch_bytes = max(self.scratch_bytes, product_scratch_bytes(op, self.code.target))
                return Step(symbol, product(self.shapes[op.x][:-2]), product_tiles())
            case EdgeListOp():
                self.scratch_bytes = max(self.scratch_bytes, FAILURE_BYTES)
                return Step(symbol, None, may_fail=True)
            case SortEdgesOp():
                return Step(symbol, self.shapes[op.sources][0], sort_tiles(self._emit_shared_sort(index, op)))
            case AggregateSortedOp() | AttendSortedOp():
                return Step(symbol, sorted_sum_rows(self.shapes[op.result]), sorted_sum_tiles())
            case _:
                return Step(symbol, None)

    def _emit_shared_step(self, index: int, op: TileOp) -> str | None:
        """Emit the function in which threads do the same tiles together, where the schedule cuts ops into shares."""
        if op.schedule.shares.data == 1:
            return None

        def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
            self._emit_tiles(builder, args, op)

        symbol = f"shared{index}"
        self.code.function(symbol, SHARED_ARGUMENTS, body, exported=True)
        return symbol

    def _emit_shared_sort(self, index: int, op: SortEdgesOp) -> str:
        """Emit the function in which threads sort edges together."""

        def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
            buffers, constants, sizes, _, _, _, *shared = args
            pointers = {value: self._pointer(builder, buffers, constants, value) for value in _touched(op)}
            SortStep(op, RowMajorStep(self.code, builder, self.sizes, sizes, pointers)).emit_shared(Sharing(*shared))

        symbol = f"shared{index}"
        self.code.function(symbol, SHARED_ARGUMENTS, body, exported=True)
        return symbol

    def _emit_tiles(self, builder: ir.IRBuilder, args: Sequence[ir.Value], op: TileOp) -> None:
        """Emit the tiles of a step; more arguments than a step has are those of a shared one."""
        buffers, constants, _, scratch, begin, end, *shared = args
        pointers = {value: self._pointer(builder, buffers, constants, value) for value in _touched(op)}
        known = self.tiles.constants_of(op)
        table = known.pointers(builder, constants)
        step = TileStep(known.number, pointers, known.table, table, scratch, RowRange(begin, end))
        sharing = Sharing(*shared) if shared else None
        used = emit_tile_loop(self.code, builder, op, step, sharing)
        self.scratch_bytes = max(self.scratch_bytes, used)

    def _emit_shared_images(self, index: int, op: ImageNetworkOp) -> str | None:
        """Emit the function in which threads do an image together."""
        if op.threads.value.data == 1:
            return None

        def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
            self._emit_images(builder, args, op)

        symbol = f"shared{index}"
        self.code.function(symbol, SHARED_ARGUMENTS, body, exported=True)
        return symbol

    def _emit_images(self, builder: ir.IRBuilder, args: Sequence[ir.Value], op: ImageNetworkOp) -> None:
        """Emit the images of a step; more arguments than a step has are those of a shared one."""
        buffers, constants, sizes, scratch, begin, end, *shared = args
        pointers = {value: self._pointer(builder, buffers, constants, value) for value in _touched(op)}
        sharing = Sharing(*shared) if shared else None
        images = self.sizes.value(builder, sizes, self.shapes[op.inputs[0]][0]) if op.has_found_codes else None
        step = ImageStep(self.code, builder, op, (self.constants, constants), pointers, scratch, sharing, images)
        self.scratch_bytes = max(self.scratch_bytes, step.emit(begin, end))

    def _zeroed(self, ops: Sequence[Operation]) -> Iterator[int]:
        """Yield the outputs that tiles write whose dead rows are dropped."""
        for op in ops:
            if isinstance(op, TileOp) and op.dead_rows is not None:
                output = self.buffers.buffer(op.outputs[0]) - len(self.func.args)
                if not 0 <= output < len(returned_values(self.func)):
                    raise ValueError("dead rows are dropped from a value that is not returned")
                yield output

    def _emit_copies(self, index: int) -> Step:
        """Emit the copies of what is returned but has its buffer elsewhere."""
        symbol = f"step{index}"

        def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
            buffers, constants, sizes, *_ = args
            step = RowMajorStep(self.code, builder, self.sizes, sizes, {})
            for value, output in self.buffers.copies:
                source = self._pointer(builder, buffers, constants, value)
                target = entry_of(builder, buffers, len(self.func.args) + output, POINTER)
                step.emit_copy(source, target, product(self.shapes[value]), is_bytes=byte_kind(value.type) is not None)

        self.code.function(symbol, STEP_ARGUMENTS, body, exported=True)
        return Step(symbol, None)

    def _pointer(self, builder: ir.IRBuilder, buffers: ir.Value, constants: ir.Value, value: SSAValue) -> ir.Value:
        """Return the address of a row-major value."""
        owner = root(value)
        if not is_constant(owner):
            return entry_of(builder, buffers, self.buffers.buffer(value), POINTER)
        key = (owner, "values")
        if not self.constants.has(key):
            assert isinstance(owner.owner, Operation)
            self.constants.add(key, values_of_constant, owner.owner)
        return self.constants.pointers(builder, constants, key)[0]

    def _assumed_equal(self) -> list[EqualSizes]:
        """Return the pairs of different sizes that attention, and arithmetic outside tiles, take to be the same."""
        pairs: list[EqualSizes] = []
        for op in self.func.body.block.ops:
            if isinstance(op, Attention):
                pairs += sizes_taken_as_equal(op, self.shapes)
            if isinstance(op, EdgeListOp):
                pairs += edges_taken_as_equal(op, self.shapes)
            if not isinstance(op, BinaryOp | BatchMatmulTransposeBOp):
                continue
            left, right = (self.shapes[value] for value in op.operands)
            if isinstance(op, BatchMatmulTransposeBOp):
                left, right = left[:-2], right[:-2]
            for first, second in zip(reversed(left), reversed(right), strict=False):
                if first != second and Size.known(1) not in (first, second):
                    pairs.append(EqualSizes(first, second))
        return pairs


def _tensors(
    values: Sequence[SSAValue], attributes: ArrayAttr[DictionaryAttr] | None, shapes: Mapping[SSAValue, SymbolicShape]
) -> Tensors:
    """Return inputs or outputs with the names that the function gives them."""
    tensors: list[Tensor] = []
    for index, value in enumerate(values):
        name = attributes.data[index].data.get(NAME) if attributes is not None else None
        text = name.data if isa(name, StringAttr) else str(index)
        tensors.append(Tensor(text, shapes[value], _dtype_of(value)))
    return tuple(tensors)


def _dtype_of(value: SSAValue) -> str:
    kind = byte_kind(value.type)
    if kind is not None:
        return BYTE_DTYPES[kind]
    return "int64" if value.type == INT64 else "int32" if is_index_tensor(value.type) else "float32"


def steps_of(func: FuncOp) -> list[Operation]:
    """Return the ops that become steps."""
    return [op for op in func.body.block.ops if op.results and not _has_no_code(op)]


def _has_no_code(op: Operation) -> bool:
    return isinstance(op, ConstantOp | SparseConstantOp | ReshapeOp)


def _touched(op: Operation) -> list[SSAValue]:
    # what quantized layers and gradients read of weights is packed
    read = 1 if isinstance(op, QuantizedLayersOp) else 2 if isinstance(op, SampledProductOp) else len(op.operands)
    return [*op.operands[:read], *op.results]
