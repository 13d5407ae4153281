"""Layers on codes between feature-major blocks: lines of bytes become rows, which kernels take, and lines again.

Codes are integers of eight bits that stand for values: value = scale * (code - zero).

    lines of features a to d, a byte a sample      words            rows: columns of words, transposed
    a0 a1 .. | b0 b1 .. | c0 c1 .. | d0 d1 ..      a0b0c0d0 a1..    a0b0c0d0 e0f0g0h0 ..

A block of one sample is a row as it is.
"""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from ...dialect.attributes.codes import codes_in
from ...dialect.ops.elementwise import ConvertOp
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.tile import TileOp
from ...dialect.ops.tile_chain import CodeChain
from ...kernels.byte_quads import QUAD
from ...lowering.llvm.builder import Code
from ...lowering.llvm.flow import call, loop
from ...lowering.llvm.transposition import columns_to_rows, rows_to_columns
from ...lowering.llvm.values import ALIGNMENT, BYTE, FLOAT_BYTES, Bytes, Floats, Number
from ...lowering.llvm.vectors import int_constants
from ...lowering.quantized.rounding import CodeBounds, Strided, copy_codes, quantizing, values_of_codes
from ...lowering.quantized.step import QuantizedStep, quantized_scratch_bytes
from ...lowering.tiles.tile_code import RowBlock, TileCode
from ...lowering.tiles.tile_memory import features_of


def zero_of(value: SSAValue) -> int | None:
    """Return the byte that is the code of 0 of a value of codes, None of floats."""
    codes = codes_in(value.type)
    return None if codes is None else codes.zero & 0xFF


def is_on_codes(op: Operation) -> bool:
    """Return whether an op reads or yields codes."""
    return any(zero_of(value) is not None for value in (*op.operands, *op.results))


def code_scratch_bytes(tile: TileOp, width: int) -> int:
    """Return the bytes of scratch memory that the layers on codes of a tile need, which run one after the other."""
    layers = [op for op in tile.body.block.ops if isinstance(op, LinearOp) and op.codes is not None]
    return max((_offsets(op, width)[-1] for op in layers), default=0)


def emit_on_codes(op: Operation, tile: TileCode, memory: Bytes) -> None:
    """Emit an op on codes, with so many bytes of scratch memory as `code_scratch_bytes` says.

    Raises:
        ValueError: it has no code.
    """
    match op:
        case LinearOp():
            _emit_linear(op, tile, memory)
        case ConvertOp():
            _emit_conversion(op, tile)
        case _:
            raise ValueError(f"{op.name} has no code for values of codes between blocks")


def emit_copy_of_codes(tile: TileCode, value: SSAValue, source: Bytes, target: Bytes) -> None:
    """Emit a copy of the lines of a value."""
    count = features_of(value) * tile.width
    call(copy_codes(tile.code, count, signed=False), _line(source, count), _line(target, count), 1)


def _line(address: Bytes, size: int) -> Strided:
    return Strided(address, Number(address.builder, ir.Constant(ir.IntType(64), size)))


def _emit_conversion(op: ConvertOp, tile: TileCode) -> None:
    """Emit floats to codes, or codes to floats, as one long row."""
    count, signed = features_of(op.result) * tile.width, op.codes.kind == "s8"
    x, y = tile.pointer(op.x).cast(Bytes), tile.pointer(op.result).cast(Bytes)

    def bounds_of(_: Operation | None) -> list[NDArray[np.generic]]:
        return [CodeBounds.of(op.codes).words()]

    bounds = tile.constant((op, "bounds"), bounds_of, op)
    convert = quantizing if op.rounds else values_of_codes
    call(convert(tile.code, count, signed=signed), _line(x, count), _line(y, count), bounds, 1)


def _row_words(features: int) -> int:
    """Return the words of a row of codes."""
    return -(-features // QUAD)


def _offsets(op: LinearOp, width: int) -> list[int]:
    """Return where in scratch memory the layer's own begins, then words, rows of inputs, rows of outputs, the end."""
    own = quantized_scratch_bytes(op, CodeChain((op,)))
    inputs, outputs = features_of(op.x), features_of(op.result)
    words = FLOAT_BYTES * width * max(_row_words(inputs), _row_words(outputs))
    results = FLOAT_BYTES * width * (outputs if zero_of(op.result) is None else _row_words(outputs))
    # vectors may be written beyond the end
    sizes = [own, words, FLOAT_BYTES * width * _row_words(inputs), results]
    return list(accumulate((-(-size // ALIGNMENT) * ALIGNMENT + ALIGNMENT for size in sizes), initial=0))


def _emit_linear(op: LinearOp, tile: TileCode, memory: Bytes) -> None:
    constants, table = tile.tables
    own, words, x_rows, y_rows = (memory.after(offset) for offset in _offsets(op, tile.width)[:-1])
    x, y, width = tile.pointer(op.x).cast(Bytes), tile.pointer(op.result).cast(Bytes), tile.width
    inputs, outputs, to_codes = features_of(op.x), features_of(op.result), zero_of(op.result) is not None
    if width == 1:
        source, target = _line(x, inputs), _line(y, outputs * (1 if to_codes else FLOAT_BYTES))
    else:
        quads = _row_words(inputs)
        call(lines_to_words(tile.code, width), x, words, quads)
        call(columns_to_rows(tile.code, width), words, x_rows, quads, quads, width, width)
        source = _line(x_rows, QUAD * quads)
        target = _line(y_rows, QUAD * _row_words(outputs) if to_codes else FLOAT_BYTES * outputs)
    step = QuantizedStep(tile.code, op, CodeChain((op,)), constants, table, own)
    step.emit_rows(source, target, memory.constant(width))
    if width == 1:
        return
    if not to_codes:
        tile.load_rows(op.result, RowBlock(y_rows.cast(Floats), width))
        return
    quads = _row_words(outputs)
    call(rows_to_columns(tile.code, width), y_rows, words, quads, quads, width, width)
    call(words_to_lines(tile.code, width), words, y, quads)


def _step(width: int) -> int:
    """Return the samples whose bytes are one vector."""
    return min(width & -width, 16)


def lines_to_words(code: Code, width: int) -> ir.Function:
    """Return `void (lines, words, quads)`: four lines of `width` bytes become a line of words, a byte from each."""
    size = _step(width)

    @code.kernel(f"lines_to_words_{width}")
    def kernel(lines: Bytes, words: Bytes, quads: Number) -> None:
        builder, kind = lines.builder, ir.VectorType(BYTE, size)
        with loop(quads) as quad:
            for first in range(0, width, size):
                place = quad * (QUAD * width)
                a, b, c, d = (lines.at(place + (width * part + first)).load(kind, size) for part in range(QUAD))
                low, high = (builder.shuffle_vector(*two, _in_turns(size, 1)) for two in ((a, b), (c, d)))
                made = builder.shuffle_vector(low, high, _in_turns(2 * size, 2))
                words.at(place + QUAD * first).store(made, QUAD * size)

    return kernel


def words_to_lines(code: Code, width: int) -> ir.Function:
    """Return `void (words, lines, quads)`, which undoes that."""
    size = _step(width)

    @code.kernel(f"words_to_lines_{width}")
    def kernel(words: Bytes, lines: Bytes, quads: Number) -> None:
        builder, kind = words.builder, ir.VectorType(BYTE, QUAD * size)
        with loop(quads) as quad:
            for first in range(0, width, size):
                place = quad * (QUAD * width)
                made = words.at(place + QUAD * first).load(kind, QUAD * size)
                for part in range(QUAD):
                    line = builder.shuffle_vector(made, made, int_constants(range(part, QUAD * size, QUAD)))
                    lines.at(place + (width * part + first)).store(line, size)

    return kernel


def _in_turns(count: int, size: int) -> ir.Constant:
    """Return the shuffle that takes items of `size` bytes from two vectors of `count` bytes in turns."""
    order: Sequence[int] = [
        first + source * count + byte for first in range(0, count, size) for source in range(2) for byte in range(size)
    ]
    return int_constants(order)
