"""Dead rows of codes: rows that are the code of 0 throughout, dropped between layers of a tile.

Codes are integers of eight bits that stand for values: value = scale * (code - zero).

The rows that live move together, in place, and each takes its number along. Layers behind them have fewer rows; what
the last one makes goes to the rows of these numbers, and all others hold zeros.
"""

from typing import NamedTuple

from llvmlite import ir
from xdsl.ir import Operation

from ...dialect.ops.tile import TileOp
from ...kernels.tile_widths import BYTE_ROWS
from ..llvm.builder import Code
from ..llvm.flow import fold, loop, when
from ..llvm.values import ALIGNMENT, BYTE, Byte, Bytes, Longs, Number, Truth
from ..llvm.vectors import broadcast
from ..tiles.live_row_columns import ROW_NUMBER_BYTES
from .rounding import WIDEST_COPY, Strided


def dropping_layers(op: Operation | None) -> list[int]:
    """Return the layers of a step behind which dead rows are dropped."""
    return list(op.dead_rows.layers) if isinstance(op, TileOp) and op.dead_rows is not None else []


class LiveRows(NamedTuple):
    """Addresses of what is known of the rows that live."""

    left: Longs
    """The number of rows that live."""
    numbers: Longs
    """The number of each."""
    results: Bytes
    """The results of each, side by side."""

    @staticmethod
    def at(memory: Bytes) -> "LiveRows":
        """Return the addresses in the memory for them."""
        numbers = memory.after(ALIGNMENT)
        return LiveRows(memory.cast(Longs), numbers.cast(Longs), numbers.after(ROW_NUMBER_BYTES * BYTE_ROWS))

    def begin(self, rows: Number) -> None:
        """Emit that all rows live."""
        self.left[0] = rows
        with loop(rows) as row:
            self.numbers[row] = row


def live_bytes(row_bytes: int) -> int:
    """Return the bytes of memory for rows whose results are of so many bytes."""
    return ALIGNMENT + BYTE_ROWS * (ROW_NUMBER_BYTES + row_bytes)


def drop_dead(code: Code, features: int, stride: int) -> ir.Function:
    """Return `void (x, zero, left, numbers, results)`, which drops the rows of x, `stride` apart, that are zero."""
    width = min(WIDEST_COPY, 1 << max(0, features.bit_length() - 1))
    kind = ir.VectorType(BYTE, width)

    @code.kernel(f"drop_dead_{features}_{stride}")
    def kernel(x: Bytes, zero: Byte, live: LiveRows) -> None:
        builder, vectors = x.builder, x.constant(-(-features // width))
        zeros, none = broadcast(builder, zero.value, width), ir.Constant(kind, [0] * width)
        before = live.left[0]
        live.left[0] = 0

        def place(row: Number, vector: Number) -> Bytes:
            # the last vector lies over the one before, so that nothing behind the row counts
            return x.at(row * stride + (vector * width).smaller(features - width))

        with loop(before) as row:

            def differing(vector: Number, bits: ir.Value, row: Number = row) -> ir.Value:
                return builder.or_(bits, builder.xor(place(row, vector).load(kind, 1), zeros))

            some = builder.icmp_unsigned("!=", fold(vectors, none, differing), none)
            lanes = Number(builder, builder.bitcast(some, ir.IntType(width)))
            with when(Truth(builder, builder.icmp_unsigned("!=", lanes.value, ir.Constant(lanes.value.type, 0)))):
                target = live.left[0]
                with when(target != row), loop(vectors) as vector:
                    place(target, vector).store(place(row, vector).load(kind, 1), 1)
                live.numbers[target] = live.numbers[row]
                live.left[0] = target + 1

    return kernel


def write_live(code: Code, row_bytes: int) -> ir.Function:
    """Return `void (y, y stride, zero, rows, left, numbers, results)`: results at their numbers, zeros elsewhere.

    Zero is a byte: the code of 0, or 0 where rows are floats.
    """
    width = min(WIDEST_COPY, 1 << max(0, row_bytes.bit_length() - 1))
    kind = ir.VectorType(BYTE, width)

    @code.kernel(f"write_live_{row_bytes}")
    def kernel(y: Strided, zero: Byte, rows: Number, live: LiveRows) -> None:
        zeros = broadcast(y.address.builder, zero.value, width)

        def write(row: Number, source: Bytes | None) -> None:
            target = y.row(row).address
            with loop(rows.constant(row_bytes), width) as start:
                first = start.smaller(row_bytes - width)
                target.at(first).store(zeros if source is None else source.at(first).load(kind, 1), 1)

        with loop(rows) as row:
            write(row, None)
        with loop(live.left[0]) as place:
            write(live.numbers[place], live.results.at(place * row_bytes))

    return kernel
