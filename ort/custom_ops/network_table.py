"""A compiled network as the tables of 64-bit words that the operator library reads (`lowering/ort_tables.py`)."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from redpebble.kernels.tile_widths import tiles_of
from redpebble.lowering.buffer_packing import Lifetime, plan_offsets
from redpebble.lowering.llvm.builder import ALIGNMENT, FLOAT_BYTES
from redpebble.lowering.program import Program, Size, Temporary
from redpebble.lowering.program import Step as ProgramStep
from redpebble.ort.elf.linker import Data, Pointer
from redpebble.ort.native.tables import HEADER_WORDS, START_NS, Header, Step

NANOSECONDS: Final = 1000
"""In a microsecond."""

LITTLE_WORK: Final = 60_000
"""Multiplications that one thread does in `START_NS`."""

LEAST_CONNECTIONS: Final = 1000
"""What a row without connections is taken to be worth."""

FEW_TILES: Final = 4
"""Of the widest: beyond them all others take no time worth mentioning."""

LEAST_PIECE: Final = 16
"""Rows that a thread gets at least where any cut will do: a tile of fewer is mostly padding."""

Word = int | Pointer


@dataclass(frozen=True)
class WordTable:
    """Words under a name, some of them addresses of other symbols or of its own words."""

    symbol: str
    words: tuple[Word, ...]

    def as_data(self) -> Data:
        """Return the table for the linker."""
        numbers = [0 if isinstance(word, Pointer) else word for word in self.words]
        pointers = {8 * index: word for index, word in enumerate(self.words) if isinstance(word, Pointer)}
        return Data(self.symbol, struct.pack(f"<{len(numbers)}q", *numbers), pointers)

    def write_to(self, target: NDArray[np.int64], addresses: Mapping[str, int]) -> None:
        """Write the table to memory that lies at `addresses[symbol]`."""
        target[: len(self.words)] = [
            addresses[word.symbol] + word.addend if isinstance(word, Pointer) else word for word in self.words
        ]


class Symbols(NamedTuple):
    """The names of a network's parts: its table, what stands before its functions, and its packed constants."""

    table: str
    prefix: str
    constants: tuple[str, ...]


def symbols_of(program: Program, name: str) -> Symbols:
    """Return names for a network, all of which begin with `name`."""
    count = len(program.constants)
    return Symbols(f"{name}table", name, tuple(f"{name}constant{index}" for index in range(count)))


def network_table(program: Program, symbols: Symbols, output_places: Sequence[int] | None = None) -> WordTable:
    """Return the table of a network for a node, whose outputs stand at `output_places`, or in the network's order.

    Raises:
        ValueError: an axis of an input has no plain size.
    """
    places = range(len(program.outputs)) if output_places is None else output_places
    return _Draft(program, symbols, tuple(places)).table()


@dataclass
class _Draft:
    """A table under construction: the sizes of a call as expressions, each once."""

    program: Program
    symbols: Symbols
    output_places: tuple[int, ...]
    names: list[str] = field(default_factory=list[str])
    """Of the sizes that the inputs' shapes give."""
    expressions: list[Size] = field(default_factory=list[Size])

    def table(self) -> WordTable:
        program = self.program
        input_shapes = list(self._input_shapes())
        self.expressions += program.sizes
        first_equal = len(self.expressions)
        self.expressions += [size for pair in program.equal for size in pair]
        output_shapes = [
            word
            for tensor in program.outputs
            for word in (len(tensor.shape), *(self._expression(size) for size in tensor.shape))
        ]
        steps, widths = self._steps()
        temporaries, areas = self._places()
        ranks = [len(tensor.shape) for tensor in (*program.inputs, *program.outputs)]
        header: dict[Header, int] = {
            Header.Inputs: len(program.inputs),
            Header.Outputs: len(program.outputs),
            Header.Symbols: len(self.names),
            Header.Expressions: len(self.expressions),
            Header.Equals: len(program.equal),
            Header.FirstEqual: first_equal,
            Header.Steps: len(program.steps),
            Header.Temporaries: len(program.temporaries),
            Header.Areas: len(areas),
            Header.ScratchBytes: _round_up(program.scratch_bytes),
            Header.MostRank: max(ranks, default=0),
        }
        tables: dict[Header, Sequence[Word]] = {
            Header.InputShapes: input_shapes,
            Header.OutputShapes: output_shapes,
            Header.ExpressionTable: [word for size in self.expressions for word in self._terms(size)],
            Header.StepTable: [*steps, *widths],
            Header.TemporaryTable: [word for place in temporaries for word in place],
            Header.AreaTable: [word for area in areas for word in area],
            Header.Constants: [Pointer(name) for name in self.symbols.constants],
            Header.OutputPlaces: self.output_places,
        }
        return self._joined(header, tables)

    def _joined(self, header: Mapping[Header, int], tables: Mapping[Header, Sequence[Word]]) -> WordTable:
        words: list[Word] = [header.get(Header(index), 0) for index in range(HEADER_WORDS)]
        for entry, content in tables.items():
            start = 8 * len(words)
            words[entry] = Pointer(self.symbols.table, start)
            words += content
        return WordTable(self.symbols.table, tuple(words))

    def _input_shapes(self) -> Iterable[int]:
        for tensor in self.program.inputs:
            yield len(tensor.shape)
            for size in tensor.shape:
                if size.constant is not None:
                    yield size.constant
                    continue
                if size != Size.symbol(str(size)):
                    raise ValueError(f"input {tensor.name!r} has size {size}, expected a number or a name")
                if str(size) not in self.names:
                    self.names.append(str(size))
                yield -1 - self.names.index(str(size))

    def _expression(self, size: Size) -> int:
        if size not in self.expressions:
            self.expressions.append(size)
        return self.expressions.index(size)

    def _terms(self, size: Size) -> list[int]:
        powers = dict(size.powers)
        return [size.coefficient.numerator, size.coefficient.denominator, *(powers.get(n, 0) for n in self.names)]

    def _steps(self) -> tuple[list[Word], list[int]]:
        """Return the table of steps, and behind it that of their widths, to which it points by offsets in it."""
        steps: list[Word] = []
        widths: list[int] = []
        for step in self.program.steps:
            shared = step.tiled.shared if step.tiled is not None else None
            words: dict[Step, Word] = {
                Step.Function: Pointer(self.symbols.prefix + step.symbol),
                Step.Rows: -1 if step.rows is None else self._expression(step.rows),
                Step.TileRows: rows_apart(step),
                Step.Shared: 0 if shared is None else Pointer(self.symbols.prefix + shared),
                Step.Widths: len(step.tiled.times) if step.tiled is not None else 0,
                Step.AloneRows: rows_alone(step, sum(layer.connections for layer in self.program.report)),
                Step.WidthTable: len(widths),
            }
            steps += [words[word] for word in Step]
            widths += _width_words(step)
        return steps, widths

    def _places(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Return (area, bytes) for each temporary and (expression, bytes) for each area.

        Temporaries that are multiples of the same product of sizes share an area, whose unit is that product: with
        offsets in whole cache lines of a unit they do not overlap for any number of units. The others have areas of
        their own.
        """
        groups: dict[object, list[int]] = {}
        for index, temporary in enumerate(self.program.temporaries):
            groups.setdefault(_area_key(index, temporary), []).append(index)
        places: list[tuple[int, int]] = [(0, 0)] * len(self.program.temporaries)
        areas: list[tuple[int, int]] = []
        for indices in groups.values():
            members = [self.program.temporaries[index] for index in indices]
            if _is_multiple(members[0]):
                unit = members[0].size / Size.known(int(members[0].size.coefficient))
                lifetimes = [
                    Lifetime(FLOAT_BYTES * int(one.size.coefficient), one.first_step, one.last_step) for one in members
                ]
            else:
                unit, lifetimes = members[0].size, [Lifetime(FLOAT_BYTES, 0, 0)]
            plan = plan_offsets(lifetimes)
            for index, offset in zip(indices, plan.offsets, strict=True):
                places[index] = (len(areas), offset)
            bytes_each = plan.total if _is_multiple(members[0]) else FLOAT_BYTES
            areas.append((self._expression(unit), bytes_each))
        return places, areas


def _width_words(step: ProgramStep) -> list[int]:
    """Return the words of a step's widths, the widest first."""
    times = step.tiled.times if step.tiled is not None else ()
    words: list[int] = []
    for time in reversed(times):
        together = time.alone if time.together is None else time.together
        words += [time.width, time.least_rows, round(NANOSECONDS * time.alone), round(NANOSECONDS * together)]
    return words


def rows_alone(step: ProgramStep, connections: int) -> int:
    """Return the rows up to which one thread takes no longer than others take to begin.

    Estimates may be missing, and then are high: so few connections never take long.
    """
    return max(_estimated_rows_alone(step), LITTLE_WORK // max(connections, LEAST_CONNECTIONS))


def _estimated_rows_alone(step: ProgramStep) -> int:
    if step.tiled is None or not step.tiled.times:
        return 0
    nanoseconds = {time.width: round(NANOSECONDS * time.alone) for time in step.tiled.times}
    least, widest = step.tiled.least_rows, max(nanoseconds)
    for rows in range(1, FEW_TILES * widest + 1):
        if sum(nanoseconds[tiles.width] * tiles.number for tiles in tiles_of(least, rows)) > START_NS:
            return rows - 1
    return START_NS // max(nanoseconds[widest], 1) * widest


def rows_apart(step: ProgramStep) -> int:
    """Return of which number the rows are multiples at which threads may cut a step.

    The width of its tile can change the last bits of a row. Cut at multiples of the widest tile, all threads together
    make the tiles that one alone would make.
    """
    if step.tiled is None or not step.tiled.times:
        return 1
    widest = step.tiled.times[-1].width
    return min(LEAST_PIECE, widest) if step.tiled.same_from <= 1 else widest


def _is_multiple(temporary: Temporary) -> bool:
    size = temporary.size
    positive = all(power > 0 for _, power in size.powers)
    return positive and size.coefficient.denominator == 1 and size.coefficient > 0


def _area_key(index: int, temporary: Temporary) -> object:
    return temporary.size.powers if _is_multiple(temporary) else index


def _round_up(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
