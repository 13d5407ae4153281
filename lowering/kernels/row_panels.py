"""Sparse kernel family for rows that share inputs: a register tile of rows and columns, as in dense products.

For each panel: its rows' sums for some vectors of columns stay in registers; each shared input is read once and
multiplied by one weight a row. An input's columns are so used `height` times, where a row by itself uses them once: the
loads that limit unstructured rows are few here, and the multiply-adds limit. What a row reads besides is added to the
same registers, one weight at a time.

Registers, for a panel of H rows and V vectors of batch columns (H V + V + 1 of 16 or 32 registers):

    x[v]        columns of a shared input, one lane a column     V loads
    w           weight of a row in every lane                    a broadcast
    sum[h][v] += w * x[v]                                        V fma for each of H weights
    own inputs  sum[h][v] and a second set of sums of the row, for every other input: two chains of fma
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llvmlite import ir

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.kernels.formats.row_panels import READ_AHEAD, SECTIONS, Section
from redpebble.kernels.row_segments import OFFSET_UNIT
from redpebble.lowering.kernels.block_loop import load_index
from redpebble.lowering.kernels.kernel_form import (
    LinearForm,
    activated,
    activation_key,
)
from redpebble.lowering.llvm.builder import (
    FLOAT_BYTES,
    I64,
    POINTER,
    Code,
    ColumnChunk,
    byte_at,
    float_at,
    i64,
    reduce_loop,
)
from redpebble.lowering.llvm.prefetch import fetch_lines
from redpebble.lowering.llvm.vectors import FLOAT, Lanes

LINE_FLOATS = 16

WEIGHTS_AHEAD = 512
"""Weights after those at hand that are fetched: farther caches deliver them in time, which lie one after the other."""


def emit(code: Code, form: LinearForm) -> ir.Function:
    """Return `void (x, y, heads, records, inputs, weights, bias, inputs, outputs)`."""

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        _Panels(code, builder, form).emit(args[:2], args[2:7])

    return code.function(f"row_panels_{form.key}", [POINTER] * 7 + [I64, I64], body)


class _Stream(NamedTuple):
    """Connections to come: their number, the inputs, and their weights, one for each row that shares them."""

    length: ir.Value
    inputs: ir.Value
    weights: ir.Value


def _even_chunks(code: Code, width: int) -> list[ColumnChunk]:
    """Return the columns cut into chunks of about equal size, as wide as the registers allow."""
    lanes = code.column_lanes(width)
    vectors, most = width // lanes, 3 if code.target.has_avx512 else 2
    chunks = -(-vectors // most)
    sizes = [vectors // chunks + (index < vectors % chunks) for index in range(chunks)]
    return [ColumnChunk(lanes * sum(sizes[:index]), size) for index, size in enumerate(sizes)]


@dataclass(frozen=True)
class _Panels:
    """The code of all panels of a layer."""

    code: Code
    builder: ir.IRBuilder
    form: LinearForm

    def emit(self, tile: Sequence[ir.Value], arrays: Sequence[ir.Value]) -> None:
        """Emit the panels of each section; `tile` is x and y, `arrays` are those of `PackedPanels`."""
        heads, record, inputs, weights, bias = arrays
        addresses: list[ir.Value] = [record, inputs, weights]
        for index, section in enumerate(SECTIONS):
            count = load_index(self.builder, heads, FLOAT_BYTES * index)
            addresses = reduce_loop(
                self.builder,
                count,
                addresses,
                lambda _, now, section=section: self._emit_panel(section, (*tile, bias), now),
            )

    def _emit_panel(self, section: Section, buffers: Sequence[ir.Value], start: Sequence[ir.Value]) -> list[ir.Value]:
        """Emit the panel whose record, inputs and weights start at addresses; return the addresses behind it.

        Its weights are read for each chunk of columns, after the first one from the first-level cache.
        """
        builder, height, (record, inputs, weights) = self.builder, section.height, start
        x, y, bias = buffers
        for first, vectors in _even_chunks(self.code, self.form.width):
            form = _PanelForm(section, vectors, self.code.column_lanes(self.form.width), self.form.activation)
            columns = [float_at(builder, buffer, i64(first)) for buffer in (x, y)]
            builder.call(form.function(self.code), [*columns, bias, *start, i64(self.form.width)])
        shared = load_index(builder, record, 0)
        inputs = float_at(builder, inputs, shared)
        weights = float_at(builder, weights, builder.mul(shared, i64(height)))
        for row in range(height if section.mixed else 0):
            own = load_index(builder, record, FLOAT_BYTES * (1 + height + row))
            inputs, weights = (float_at(builder, start, own) for start in (inputs, weights))
        return [float_at(builder, record, i64(1 + height * (2 if section.mixed else 1))), inputs, weights]


@dataclass(frozen=True)
class _PanelForm:
    """The form of the code of a panel; tiles of all widths that are cut into such chunks share it."""

    section: Section
    vectors: int
    lanes: int
    activation: ActivationAttr | None

    def function(self, code: Code) -> ir.Function:
        """Return `void (x, y, bias, record, inputs, weights, width)`, x and y from the chunk's columns on."""
        shape = f"{self.section.height}{'mixed' if self.section.mixed else ''}_{self.vectors}x{self.lanes}"

        def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
            _Chunk(code, builder, self, args).emit()

        return code.function(f"panel_{shape}_{activation_key(self.activation)}", [POINTER] * 6 + [I64], body)


@dataclass(frozen=True)
class _Chunk:
    """One panel for some columns, inside the function of its form."""

    code: Code
    builder: ir.IRBuilder
    form: _PanelForm
    args: Sequence[ir.Value]

    @property
    def lanes(self) -> Lanes:
        """Vectors of columns."""
        return self.code.lanes(self.builder, self.form.lanes)

    def emit(self) -> None:
        """Emit all rows, some at a time where the registers do not hold the sums of all."""
        builder, height = self.builder, self.form.section.height
        *_, record, inputs, weights, _ = self.args
        shared = _Stream(load_index(builder, record, 0), inputs, weights)
        own: list[_Stream] = []
        inputs = float_at(builder, inputs, shared.length)
        weights = float_at(builder, weights, builder.mul(shared.length, i64(height)))
        for row in range(height if self.form.section.mixed else 0):
            own.append(_Stream(load_index(builder, record, FLOAT_BYTES * (1 + height + row)), inputs, weights))
            inputs, weights = (float_at(builder, start, own[row].length) for start in (inputs, weights))
        step = min(height, self._most_rows())
        for row in range(0, height, step):
            stream = shared._replace(weights=float_at(builder, shared.weights, i64(row)))
            targets = [load_index(builder, record, FLOAT_BYTES * (1 + index)) for index in range(row, row + step)]
            self._emit_rows(stream, own[row : row + step], targets)

    def _most_rows(self) -> int:
        """Return the rows whose sums the registers hold besides an input's vectors and a weight."""
        vectors, registers = self.form.vectors, 32 if self.code.target.has_avx512 else 16
        return max(section.height for section in SECTIONS if section.height * vectors <= registers - vectors - 1)

    def _emit_rows(self, shared: _Stream, own: Sequence[_Stream], targets: Sequence[ir.Value]) -> None:
        """Emit the rows at `targets`: the sums over what they share, then over each row's own."""
        builder, lanes, vectors = self.builder, self.lanes, self.form.vectors
        y, bias = self.args[1:3]
        entries = [byte_at(builder, bias, builder.udiv(row, i64(OFFSET_UNIT // FLOAT_BYTES))) for row in targets]
        biases = [lanes.splat(builder.load(entry, typ=FLOAT)) for entry in entries]
        sums = self._shared_products(shared, [value for value in biases for _ in range(vectors)])
        for row, stream in enumerate(own):
            part = slice(row * vectors, (row + 1) * vectors)
            sums[part] = self._own_products(stream, sums[part])
        addresses = [address for row in targets for address in self._vectors(self._row(y, row))]
        for value, address in zip(activated(lanes, self.form.activation, sums), addresses, strict=True):
            lanes.store(value, address, FLOAT_BYTES * lanes.width)

    def _shared_products(self, stream: _Stream, initial: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the sums of rows after the connections that they share, a later input's columns fetched ahead."""
        builder, lanes, vectors = self.builder, self.lanes, self.form.vectors
        lines = -(-vectors * lanes.width // LINE_FLOATS)

        def multiply_add(index: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
            offset = float_at(builder, stream.inputs, index)
            fetch_lines(builder, self._row(self.args[0], load_index(builder, offset, FLOAT_BYTES * READ_AHEAD)), lines)
            columns = self._columns(offset)
            first = float_at(builder, stream.weights, builder.mul(index, i64(self.form.section.height)))
            entries = [float_at(builder, first, i64(row)) for row in range(len(sums) // vectors)]
            factors = [lanes.splat(builder.load(entry, typ=FLOAT)) for entry in entries]
            fetch_lines(builder, float_at(builder, first, i64(WEIGHTS_AHEAD)), 1)
            return [
                lanes.fma(factors[number // vectors], columns[number % vectors], total)
                for number, total in enumerate(sums)
            ]

        return reduce_loop(builder, stream.length, initial, multiply_add)

    def _own_products(self, stream: _Stream, initial: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the sums of one row after its own connections, the second half of them in sums of its own.

        A row's few sums would wait for each other: a multiply-add takes four cycles, and two can start in each.
        """
        builder, lanes = self.builder, self.lanes
        half = builder.lshr(stream.length, i64(1))
        second = _Stream(half, float_at(builder, stream.inputs, half), float_at(builder, stream.weights, half))
        middle = len(initial)

        def both(index: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
            return self._step(stream, index, sums[:middle]) + self._step(second, index, sums[middle:])

        sums = reduce_loop(builder, half, [*initial, *[lanes.splat(0.0)] * middle], both)
        total = [lanes.add(one, other) for one, other in zip(sums[:middle], sums[middle:], strict=True)]
        rest = builder.shl(half, i64(1))
        return reduce_loop(builder, stream.length, total, lambda index, now: self._step(stream, index, now), start=rest)

    def _step(self, stream: _Stream, index: ir.Value, sums: Sequence[ir.Value]) -> list[ir.Value]:
        """Return the sums of a row after one connection of its own."""
        builder, lanes = self.builder, self.lanes
        columns = self._columns(float_at(builder, stream.inputs, index))
        weight = lanes.splat(builder.load(float_at(builder, stream.weights, index), typ=FLOAT))
        return [lanes.fma(weight, column, total) for column, total in zip(columns, sums, strict=True)]

    def _columns(self, offset: ir.Value) -> list[ir.Value]:
        """Return the columns of the input whose offset is at an address."""
        source = self._row(self.args[0], load_index(self.builder, offset, 0))
        return [self.lanes.load(address, FLOAT_BYTES * self.lanes.width) for address in self._vectors(source)]

    def _vectors(self, row: ir.Value) -> list[ir.Value]:
        return [float_at(self.builder, row, i64(self.lanes.width * index)) for index in range(self.form.vectors)]

    def _row(self, buffer: ir.Value, offset: ir.Value) -> ir.Value:
        """Return the address of the row at `offset`, which counts tiles of 8 columns."""
        scaled = self.builder.mul(offset, self.args[-1])
        return byte_at(self.builder, buffer, self.builder.udiv(scaled, i64(OFFSET_UNIT // FLOAT_BYTES)))
