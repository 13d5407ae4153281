"""Functions between which values stay feature-major: what one rank of a distributed network runs between messages.

A buffer of F features lies in blocks of `width` samples: F rows of `width` floats, or codes of a byte each, room behind
them, the next block.
Every function of the module holds one tile; an argument or result that carries `pebble.height` is some rows, one after
the other, of such a buffer of so many features, any other one is row-major, [samples, features]. Native
functions have the arguments of the steps of a network: a table of addresses (arguments, then results), constants, sizes
(none), scratch, and the samples from begin to end, where begin is a multiple of `width`. The columns of a last block
that no sample fills are copies of its last sample, so every function may compute them, too.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from llvmlite import ir
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntAttr, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue
from xdsl.utils.hints import isa

from ...dialect.ops.movement import ConcatOp, SplitOp
from ...dialect.ops.regions import YieldOp
from ...dialect.ops.tile import TileOp
from ...dialect.reports.module_report import module_report
from ...lowering.cpu_target import CpuTarget
from ...lowering.kernels.elementwise import activate
from ...lowering.llvm.builder import Code
from ...lowering.llvm.call_tables import ConstantTable
from ...lowering.llvm.flow import call, loop
from ...lowering.llvm.values import ALIGNMENT, FLOAT_BYTES, Bytes, Floats, Number, Pointers
from ...lowering.program import Program, Step
from ...lowering.tiles.emitters import emit
from ...lowering.tiles.row_major import StepArguments
from ...lowering.tiles.tile_code import RowBlock, TileCode
from ...lowering.tiles.tile_memory import features_of, plan_tile
from .block_layout import HEIGHT, PACK, PACK_CODES, UNPACK, UNPACK_CODES, block_bytes, row_bytes
from .block_rows import emit_pack, emit_unpack
from .code_blocks import code_scratch_bytes, emit_copy_of_codes, emit_on_codes, is_on_codes, zero_of


def lower_blocks(module: ModuleOp, target: CpuTarget, width: int) -> Program:
    """Return the code of all functions of `module` for blocks of `width` samples; every step is called by its symbol.

    Raises:
        ValueError: an op has no code.
    """
    code, constants = Code(target, ir.Module("redpebble")), ConstantTable()
    for pack, unpack, size in ((PACK, UNPACK, FLOAT_BYTES), (PACK_CODES, UNPACK_CODES, 1)):
        emit_pack(code, pack, row_bytes(width, size))
        emit_unpack(code, unpack, row_bytes(width, size))
    scratch_bytes, steps = 0, list[Step]()
    for func, tile in tiles_of(module):
        blocks = _Blocks(code, constants, width, func.sym_name.data, tile, heights_of(func, tile))
        scratch_bytes = max(scratch_bytes, blocks.emit())
        steps.append(Step(func.sym_name.data, None))
    return Program(
        llvm_ir=str(code.module),
        target=target,
        inputs=(),
        outputs=(),
        temporaries=(),
        sizes=(),
        equal=(),
        constants=tuple(constants.arrays),
        scratch_bytes=scratch_bytes,
        steps=tuple(steps),
        report=module_report(module),
    )


def tiles_of(module: ModuleOp) -> Iterator[tuple[FuncOp, TileOp]]:
    """Yield each function with the one tile that it holds."""
    for func in (op for op in module.body.block.ops if isinstance(op, FuncOp)):
        yield func, next(op for op in func.body.block.ops if isinstance(op, TileOp))


def heights_of(func: FuncOp, tile: TileOp) -> Sequence[int]:
    """Return the features of the buffers of a function's arguments and results, 0 for those that are row-major."""
    return [*_heights(func.arg_attrs, len(tile.inputs)), *_heights(func.res_attrs, len(tile.outputs))]


def _emit_copy(tile: TileCode, value: SSAValue, source: Floats | None, target: Floats | None) -> None:
    """Emit a copy of a value's features; None is where the tile keeps it."""
    inside = tile.pointer(value)
    if zero_of(value) is not None:
        emit_copy_of_codes(tile, value, (source or inside).cast(Bytes), (target or inside).cast(Bytes))
        return
    call(activate(tile.code, None, tile.width), source or inside, target or inside, features_of(value))


@dataclass(frozen=True)
class _Blocks:
    """The code of one function."""

    code: Code
    constants: ConstantTable
    width: int
    name: str
    tile: TileOp
    heights: Sequence[int]
    """Features of the buffers of arguments and results that lie in blocks, 0 for those that are row-major."""

    def emit(self) -> int:
        """Emit the loop over the blocks; return the bytes of scratch that it needs."""
        inner, scratch_bytes = self._emit_block()
        width = self.width
        values = [*self.tile.body.block.args, *self.tile.yielded]
        apart = [
            block_bytes(height, width, FLOAT_BYTES if zero_of(value) is None else 1)
            if height
            else FLOAT_BYTES * features_of(value) * width
            for value, height in zip(values, self.heights, strict=True)
        ]

        @self.code.kernel(self.name, exported=True)
        def _(given: StepArguments) -> None:
            outer = [given.buffers[index] for index in range(len(values))]
            begin, end = given.rows
            with loop(end - begin, width) as done:
                row = begin + done
                count = (end - row).smaller(width)
                block = row // width
                pointers = [pointer.after(block * distance) for pointer, distance in zip(outer, apart, strict=True)]
                call(inner, pointers, given.constants, given.scratch, count)

        return scratch_bytes

    def _emit_block(self) -> tuple[ir.Function, int]:
        """Emit `void (arguments..., results..., constants, scratch, samples)`, one block; and its bytes of scratch."""
        memory, count = plan_tile(self.tile, self.width), len(self.tile.inputs)
        of_codes = -(-memory.total // ALIGNMENT) * ALIGNMENT

        @self.code.kernel(f"{self.name}_block", rest=count + len(self.tile.outputs))
        def kernel(*outer: Floats, table: Pointers, scratch: Bytes, samples: Number) -> None:
            tables, placed = (self.constants, table), self._pointers(outer)
            tile = TileCode(self.code, tables, self.width, scratch, memory.spans, placed=placed)
            for value, pointer, height in zip(self._arguments, outer[:count], self.heights[:count], strict=True):
                if not height:
                    tile.load_rows(value, RowBlock(pointer, samples))
                elif value not in placed:
                    _emit_copy(tile, value, pointer, None)
            for op in self.tile.body.block.ops:
                if isinstance(op, YieldOp):
                    continue
                if is_on_codes(op):
                    emit_on_codes(op, tile, scratch.after(of_codes))
                else:
                    emit(op, tile)
            for value, pointer, height in zip(self.tile.yielded, outer[count:], self.heights[count:], strict=True):
                if not height:
                    tile.store_rows(value, RowBlock(pointer, samples))
                elif placed.get(value) is not pointer:
                    _emit_copy(tile, value, None, pointer)

        return kernel, of_codes + code_scratch_bytes(self.tile, self.width)

    @property
    def _arguments(self) -> list[SSAValue]:
        return list(self.tile.body.block.args)

    def _pointers(self, outer: Sequence[Floats]) -> dict[SSAValue, Floats]:
        """Return where values lie outside of scratch memory; not so for what is joined or split."""
        pointers: dict[SSAValue, Floats] = {}
        values = [*self._arguments, *self.tile.yielded]
        for value, pointer, height in zip(values, outer, self.heights, strict=True):
            if height and value not in pointers and not _is_joined_or_split(value):
                pointers[value] = pointer
        return pointers


def _is_joined_or_split(value: SSAValue) -> bool:
    neighbours = [value.owner, *(use.operation for use in value.uses)]
    return any(isinstance(op, ConcatOp | SplitOp) for op in neighbours)


def _heights(attributes: ArrayAttr[DictionaryAttr] | None, count: int) -> list[int]:
    if attributes is None:
        return [0] * count
    found = [entry.data.get(HEIGHT) for entry in attributes.data]
    return [height.data if isa(height, IntAttr) else 0 for height in found]
