"""The loop that cuts rows into tiles of the widths for which code exists, for one thread or for all together."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from llvmlite import ir
from xdsl.ir import Operation, SSAValue

from ...dialect.attributes.kernels import KernelAttr
from ...dialect.ops.axis_maps import axis_map_of
from ...dialect.ops.layers import LinearOp
from ...dialect.ops.tile import TileOp, chain_in
from ...kernels.families import are_rows, takes_any_rows
from ..calls.row_tiles import tiles_of_width
from ..llvm.builder import Code
from ..llvm.call_tables import ConstantTable
from ..llvm.flow import call, loop, when
from ..llvm.values import Bytes, Floats, Number, Pointers, Value
from ..program import TiledRows, TileTime
from .depth_first_groups import groups_at
from .emitters import emit
from .live_rows import RowCompaction, RowCompactionCode
from .row_major import RowRange, Sharing
from .row_tile import RowTile, is_of_rows, plan_rows, row_bytes
from .thread_shares import EVERYONE, Cut, SharedPlan, plan_alone, plan_sharing, private_arguments
from .tile_code import RowBlock, ThreadTeam, TileCode, TileRows
from .tile_memory import Span, TileMemory, features_of, plan_tile

LIVE_SHARE = 0.25
"""Share of the work that is left where dead rows are dropped: a guess, only for how threads share the rows."""

LEAST_COLUMNS = 8
"""Columns of the narrowest tile for more than one row."""

MOST_PIECES = 64
"""Ops of one function of a tile, ways in and out among them: LLVM takes time with the square of a block's length."""

_Tile = TileCode | RowTile

UNKNOWN_US = 5.0
"""Microseconds for a column in a tile whose time nobody has estimated."""


@dataclass(frozen=True)
class TileStep:
    """A step of a program, given to the loop over its tiles."""

    index: int
    pointers: Mapping[SSAValue, Floats]
    """The addresses of operands and results."""
    constants: ConstantTable
    table: Pointers
    """The table of the addresses of packed constants."""
    scratch: Bytes
    rows: RowRange


class _TileCall(NamedTuple):
    """A function for tiles of `width` columns, and its arguments but for the rows."""

    function: ir.Function
    arguments: Sequence[Value]
    width: int


def emit_tile_loop(code: Code, op: TileOp, step: TileStep, sharing: Sharing | None = None) -> int:
    """Emit the tiles of `op` over the rows of a step; return the bytes of scratch that a tile needs.

    The widest tile comes first, while `least_rows` are left for it: fewer rows are done sooner by narrower tiles than
    by one that is mostly padding. Which rows come together does not depend on `sharing`: with it threads do the wide
    tiles together, and of those that are too narrow for that each some.
    """
    widths, least, scratch_bytes = op.schedule.widths, op.schedule.least_rows, 0
    arguments = [*(step.pointers[value] for value in (*op.inputs, *op.outputs)), step.table, step.scratch]
    row, end = step.rows
    compaction = RowCompaction.of(op)
    if compaction is not None and sharing is None:
        scratch_bytes = compaction.memory.total
        function = RowCompactionCode(code, compaction, step.constants, f"live_rows{step.index}").function()
        row = _emit_live_rows(step.rows, _TileCall(function, arguments, compaction.width))
    for width in reversed(widths):
        shared = sharing if width in op.schedule.shared else None
        form = _TileForm(code, op, width, f"tile{step.index}_w{width}{'_shared' if shared is not None else ''}")
        function, used = form.function(step.constants)
        scratch_bytes = max(scratch_bytes, used)
        made = RowRange(row, _end_of_tiles(RowRange(row, end), width, least[width]))
        if shared is None and sharing is not None:
            _emit_claimed(made, _TileCall(function, [*arguments[:-1], sharing.scratch], width), sharing)
        else:
            _emit_width(made, _TileCall(function, [*arguments, *(shared or ())], width))
        row = made.end
    return scratch_bytes


def same_from(op: TileOp) -> int:
    """Return the width from which on all tiles make the same bits of a row.

    Kernels differ in the order in which they add, and in tiles of one column sums run over vectors of features, but for
    a family for any number of rows, whose sums have one order only.
    """
    widths, ops = op.schedule.widths, list(op.body.block.ops)
    if chain_in(op) is not None:
        return widths[0]  # sums of integers
    if op.depth_first is not None:
        narrowest = max((width for width in widths if is_of_rows(op, width)), default=0) + 1
        return min(width for width in widths if width >= max(op.depth_first.width, min(narrowest, widths[-1])))
    kernels = [inner.kernel for inner in ops if isinstance(inner, LinearOp) and inner.kernel is not None]
    reducing = [inner for inner in ops if (axis_map := axis_map_of(inner)) is not None and axis_map.reduces]
    if not reducing:
        return widths[0]
    linear = all(isinstance(inner, LinearOp) for inner in reducing)
    dense = all(takes_any_rows(kernel.family_at(widths[0])) for kernel in kernels)
    same = [
        width
        for width in widths
        if (width > 1 or (linear and dense))
        and all(
            kernel.family_at(wider) == kernel.family_at(widths[-1])
            for wider in widths
            if wider >= width
            for kernel in kernels
        )
    ]
    return min(same, default=widths[-1])


def tiled_rows(op: TileOp) -> TiledRows:
    """Return the tiles that rows are cut into, with the times that the schedule gives."""
    return TiledRows(tile_times(op), same_from(op))


def tile_times(op: TileOp) -> tuple[TileTime, ...]:
    """Return the times that the schedule gives for each width; tiles of unknown times are worth a thread."""
    serial_us, shared_us, least = op.schedule.serial, op.schedule.shared, op.schedule.least_rows
    times = [
        TileTime(width, least[width], serial_us.get(width, UNKNOWN_US * (width + 8)), shared_us.get(width))
        for width in op.schedule.widths
    ]
    if op.dead_rows is not None and op.dead_rows.width not in op.schedule.widths:
        width, widest = op.dead_rows.width, times[-1]
        time = LIVE_SHARE * widest.serial_us * width / widest.width
        times.append(TileTime(width, least_compacted_rows(width), time))
    return tuple(times)


def _emit_live_rows(rows: RowRange, tile: _TileCall) -> Number:
    """Emit row compaction of as many rows as fill tiles, the last one half at least; return the next row."""
    stop = _end_of_tiles(rows, tile.width, least_compacted_rows(tile.width))
    with when(rows.first < stop):
        call(tile.function, *tile.arguments, rows.first, stop)
    return stop


def least_compacted_rows(width: int) -> int:
    """Return the rows for which a tile whose dead rows are dropped is begun."""
    return width // 2 + 1


def _end_of_tiles(rows: RowRange, width: int, least: int) -> Number:
    """Return the row behind the tiles of one width that are made of some rows."""
    return rows.first + tiles_of_width(rows.end - rows.first, width, least).rows


def _emit_width(rows: RowRange, tile: _TileCall) -> None:
    """Emit tiles of one width."""
    with loop(rows.end - rows.first, tile.width) as offset:
        _emit_tile(rows, offset, tile)


def _emit_claimed(rows: RowRange, tile: _TileCall, sharing: Sharing) -> None:
    """Emit tiles of one width, of which each thread claims some."""
    with sharing.each((rows.end - rows.first).divided_up(tile.width), meets=False) as number:
        _emit_tile(rows, number * tile.width, tile)


def _emit_tile(rows: RowRange, offset: Number, tile: _TileCall) -> None:
    row = rows.first + offset
    call(tile.function, *tile.arguments, row, (rows.end - row).smaller(tile.width))


class _TileArguments(NamedTuple):
    """Arguments of a tile: the buffers of operands and results, tables, scratch, what threads share it by, the rows."""

    buffers: Sequence[Floats]
    table: Pointers
    scratch: Bytes
    sharing: Sharing | None
    first: Number
    rows: Number

    def rows_of(self, value: SSAValue, number: int) -> RowBlock:
        """Return the rows of an operand or result, by its number among them."""
        return RowBlock(_row(self.buffers[number], self.first, value), self.rows)


class _Piece(NamedTuple):
    """A piece of a tile, a way in, an op or a way out: its code, and how it is cut."""

    emit: Callable[[_TileArguments, _Tile, Cut], None]
    cut: Cut
    needs_barrier: bool = False
    """Whether all shares of the pieces before have to be done."""


_Phase = Sequence[_Piece]
"""Pieces that follow each other in each share, wherever the other shares are."""

_TileOf = Callable[[_TileArguments, Number | None], _Tile]
"""Returns the code of a tile, for one share where threads share it."""


@dataclass(frozen=True)
class _TileForm:
    """The function of one tile: for which width, and under which name."""

    code: Code
    op: TileOp
    width: int
    name: str

    def function(self, constants: ConstantTable) -> tuple[ir.Function, int]:
        """Return `void (operands..., results..., constants, scratch, [team...,] first row, rows)` and its scratch."""
        op, of_rows = self.op, is_of_rows(self.op, self.width)
        memory, total = plan_rows(op, self.width) if of_rows else _whole(plan_tile(op, self._columns))
        plan = plan_sharing(op, memory.spans, 1 if of_rows else self._columns) if self._is_shared else plan_alone(op)
        everyone, phases = _phases(op, plan)

        def tile_of(tile: _TileArguments, share: Number | None) -> _Tile:
            team = None if tile.sharing is None or share is None else self._team(memory.spans, tile.sharing, share)
            leaving, tables = self._leaving(tile.buffers[len(op.inputs) :], tile.first), (constants, tile.table)
            if of_rows:
                one = TileCode(self.code, tables, 1, tile.scratch, memory.spans, team)
                return RowTile(one, row_bytes(memory), self.width, tile.rows, leaving)
            rows = TileRows(self.width, tile.rows, leaving | self._transposed(tile.buffers, tile.first))
            return TileCode(self.code, tables, self._columns, tile.scratch, memory.spans, team, rows)

        def body(given: _TileArguments) -> None:
            if given.sharing is None:
                self._emit_phases(phases, given, tile_of)
                return
            with given.sharing.unless_done(len(phases) * op.schedule.shares):
                _emit_pieces(everyone, given, tile_of(given, given.first.constant(0)))
                self._emit_phases(phases, given, tile_of)

        return self._kernel(self.name, body), total

    def _emit_phases(self, phases: Sequence[_Phase], given: _TileArguments, tile_of: _TileOf) -> None:
        """Emit phases: where they have many pieces, in functions of their own with the arguments of the tile's."""

        def emitted(part: Sequence[_Phase], given: _TileArguments) -> None:
            for phase in part:
                if given.sharing is None:
                    _emit_pieces(phase, given, tile_of(given, None))
                    continue
                with given.sharing.each(self.op.schedule.shares, meets=False) as share:
                    _emit_pieces(phase, given, tile_of(given, share))

        parts = [*_parts(phases)]
        if len(parts) == 1:
            emitted(phases, given)
            return
        for part in parts:
            name = self.code.module.get_unique_name(f"{self.name}_part")
            call(self._kernel(name, partial(emitted, part)), *(one for one in given if one is not None))

    def _kernel(self, name: str, body: Callable[[_TileArguments], None]) -> ir.Function:
        def together(
            *buffers: Floats, table: Pointers, scratch: Bytes, sharing: Sharing, first: Number, rows: Number
        ) -> None:
            body(_TileArguments(buffers, table, scratch, sharing, first, rows))

        def alone(*buffers: Floats, table: Pointers, scratch: Bytes, first: Number, rows: Number) -> None:
            body(_TileArguments(buffers, table, scratch, None, first, rows))

        kernel = self.code.kernel(name, rest=len(self.op.inputs) + len(self.op.outputs))
        return kernel(together if self._is_shared else alone)

    @property
    def _is_shared(self) -> bool:
        return self.name.endswith("_shared")

    @property
    def _columns(self) -> int:
        """The columns of the tile: those of its width, and more where vectors would not hold whole ones."""
        unit = max(LEAST_COLUMNS, self.code.target.lanes) if self.width > LEAST_COLUMNS else LEAST_COLUMNS
        return 1 if self.width == 1 else -(-self.width // unit) * unit

    def _leaving(self, results: Sequence[Floats], first: Number) -> dict[SSAValue, Floats]:
        """Return the rows of the results that a kernel can write itself: nobody inside the tile reads them."""
        return {
            value: _row(buffer, first, value)
            for value, buffer in zip(self.op.yielded, results, strict=True)
            if isinstance(value.owner, LinearOp)
            and value.owner.kernel is not None
            and self._writes_rows(value.owner.kernel)
            and len(list(value.uses)) == 1
        }

    def _writes_rows(self, kernel: KernelAttr) -> bool:
        """Return whether a layer's kernel can write rows to where they leave the tile."""
        family = kernel.family_at(self.width)
        return are_rows([family]) if is_of_rows(self.op, self.width) else takes_any_rows(family)

    def _transposed(self, buffers: Sequence[Floats], first: Number) -> dict[SSAValue, Floats]:
        """Return the rows that groups of layers read and write themselves."""
        groups = groups_at(self.op, self._columns).values()
        transposed = {value for group in groups for value in group.transposed_values}
        ends = zip((*self.op.body.block.args, *self.op.yielded), buffers, strict=True)
        return {value: _row(buffer, first, value) for value, buffer in ends if value in transposed}

    def _team(self, spans: Mapping[SSAValue, Span], sharing: Sharing, share: Number) -> ThreadTeam:
        return ThreadTeam(self.op.schedule.shares, share, sharing.scratch, private_arguments(self.op, spans))


def _phases(op: TileOp, plan: SharedPlan) -> tuple[_Phase, Sequence[_Phase]]:
    """Return what every thread does for itself, and the phases that follow."""
    ways_in = [
        _Piece(partial(_load, argument, number), cut)
        for number, (argument, cut) in enumerate(zip(op.body.block.args, plan.arguments, strict=True))
    ]
    pieces = [piece for piece in ways_in if piece.cut != EVERYONE]
    pieces += [_Piece(partial(_emit_op, inner), share.cut, share.needs_barrier) for inner, share in plan.ops.items()]
    pieces += [
        _Piece(partial(_store, value, len(op.inputs) + number), share.cut, share.needs_barrier)
        for number, (value, share) in enumerate(zip(op.yielded, plan.results, strict=True))
    ]
    phases: list[list[_Piece]] = [[]]
    for piece in pieces:
        if piece.needs_barrier or len(phases[-1]) == MOST_PIECES:
            phases.append([])
        phases[-1].append(piece)
    return [piece for piece in ways_in if piece.cut == EVERYONE], [phase for phase in phases if phase]


def _parts(phases: Sequence[_Phase]) -> Iterator[Sequence[_Phase]]:
    """Yield phases with as many pieces together as a function may have."""
    part: list[_Phase] = []
    for phase in phases:
        if part and sum(map(len, part)) + len(phase) > MOST_PIECES:
            yield part
            part = []
        part.append(phase)
    yield part


def _emit_pieces(phase: _Phase, given: _TileArguments, tile: _Tile) -> None:
    for piece in phase:
        piece.emit(given, tile, piece.cut)


def _emit_op(op: Operation, _: _TileArguments, tile: _Tile, cut: Cut) -> None:
    if isinstance(tile, RowTile):
        tile.emit_op(op, cut, emit)
    else:
        emit(op, tile, cut)


def _load(value: SSAValue, number: int, given: _TileArguments, tile: _Tile, cut: Cut) -> None:
    """Emit the way in, but for what is read where it is."""
    rows = given.rows_of(value, number)
    if isinstance(tile, RowTile):
        tile.load(value, rows.address, cut)
    elif tile.rows is None or value not in tile.rows.direct:
        tile.load_rows(value, rows, cut)


def _store(value: SSAValue, number: int, given: _TileArguments, tile: _Tile, cut: Cut) -> None:
    """Emit the way out, but for what is there already."""
    rows = given.rows_of(value, number)
    if isinstance(tile, RowTile):
        tile.store(value, rows.address, cut)
    elif tile.rows is None or value not in tile.rows.direct:
        tile.store_rows(value, rows, cut)


def _whole(memory: TileMemory) -> tuple[TileMemory, int]:
    """Return the memory of a tile of columns, and its bytes."""
    return memory, memory.total


def _row(buffer: Floats, row: Number, value: SSAValue) -> Floats:
    """Return the address of a row of a row-major buffer with the features of `value`."""
    return buffer.at(row * features_of(value))
