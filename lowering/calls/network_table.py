"""A compiled network as the tables of 64-bit words that a host reads (`table`)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...dialect.symbolic_sizes import Windows
from ..buffer_packing import Lifetime, plan_offsets
from ..llvm.values import ALIGNMENT, FLOAT_BYTES
from ..program import Program, Size, Temporary
from ..program import Step as ProgramStep
from .table import Header, Step

WORD_BYTES: Final = 8

NO_SIZE: Final = -1
"""A number that no size is equal to."""

NANOSECONDS: Final = 1000
"""Nanoseconds in a microsecond."""

ELEMENT_TYPES: Final = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7}
"""ONNX's numbers for element types."""

LEAST_CONNECTIONS: Final = 1000
"""Connections that a row is taken to be worth at least."""


class SplitCosts(NamedTuple):
    """Costs of a host's threads."""

    start_ns: int
    """Nanoseconds that they take to begin and to be done."""
    start_connections: int
    """Multiplications that one thread does in that time: so few are not shared, whatever the estimates, which may be
    missing and then are high."""


IN_PROCESS: Final = SplitCosts(1000, 0)
"""On Emerald Rapids two threads take 0.9 to 1.2 microseconds more than half of the time of one."""
IN_ONNXRUNTIME: Final = SplitCosts(4000, 60_000)


class ParameterNumbers(NamedTuple):
    """Inputs and outputs of a host's node that are those of the network: None for as many in the same order."""

    inputs: Sequence[int] | None = None
    outputs: Sequence[int] | None = None


SAME_NUMBERS: Final = ParameterNumbers()


class Pointer(NamedTuple):
    """A 64-bit word that holds the address of `symbol` plus `addend`."""

    symbol: str
    addend: int = 0


Word = int | Pointer


@dataclass(frozen=True)
class WordTable:
    """Words under a name, some of them addresses of other symbols or of its own words."""

    symbol: str
    words: tuple[Word, ...]

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


def network_table(
    program: Program, symbols: Symbols, costs: SplitCosts, numbers: ParameterNumbers = SAME_NUMBERS
) -> WordTable:
    """Return the table of a network for a host, whose node has its inputs and outputs by `numbers`.

    Raises:
        ValueError: an axis of an input has no plain size, or a size is a sum and the host computes none.
    """
    return _TableBuilder(program, symbols, costs, numbers).table()


@dataclass
class _TableBuilder:
    """A table under construction: the sizes of a call as expressions, each once."""

    program: Program
    symbols: Symbols
    costs: SplitCosts
    numbers: ParameterNumbers
    names: list[str] = field(default_factory=list[str])
    """Names of the sizes that the inputs' shapes give, and behind them those of sums."""
    expressions: list[Size] = field(default_factory=list[Size])

    def table(self) -> WordTable:
        program = self.program
        input_shapes = list(self._input_shapes())
        self.names += program.computed
        windows = [] if self.costs is IN_PROCESS else [*self._windows()]
        self.expressions += program.sizes
        first_equal = len(self.expressions)
        for first, second, or_one, plus in program.equal:
            self.expressions += [first, second, plus, Size.known(1 if or_one else NO_SIZE)]
        for size, least in program.least:
            self.expressions += [size, Size.known(least)]
        output_shapes = [
            word
            for tensor in program.outputs
            for word in (len(tensor.shape), *(self._expression(size) for size in tensor.shape))
        ]
        steps, widths = self._steps()
        temporaries, areas = self._temporary_offsets()
        scratches = [(one.whole, self._expression(one.size), one.each) for one in program.scratch_of_sizes]
        ranks = [len(tensor.shape) for tensor in (*program.inputs, *program.outputs)]
        header: dict[int, int] = {
            Header.inputs: len(program.inputs),
            Header.outputs: len(program.outputs),
            Header.symbols: len(self.names),
            Header.expressions: len(self.expressions),
            Header.equals: len(program.equal),
            Header.first_equal: first_equal,
            Header.leasts: len(program.least),
            Header.steps: len(program.steps),
            Header.temporaries: len(program.temporaries),
            Header.areas: len(areas),
            Header.scratch_bytes: _round_up(program.scratch_bytes),
            Header.most_rank: max(ranks, default=0),
            Header.windows: len(windows),
            Header.scratches: len(scratches),
            Header.start_ns: self.costs.start_ns,
        }
        tables: dict[int, Sequence[Word]] = {
            Header.input_shapes: input_shapes,
            Header.output_shapes: output_shapes,
            Header.expression_table: [word for size in self.expressions for word in self._terms(size)],
            Header.step_table: steps,
            Header.temporary_table: [word for offset in temporaries for word in offset],
            Header.area_table: [word for area in areas for word in area],
            Header.window_table: [word for one in windows for word in one],
            Header.scratch_table: [word for scratch in scratches for word in scratch],
            Header.constants: [Pointer(name) for name in self.symbols.constants],
            Header.output_numbers: _numbers(self.numbers.outputs, len(program.outputs)),
            Header.input_numbers: _numbers(self.numbers.inputs, len(program.inputs)),
            Header.input_types: [ELEMENT_TYPES[tensor.dtype] for tensor in program.inputs],
            Header.output_types: [ELEMENT_TYPES[tensor.dtype] for tensor in program.outputs],
        }
        return self._joined(header, widths, tables)

    def _windows(self) -> Iterable[tuple[int, int, int, int]]:
        for name in self.program.computed:
            windows = Windows.of(name)
            if windows is None or windows.size not in self.names:
                raise ValueError(f"expected products of the inputs' sizes, got the sum {Size.symbol(name)}")
            yield self.names.index(windows.size), windows.added, windows.step, windows.fewest

    def _joined(
        self, header: Mapping[int, int], widths: Sequence[int], tables: Mapping[int, Sequence[Word]]
    ) -> WordTable:
        words: list[Word] = [*(header.get(word, 0) for word in range(Header.word_count)), *widths]
        for entry, content in tables.items():
            start = WORD_BYTES * len(words)
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
                    raise ValueError(f"input {tensor.name!r}: expected a number or a name as size, got {size}")
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
        """Return the table of steps, and that of their widths, which lies behind the header."""
        steps: list[Word] = []
        widths: list[int] = []
        connections = max(LEAST_CONNECTIONS, sum(layer.connections for layer in self.program.report))
        for step in self.program.steps:
            tiled = step.tiled
            shared = tiled.shared if tiled is not None else None
            words: dict[int, Word] = {
                Step.function: Pointer(self.symbols.prefix + step.symbol),
                Step.rows: -1 if step.rows is None else self._expression(step.rows),
                Step.same_from: tiled.same_from if tiled is not None else 0,
                Step.shared: 0 if shared is None else Pointer(self.symbols.prefix + shared),
                Step.widths: len(tiled.times) if tiled is not None else 0,
                Step.serial_rows: self.costs.start_connections // connections,
                Step.may_fail: int(step.may_fail),
                Step.width_table: Pointer(self.symbols.table, WORD_BYTES * (Header.word_count + len(widths))),
            }
            steps += [words[word] for word in range(Step.word_count)]
            widths += _width_words(step)
        return steps, widths

    def _temporary_offsets(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Return (area, bytes) for each temporary and (expression, bytes) for each area.

        Temporaries that are multiples of the same product of sizes share an area, whose unit is that product: with
        offsets in whole cache lines of a unit they do not overlap for any number of units. The others have areas of
        their own.
        """
        groups: dict[object, list[int]] = {}
        for index, temporary in enumerate(self.program.temporaries):
            groups.setdefault(_area_key(index, temporary), []).append(index)
        offsets: list[tuple[int, int]] = [(0, 0)] * len(self.program.temporaries)
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
                offsets[index] = (len(areas), offset)
            bytes_each = plan.total if _is_multiple(members[0]) else FLOAT_BYTES
            areas.append((self._expression(unit), bytes_each))
        return offsets, areas


def _numbers(stated: Sequence[int] | None, count: int) -> Sequence[int]:
    return range(count) if stated is None else stated


def _width_words(step: ProgramStep) -> list[int]:
    """Return the words of a step's widths, the widest first."""
    words: list[int] = []
    for time in reversed(step.tiled.times if step.tiled is not None else ()):
        shared_us = time.serial_us if time.shared_us is None else time.shared_us
        words += [time.width, time.least_rows, *(round(NANOSECONDS * us) for us in (time.serial_us, shared_us))]
    return words


def _is_multiple(temporary: Temporary) -> bool:
    size = temporary.size
    positive = all(power > 0 for _, power in size.powers)
    return positive and size.coefficient.denominator == 1 and size.coefficient > 0


def _area_key(index: int, temporary: Temporary) -> object:
    return temporary.size.powers if _is_multiple(temporary) else index


def _round_up(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
