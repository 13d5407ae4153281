"""A loop over steps as a step of a program: each of them runs the tile of the body on all rows, states in place.

    states = starts, or zeros                        the last states [B, H] hold those between steps, too
    for each time, from the last one where the scan is reversed
        for each run of rows that have this time     one of all rows where there are no lengths
            tile (x[time], states) -> states         it reads its rows before it writes them
            sequence[time] = first state
        sequence[time] = 0 in all other rows

A row that does not have a time keeps its state: it has come to its end, or, from the last time on, has not begun. So
samples of different lengths stay where they are. Weights are read at each step from the cache that holds them: states,
and one step of x, are all that moves.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from llvmlite import ir
from xdsl.ir import BlockArgument, OpResult, SSAValue

from ...dialect.ops.recurrences import ScanOp
from ...dialect.ops.tile import TileOp
from ...dialect.symbolic_sizes import Size, SymbolicShape
from ...dialect.tensors import shape_of
from ..llvm.flow import fold, loop, select, when
from ..llvm.strided import Strided, StridedMap, emit_copy, emit_strided
from ..llvm.values import Floats, Ints, Number, Truth
from ..llvm.vectors import Lanes
from ..program import EqualSizes, TiledRows
from .row_major import RowMajorStep, RowRange
from .tile_loop import TileStep, emit_tile_loop, tiled_rows

STEPS: Final = 64
"""Steps of a sequence, about, for how threads share the rows: only a call knows."""


def tile_of(op: ScanOp) -> TileOp:
    """Return the tile that a step runs.

    Raises:
        ValueError: the body is no single tile.
    """
    first, *others = op.body.block.ops
    if not isinstance(first, TileOp) or len(others) != 1:
        raise ValueError(f"{op.name} has no code without one pebble.tile as its body: run pebble-form-tiles before")
    return first


def scan_rows(op: ScanOp, shapes: Mapping[SSAValue, SymbolicShape]) -> Size:
    """Return the rows of the step: samples."""
    return shapes[op.x][1]


def scan_tiles(op: ScanOp) -> TiledRows:
    """Return how threads may cut those rows."""
    tiled = tiled_rows(tile_of(op))
    return replace(tiled, times=tuple(replace(one, serial_us=STEPS * one.serial_us) for one in tiled.times))


def samples_taken_as_equal(op: ScanOp, shapes: Mapping[SSAValue, SymbolicShape]) -> Sequence[EqualSizes]:
    """Return the sizes that have to be the same in a call: those of samples."""
    others = (*op.starts, *([] if op.lengths is None else [op.lengths]))
    sizes = dict.fromkeys(shapes[value][0] for value in others)
    return [EqualSizes(shapes[op.x][1], size) for size in sizes if size != shapes[op.x][1]]


@dataclass(frozen=True)
class ScanStep:
    """The code of a step."""

    op: ScanOp
    step: RowMajorStep

    def emit(self) -> int:
        """Emit the loop for the rows of the step; return the bytes of scratch that its tiles need."""
        op, step = self.op, self.step
        tile, scratch_bytes = tile_of(op), 0
        known = step.tile_constants(tile)
        table = known.pointers(step.table)
        first, end = step.rows
        self._start()
        steps, samples = (step.number(size) for size in step.sizes.shapes[op.x][:2])
        is_read = op.sequence.uses.get_length() > 0
        with loop(steps) as done:
            time = steps - 1 - done if op.reverse is not None else done
            before = time * samples

            def run(rows: RowRange) -> None:
                nonlocal scratch_bytes
                pointers = self._pointers(tile, before)
                scratch_bytes = emit_tile_loop(
                    step.code, tile, TileStep(known.number, pointers, known.table, table, step.scratch, rows)
                )
                if is_read:
                    state = self._rows(op.finals[0], rows.first)
                    emit_copy(step.code, state, self._rows(op.sequence, before + rows.first), self._values(rows))

            if op.lengths is None:
                run(RowRange(first, end))
            else:
                self._each_run(time, run)
                if is_read:
                    with loop(end - first) as offset, when(~self._has(first + offset, time)):
                        row = before + first + offset
                        self._clear(self._rows(op.sequence, row), first.constant(self._width(op.sequence)))
        if op.lengths is not None:
            # a sample without steps has no last states, as in onnxruntime
            with loop(end - first) as offset, when(~self._has(first + offset, first.constant(0))):
                for state in op.finals:
                    self._clear(self._rows(state, first + offset), first.constant(self._width(state)))
        return scratch_bytes

    def _pointers(self, tile: TileOp, before: Number) -> dict[SSAValue, Floats]:
        """Return the addresses of what the tile reads and writes at a time before which there are so many rows."""
        op = self.op
        # a step, and the states
        outside = [self._rows(op.x, before), *(self.step.pointers[value] for value in op.finals)]
        pointers: dict[SSAValue, Floats] = {}
        for value in tile.inputs:
            assert isinstance(value, BlockArgument)
            pointers[value] = outside[value.index]
        for value, state in zip(op.yielded, op.finals, strict=True):
            assert isinstance(value, OpResult)
            pointers[tile.outputs[value.index]] = self.step.pointers[state]
        return pointers

    def _start(self) -> None:
        """Emit the states before the first step."""
        op, (first, end) = self.op, self.step.rows
        for index, state in enumerate(op.finals):
            values = (end - first) * self._width(state)
            if index < len(op.starts):
                emit_copy(self.step.code, self._rows(op.starts[index], first), self._rows(state, first), values)
            else:
                self._clear(self._rows(state, first), values)

    def _each_run(self, time: Number, run: Callable[[RowRange], None]) -> None:
        """Emit work for the rows that have a time, as many of them at once as lie side by side."""
        first, end = self.step.rows

        def beyond(row: Number, stop: Number) -> Number:
            goes_on = (stop == row) & self._has(row, time)
            return select(goes_on, row + 1, stop)

        with loop(end - first) as offset:
            row = first + offset
            is_first = (offset == 0) | ~self._has((row - 1).larger(first), time)
            with when(self._has(row, time) & is_first):
                run(RowRange(row, fold(end, row, beyond, start=row)))

    def _has(self, row: Number, time: Number) -> Truth:
        """Return whether a row has a time."""
        assert self.op.lengths is not None
        length = self.step.pointers[self.op.lengths].cast(Ints).narrow(row).signed()
        return time < length

    def _clear(self, target: Floats, values: Number) -> None:
        def zeros(lanes: Lanes, _: Sequence[ir.Value]) -> ir.Value:
            return lanes.splat(0.0)

        emit_strided(self.step.code, [values], StridedMap(Strided(target, (1,)), [], zeros))

    def _rows(self, value: SSAValue, row: Number) -> Floats:
        return self.step.pointers[value].at(row * self._width(value))

    def _values(self, rows: RowRange) -> Number:
        return (rows.end - rows.first) * self._width(self.op.finals[0])

    @staticmethod
    def _width(value: SSAValue) -> int:
        return shape_of(value)[-1]
