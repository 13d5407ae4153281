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

from ...dialect.attributes.activations import ActivationAttr
from ...kernels.formats.row_panels import READ_AHEAD, SECTIONS, Section
from ...kernels.row_segments import OFFSET_UNIT
from ..llvm.builder import Code, ColumnChunk
from ..llvm.flow import call, fold
from ..llvm.values import FLOAT_BYTES, Floats, Ints, Number
from ..llvm.vectors import Lanes
from .kernel_form import LinearForm, activated, activation_key

LINE_FLOATS = 16

WEIGHTS_AHEAD = 512
"""Weights after those at hand that are fetched: farther caches deliver them in time, which lie one after the other."""


class _Place(NamedTuple):
    """The begin of a panel: its record, its inputs and its weights."""

    record: Ints
    inputs: Ints
    weights: Floats

    def after(self, connections: Number, height: int = 1) -> "_Place":
        """Return the place after connections that `height` rows share."""
        return self._replace(inputs=self.inputs.at(connections), weights=self.weights.at(connections * height))


def emit(code: Code, form: LinearForm) -> ir.Function:
    """Return `void (x, y, heads, records, inputs, weights, bias, inputs, outputs)`."""

    @code.kernel(f"row_panels_{form.key}")
    def kernel(x: Floats, y: Floats, heads: Ints, at: _Place, bias: Floats, _inputs: Number, _outputs: Number) -> None:
        panels = _Panels(code, form, x, y, bias)
        for index, section in enumerate(SECTIONS):
            at = fold(heads[index], at, lambda _, now, section=section: panels.emit(section, now))

    return kernel


class _Stream(NamedTuple):
    """Connections to come: their number, the inputs, and their weights, one for each row that shares them."""

    length: Number
    inputs: Ints
    weights: Floats


def _even_chunks(code: Code, width: int) -> list[ColumnChunk]:
    """Return the columns cut into chunks of about equal size, as wide as the registers allow."""
    lanes = code.column_lanes(width)
    vectors, most = width // lanes, 3 if code.target.registers >= 32 else 2
    chunks = -(-vectors // most)
    sizes = [vectors // chunks + (index < vectors % chunks) for index in range(chunks)]
    return [ColumnChunk(lanes * sum(sizes[:index]), size) for index, size in enumerate(sizes)]


@dataclass(frozen=True)
class _Panels:
    """The code of all panels of a layer."""

    code: Code
    form: LinearForm
    x: Floats
    y: Floats
    bias: Floats

    def emit(self, section: Section, at: _Place) -> _Place:
        """Emit the panel at a place; return that of the next one.

        Its weights are read for each chunk of columns, after the first one from the first-level cache.
        """
        height = section.height
        for first, vectors in _even_chunks(self.code, self.form.width):
            form = _PanelForm(section, vectors, self.code.column_lanes(self.form.width), self.form.activation)
            call(form.function(self.code), self.x.at(first), self.y.at(first), self.bias, at, self.form.width)
        after = at.after(at.record[0], height)
        for row in range(height if section.mixed else 0):
            after = after.after(at.record[1 + height + row])
        return after._replace(record=at.record.at(1 + height * (2 if section.mixed else 1)))


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

        @code.kernel(f"panel_{shape}_{activation_key(self.activation)}")
        def kernel(x: Floats, y: Floats, bias: Floats, at: _Place, width: Number) -> None:
            _Chunk(code, self, x, y, bias, width).emit(at)

        return kernel


@dataclass(frozen=True)
class _Chunk:
    """One panel for some columns, inside the function of its form."""

    code: Code
    form: _PanelForm
    x: Floats
    y: Floats
    bias: Floats
    width: Number

    @property
    def lanes(self) -> Lanes:
        """Vectors of columns."""
        return self.code.lanes(self.x, self.form.lanes)

    def emit(self, at: _Place) -> None:
        """Emit all rows, some at a time where the registers do not hold the sums of all."""
        height, record = self.form.section.height, at.record
        # a record: the number of shared inputs, the rows, and in mixed sections the numbers of each row's own inputs
        shared = _Stream(record[0], at.inputs, at.weights)
        at = at.after(shared.length, height)
        own: list[_Stream] = []
        for row in range(height if self.form.section.mixed else 0):
            own.append(_Stream(record[1 + height + row], at.inputs, at.weights))
            at = at.after(own[row].length)
        step = min(height, self._most_rows())
        for row in range(0, height, step):
            stream = shared._replace(weights=shared.weights.at(row))
            self._emit_rows(stream, own[row : row + step], [record[1 + index] for index in range(row, row + step)])

    def _most_rows(self) -> int:
        """Return the rows whose sums the registers hold besides an input's vectors and a weight."""
        vectors, registers = self.form.vectors, self.code.target.registers
        return max(section.height for section in SECTIONS if section.height * vectors <= registers - vectors - 1)

    def _emit_rows(self, shared: _Stream, own: Sequence[_Stream], targets: Sequence[Number]) -> None:
        """Emit the rows at `targets`: the sums over what they share, then over each row's own."""
        lanes, vectors = self.lanes, self.form.vectors
        # sums begin as the biases; a row's offset counts bytes of tiles of 8 columns
        entries = [self.bias.after(row // (OFFSET_UNIT // FLOAT_BYTES)) for row in targets]
        biases = [lanes.splat(entry[0]) for entry in entries]
        sums = self._shared_products(shared, [value for value in biases for _ in range(vectors)])
        for row, stream in enumerate(own):
            part = slice(row * vectors, (row + 1) * vectors)
            sums[part] = self._own_products(stream, sums[part])
        addresses = [row.at(lanes.width * index) for row in map(self._row_of_y, targets) for index in range(vectors)]
        for value, address in zip(activated(lanes, self.form.activation, sums), addresses, strict=True):
            lanes.store(value, address, lanes.size)

    def _shared_products(self, stream: _Stream, initial: list[ir.Value]) -> list[ir.Value]:
        """Return the sums of rows after the connections that they share, a later input's columns fetched ahead."""
        lanes, vectors = self.lanes, self.form.vectors
        lines = -(-vectors * lanes.width // LINE_FLOATS)

        def multiply_add(index: Number, sums: list[ir.Value]) -> list[ir.Value]:
            offset = stream.inputs.at(index)
            self._row(self.x, offset[READ_AHEAD]).fetch(lines)
            columns = self._columns(offset)
            # a weight for each row, which stand side by side
            weights = stream.weights.at(index * self.form.section.height)
            entries = [weights.at(row) for row in range(len(sums) // vectors)]
            factors = [lanes.splat(entry[0]) for entry in entries]
            weights.at(WEIGHTS_AHEAD).fetch(1)
            return lanes.add_outer(sums, factors, columns)

        return fold(stream.length, initial, multiply_add)

    def _own_products(self, stream: _Stream, initial: list[ir.Value]) -> list[ir.Value]:
        """Return the sums of one row after its own connections, the second half of them in sums of its own.

        A row's few sums would wait for each other: a multiply-add takes four cycles, and two can start in each.
        """
        lanes, zeros = self.lanes, [self.lanes.splat(0.0) for _ in initial]
        half = stream.length >> 1
        second = _Stream(half, stream.inputs.at(half), stream.weights.at(half))

        def both(index: Number, sums: tuple[list[ir.Value], list[ir.Value]]) -> tuple[list[ir.Value], list[ir.Value]]:
            return self._step(stream, index, sums[0]), self._step(second, index, sums[1])

        sums = fold(half, (initial, zeros), both)
        total = [lanes.add(one, other) for one, other in zip(*sums, strict=True)]
        # an odd number leaves one connection
        return fold(stream.length, total, lambda index, now: self._step(stream, index, now), start=half << 1)

    def _step(self, stream: _Stream, index: Number, sums: list[ir.Value]) -> list[ir.Value]:
        columns = self._columns(stream.inputs.at(index))
        return self.lanes.add_products(sums, stream.weights[index], columns)

    def _columns(self, offset: Ints) -> list[ir.Value]:
        """Return the columns of the input whose offset is at an address."""
        source = self._row(self.x, offset[0])
        addresses = [source.at(self.lanes.width * index) for index in range(self.form.vectors)]
        return [self.lanes.load(address, self.lanes.size) for address in addresses]

    def _row_of_y(self, offset: Number) -> Floats:
        return self._row(self.y, offset)

    def _row(self, buffer: Floats, offset: Number) -> Floats:
        """Return the address of the row at `offset`, which counts bytes of tiles of 8 columns."""
        return buffer.after(offset * self.width // (OFFSET_UNIT // FLOAT_BYTES))
