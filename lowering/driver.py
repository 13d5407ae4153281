"""The whole network: one exported function for each step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from llvmlite import ir
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Operation, SSAValue
from xdsl.utils.hints import isa

from ..dialect.attributes.codes import codes_in
from ..dialect.ops.constants import ConstantOp, SparseConstantOp, is_constant
from ..dialect.ops.foreign import INT32, INT64
from ..dialect.ops.graphs import is_index_tensor
from ..dialect.ops.image_network import ImageNetworkOp
from ..dialect.ops.images import is_open
from ..dialect.ops.movement import ReshapeOp, TakeOp
from ..dialect.ops.tile import TileOp, chain_in
from ..dialect.reports.layer_report import Report
from ..dialect.reports.module_report import module_report
from ..dialect.shape_inference import symbolic_shapes
from ..dialect.symbolic_sizes import NAME, SymbolicShape, product
from .cpu_target import CpuTarget
from .images.open_rows import least_lengths
from .llvm.builder import Code
from .llvm.call_tables import ConstantTable, SizeTable, values_of_constant
from .llvm.values import Floats
from .program import LeastSize, Program, ScratchBytes, Step, Temporary, Tensor
from .steps import StepKind, kind_of
from .tile_sharing import TileSharing
from .tiles.row_major import RowMajorStep, Sharing, StepArguments
from .tiles.row_major_buffers import RowMajorBuffers, buffer_count, buffer_sizes, returned_values, root

Tensors = tuple[Tensor, ...]

BYTE_DTYPES = {"u8": "uint8", "s8": "int8"}


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
        self.scratch_of_sizes: dict[ScratchBytes, None] = {}

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
            Temporary(size, *self.buffers.lifetime(value, numbers))
            for value in self.buffers.temporaries
            for size in buffer_sizes(value, self.shapes)
        ]
        return Program(
            llvm_ir=str(self.code.module),
            target=self.code.target,
            inputs=inputs,
            outputs=outputs,
            temporaries=tuple(temporaries),
            sizes=tuple(self.sizes.entries),
            equal=tuple(pair for op in ops for pair in kind_of(op).equal(op, self.shapes)),
            least=tuple(self._least()),
            constants=tuple(self.constants.arrays),
            scratch_bytes=self.scratch_bytes,
            steps=tuple(steps),
            report=report,
            zeroed=tuple(self._zeroed(ops)),
            scratch_of_sizes=tuple(self.scratch_of_sizes),
        )

    def _least(self) -> Iterator[LeastSize]:
        for op in self.func.body.block.ops:
            if isinstance(op, TakeOp):
                yield LeastSize(self.shapes[op.x][op.axis.value.data], op.least_size)
            elif isinstance(op, ImageNetworkOp) and is_open(op.inputs[0]):
                yield from least_lengths(op, self.shapes)

    def _emit_step(self, index: int, op: Operation) -> Step:
        """Emit the function of one op, and that in which threads do its rows together."""
        kind, symbol, shared = kind_of(op), f"step{index}", None
        self._emit_function(symbol, op, kind)
        if kind.shares(op):
            shared = f"shared{index}"
            self._emit_function(shared, op, kind, are_together=True)
        rows = None if kind.rows is None else kind.rows(op, self.sizes)
        tiled = None if kind.tiles is None else replace(kind.tiles(op), shared=shared)
        return Step(symbol, rows, tiled, kind.may_fail)

    def _emit_function(self, symbol: str, op: Operation, kind: StepKind, *, are_together: bool = False) -> None:
        def emit(given: StepArguments, sharing: Sharing | None) -> None:
            used = kind.emit(op, self._step(given, [*op.operands[: kind.read], *op.results], sharing))
            if isinstance(used, Sequence):
                self.scratch_of_sizes |= dict.fromkeys(used)
            else:
                self.scratch_bytes = max(self.scratch_bytes, used or 0)

        def together(given: StepArguments, sharing: Sharing) -> None:
            emit(given, sharing)

        def apart(given: StepArguments) -> None:
            emit(given, None)

        self.code.kernel(symbol, exported=True)(together if are_together else apart)

    def _step(
        self, given: StepArguments, values: Sequence[SSAValue] = (), sharing: Sharing | None = None
    ) -> RowMajorStep:
        """Return the code of a step that reads and writes some values."""
        known = [value for value in values if not isinstance(value.owner, SparseConstantOp)]
        return RowMajorStep(
            self.code,
            self.sizes,
            given.sizes,
            self.constants,
            given.constants,
            self.tiles.constants_of,
            {value: self._pointers(given, value) for value in known},
            given.scratch,
            given.rows,
            sharing,
        )

    def _zeroed(self, ops: Sequence[Operation]) -> Iterator[int]:
        """Yield the outputs that tiles write whose dead rows are dropped."""
        for op in ops:
            # tiles of codes write all rows
            if isinstance(op, TileOp) and op.dead_rows is not None and chain_in(op) is None:
                output = self.buffers.buffer(op.outputs[0]) - len(self.func.args)
                if not 0 <= output < len(returned_values(self.func)):
                    raise ValueError("dead rows are dropped from a value that is not returned")
                yield output

    def _emit_copies(self, index: int) -> Step:
        """Emit the copies of what is returned but has its buffer elsewhere."""

        @self.code.kernel(f"step{index}", exported=True)
        def _(given: StepArguments) -> None:
            step = self._step(given)
            for value, output in self.buffers.copies:
                source = self._pointers(given, value)[0]
                target = given.buffers[len(self.func.args) + output].cast(Floats)
                step.emit_copy(source, target, product(self.shapes[value]), is_bytes=codes_in(value.type) is not None)

        return Step(f"step{index}", None)

    def _pointers(self, given: StepArguments, value: SSAValue) -> list[Floats]:
        """Return the address of a row-major value, those of the arrays of edges."""
        owner = root(value)
        if not is_constant(owner):
            first = self.buffers.buffer(value)
            return [given.buffers[first + index].cast(Floats) for index in range(buffer_count(value))]
        assert isinstance(owner.owner, Operation)
        values = self.constants.pointers(given.constants, (owner, "values"), values_of_constant, owner.owner)
        return [values[0].cast(Floats)]


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
    codes = codes_in(value.type)
    if codes is not None:
        return BYTE_DTYPES[codes.kind]
    return (
        "int64" if value.type == INT64 else "int32" if value.type == INT32 or is_index_tensor(value.type) else "float32"
    )


def steps_of(func: FuncOp) -> list[Operation]:
    """Return the ops that become steps."""
    return [op for op in func.body.block.ops if op.results and not _has_no_code(op)]


def _has_no_code(op: Operation) -> bool:
    return isinstance(op, ConstantOp | SparseConstantOp | ReshapeOp)
