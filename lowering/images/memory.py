"""Memory plan of an image network: the planes of its values in scratch memory; what is dead makes room.

Values are floats, or codes: integers of eight bits that stand for values, value = scale * (code - zero).

The parts of a concat of channels lie in the whole, where nobody else has put them, and those of a split as well.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from xdsl.ir import Operation, SSAValue

from ...dialect.attributes.window import Pair
from ...dialect.ops.image_network import ImageNetworkOp
from ...dialect.ops.images import Conv2dOp, Depthwise2dOp, Pool2dOp, WindowOp, expansion_of, image_shape
from ...dialect.ops.movement import ConcatOp, SplitOp
from ...dialect.ops.regions import YieldOp
from ...dialect.tensors import shape_of
from ...kernels.byte_quads import QUAD
from ...kernels.tile_widths import PIXELS
from ..buffer_packing import Lifetime
from ..kernels.table import kernel_at
from ..llvm.values import ALIGNMENT, FLOAT_BYTES
from ..quantized.found_codes import BOUNDS_BYTES
from ..shared_buffers import SharedBuffers
from .bands import BandedOps, Copies, Stage
from .geometry import Phases, Plane, planes_of, reads_all
from .open_rows import OpenRows
from .stored_codes import StoredCodes
from .windows import OUTSIDE_BYTES

GUARD_BYTES: Final = ALIGNMENT
"""Bytes before and behind a buffer that may be read as part of a vector."""

ARGUMENT_BYTES: Final = BOUNDS_BYTES + OUTSIDE_BYTES
"""Bytes of what is found of an argument: the words of its codes, and the line outside of all tiles."""

PADDED: Final = 16
"""Numbers to whose multiples those of a convolution are padded."""

MOST_POSITIONS: Final = 1.25
"""Positions of phases over those of the image, up to which a pointwise convolution computes phases."""

ARRIVAL: Final = -1
"""The step in which arguments come in."""


@dataclass(frozen=True)
class View:
    """A value in scratch memory: `channels` from `first` on, in tiles that hold `all_channels`."""

    plane: Plane
    start: int
    """Bytes from the beginning of the scratch memory."""
    channels: int
    all_channels: int
    first: int = 0
    item: int = FLOAT_BYTES
    """Bytes of a value: of a float, or of a code."""
    start_of_tile: int = 0
    """Bytes to the beginning for each tile of an image whose length only a call knows."""

    @property
    def tile_values(self) -> int:
        """Values between two tiles."""
        return self.all_channels * self.plane.tile

    @property
    def row_values(self) -> int:
        """Values from the first position of a channel to the end of its last tile."""
        return (self.plane.stored - 1) * self.tile_values + self.plane.tile

    def apart(self, parts: int) -> "View":
        """Return the same where each of some parts of the channels is a tile of its own."""
        plane = replace(self.plane, ring=self.plane.ring * parts)
        return replace(self, plane=plane, channels=self.channels // parts, all_channels=self.all_channels // parts)

    @property
    def bytes(self) -> int:
        """Bytes of the buffer."""
        return self.plane.stored * self.tile_values * self.item + 2 * GUARD_BYTES


class Phased(NamedTuple):
    """A pointwise convolution whose results are the phases that a depthwise one of a stride reads."""

    reader: Depthwise2dOp
    x: View
    """The phases of what it reads itself."""
    y: View
    parts: int


@dataclass(frozen=True)
class ImageMemory:
    """The place of each value, of the phases that ops read, of what a thread works on, and the bytes of all."""

    views: dict[SSAValue, View]
    phases: dict[Operation, View]
    phased: dict[Operation, Phased]
    own_bytes: int
    total: int
    """All bytes, but for those of each tile."""
    total_of_tile: int
    """Bytes for each tile of an image whose length only a call knows."""
    zeroed: frozenset[SSAValue]
    """Values whose positions without a pixel have to be zeros."""
    stored: StoredCodes
    found: dict[SSAValue | Operation, int]
    """Offset in the bytes of a thread of what it finds of an argument, and of a convolution that reads it."""
    groups: list[Operation | BandedOps]
    """All ops: one by one, or those of a group that runs in bands."""


def ops_of(network: ImageNetworkOp) -> list[Operation]:
    """Return the ops of a network without its end."""
    return [op for op in network.body.block.ops if not isinstance(op, YieldOp)]


def needs_phases(op: Operation, stored: StoredCodes) -> bool:
    """Return whether an op reads copies of the pixels: those of a stride, with other values for pads, or as codes."""
    if isinstance(op, Conv2dOp | Depthwise2dOp):
        is_rounded = isinstance(op, Conv2dOp) and op.codes is not None and op.x not in stored.codes
        return is_rounded or not Phases.of(op.window).is_whole
    return isinstance(op, Pool2dOp) and not reads_all(op)


def plan_images(network: ImageNetworkOp, lanes: int, rows: OpenRows | None = None) -> ImageMemory:
    """Return the memory plan of a network, whose lengths may be open, for vectors of so many lanes."""
    plan = _Plan(network, lanes, rows)
    return plan.finish()


@dataclass
class _Plan:
    network: ImageNetworkOp
    lanes: int
    rows: OpenRows | None
    shared: SharedBuffers = field(default_factory=SharedBuffers)
    steps: dict[Operation, tuple[int, int]] = field(default_factory=dict[Operation, tuple[int, int]])
    """The first and the last step in which an op runs."""
    rings: dict[SSAValue, int] = field(default_factory=dict[SSAValue, int])
    """Tiles of the buffers of which not all are there at the same time."""

    def __post_init__(self) -> None:
        self.ops = ops_of(self.network)
        self.arguments = list(self.network.body.block.args)
        values = [*self.arguments, *(result for op in self.ops for result in op.results)]
        self.phased: dict[Operation, Depthwise2dOp] = {}
        self.planes = planes_of(self.ops, values, self.lanes) if self.rows is None else {}
        self.stored = StoredCodes.of(self.arguments, self.ops)
        self.phased = self._phased()
        same = self.stored.same
        made = (one for op in self.ops for one in op.results if op not in self.phased)
        self.values = [*self.arguments, *(one for one in made if one not in same)]
        self.groups = self._groups()
        self.written: dict[SSAValue, int] = dict.fromkeys(self.arguments, ARRIVAL)
        self.read: dict[SSAValue, int] = dict.fromkeys(self.values, ARRIVAL)
        for step, op in enumerate(self.ops):
            # what runs in bands is alive in all of them
            group = self.groups.get(op)
            first, last = (step, step) if group is None else map(self.ops.index, (group.ops[0], group.ops[-1]))
            self.written |= dict.fromkeys(op.results, first)
            self.read |= dict.fromkeys([*map(self.stored.place, op.operands), *op.results], last)
            self.steps[op] = first, last
        for last, chain in self.stored.chains.items():
            step, read = self.ops.index(last), (self.stored.place(value) for op in chain for value in op.operands)
            self.read |= {value: max(step, self.read.get(value, step)) for value in read}
        self.read |= dict.fromkeys(map(self.stored.place, self.network.yielded), len(self.ops))
        for value in self.values:
            if value not in self.stored.inner:
                self.shared.add(value, self.written[value], self.read[value])
        self._place()
        for group in dict.fromkeys(self.groups.values()):
            self._find_rings(group)

    def _phased(self) -> dict[Operation, Depthwise2dOp]:
        """Return the depthwise convolutions whose phases another one makes, by that one.

        Copies of what it reads are fewer than those of its results; both have about as many positions.
        """
        found: dict[Operation, Depthwise2dOp] = {}
        if self.rows is not None or self.stored.codes:
            return found
        for op in self.ops:
            if not isinstance(op, Depthwise2dOp) or (conv := expansion_of(op)) not in self.ops or conv is None:
                continue
            before, plane, parts = self._plane_of(conv.result), self._phase_plane(op), len(_offsets_of(op))
            positions = parts * plane.tiles * plane.tile
            is_covered = plane.tile in kernel_at(conv.kernel, plane.tile).family.widths
            if is_covered and positions <= MOST_POSITIONS * before.tiles * before.tile:
                found[conv] = op
        return found

    def _groups(self) -> dict[Operation, BandedOps]:
        """Return the groups of ops that run in bands; what has to do with codes does not."""
        found: dict[Operation, BandedOps] = {}
        for group in () if self.network.depth_first is None else self.network.depth_first.groups:
            ops = [self.ops[number] for number in group.ops]
            stored = {*self.stored.codes, *self.stored.same}
            if any(value in stored for op in ops for value in (*op.operands, *op.results)):
                continue
            copies = {op: Copies(self._phase_plane(reader), reader) for op in ops if (reader := self._reader_of(op))}
            found |= dict.fromkeys(ops, BandedOps(tuple(ops), group.bands, self._plane_of, copies))
        return found

    def _reader_of(self, op: Operation) -> WindowOp | None:
        """Return the op for whose windows an op copies pixels, which is itself or the next one; None where none are."""
        if op in self.phased:
            return self.phased[op]
        if isinstance(op, WindowOp) and self._needs_phases(op) and op.x.owner not in self.phased:
            return op
        return None

    def _plane_of(self, value: SSAValue) -> Plane:
        if isinstance(value.owner, Operation) and value.owner in self.phased:
            return self._phase_plane(self.phased[value.owner])
        return self.planes[_size(value)] if self.rows is None else self.rows.plane(self.rows.values[value])

    def _find_rings(self, group: BandedOps) -> None:
        """Find the buffers that nothing outside of a group writes or reads."""
        inside: dict[SSAValue, list[SSAValue]] = {}
        for value in self.shared.values:
            inside.setdefault(self.shared.place(value).whole, []).append(value)
        for root, values in inside.items():
            users = [one for value in values for one in (value.owner, *(use.operation for use in value.uses))]
            if all(user in group.ops for user in users):
                writers = [Stage(op) for op in group.ops if any(value in values for value in op.results)]
                self._add_ring(root, group.ring(writers), self._plane_of(root))

    def _add_ring(self, root: SSAValue, ring: int, plane: Plane) -> None:
        if ring < plane.tiles:
            self.rings[root] = max(1, ring)

    def _place(self) -> None:
        for op in self.ops:
            if isinstance(op, ConcatOp):
                parts = [self.stored.place(part) for part in op.parts]
                for part, first in _with_channels(parts):
                    alone = parts.count(part) == 1 and part in self.shared.used
                    if alone and not isinstance(part.owner, SplitOp):
                        self.shared.put(part, op.result, first)
            if isinstance(op, SplitOp):
                for part, first in _with_channels(op.parts):
                    self.shared.put(part, self.stored.place(op.x), first)

    def finish(self) -> ImageMemory:
        """Return the plan."""
        own, found = self._found(max((_own_rows(op) for op in self.ops), default=0) * PIXELS * FLOAT_BYTES)
        copies = {op: self._phase_view(op) for op in self.ops if self._needs_phases(op) or op in self.phased}
        lives = [Lifetime(view.bytes, *self._steps_of_phases(op)) for op, view in copies.items()]
        plan, begin = self.shared.plan(lambda root: self._view(root, 0).bytes, lives), own + GUARD_BYTES
        views: dict[SSAValue, View] = {}
        for value in self.shared.values:
            root, first = self.shared.place(value)
            start = plan.starts[root]
            views[value] = self._at(begin, start, self._view(root, 0, value, first))
        views |= {other: views[value] for other, value in self.stored.same.items() if value in views}
        phases = {
            op: self._at(begin, start, view) for (op, view), start in zip(copies.items(), plan.others, strict=True)
        }
        phased = {conv: Phased(op, phases[conv], phases[op], len(_offsets_of(op))) for conv, op in self.phased.items()}
        groups = list(dict.fromkeys(self.groups.get(op, op) for op in self.ops))
        total, of_tile = (own + plan.total, 0) if self.rows is None else (own, plan.total)
        return ImageMemory(views, phases, phased, own, total, of_tile, self._zeroed(), self.stored, found, groups)

    def _at(self, begin: int, start: int, view: View) -> View:
        """Return a view whose place begins behind a byte: so far behind it, or that for each tile."""
        if self.rows is None:
            return replace(view, start=begin + start)
        return replace(view, start=begin, start_of_tile=start)

    def _found(self, begin: int) -> tuple[int, dict[SSAValue | Operation, int]]:
        """Return the bytes up to the end of what is found, and where each is, from a byte on."""
        places: dict[SSAValue | Operation, int] = {}
        for op in self.ops:
            if isinstance(op, Conv2dOp) and op.finds_codes:
                if op.x not in places:
                    places[op.x], begin = begin, begin + ARGUMENT_BYTES
                places[op], begin = begin, begin + 2 * FLOAT_BYTES * padded_outputs(op)
        return begin, places

    def _needs_phases(self, op: Operation) -> bool:
        return needs_phases(op, self.stored)

    def _view(self, root: SSAValue, start: int, value: SSAValue | None = None, first: int = 0) -> View:
        value = root if value is None else value
        item = 1 if value in self.stored.codes else FLOAT_BYTES
        plane = replace(self._plane_of(value), ring=self.rings.get(root, 0))
        return View(plane, start, shape_of(value)[1], shape_of(root)[1], first, item)

    def _steps_of_phases(self, op: Operation) -> tuple[int, int]:
        """Return the first and the last step in which the phases that an op reads are alive."""
        made = op.operands[0].owner
        first = self.steps[made] if isinstance(made, Operation) and made in self.phased else self.steps[op]
        return first[0], self.steps[op][1]

    def _phase_view(self, op: Operation) -> View:
        """Return the view of the phases that an op reads."""
        assert isinstance(op, WindowOp)
        reader, made = self.phased.get(op, op), op.x.owner
        plane, group, stage = self._phase_plane(reader), self.groups.get(op), Stage(op, copies=True)
        if isinstance(made, Operation) and made in self.phased:
            stage = Stage(made)
        ring = plane.tiles if group is None or stage.op not in group.ops else group.ring([stage])
        if ring < plane.tiles:
            plane = replace(plane, ring=ring)
        channels = shape_of(op.x)[1] * len(_offsets_of(reader))
        on_codes = (isinstance(op, Conv2dOp) and op.codes is not None) or op.x in self.stored.codes
        return View(plane, 0, channels, channels, item=1 if on_codes else FLOAT_BYTES)

    def _phase_plane(self, op: Operation) -> Plane:
        assert isinstance(op, WindowOp)
        if self.rows is not None:
            return self.rows.plane(self.rows.copies[op])
        height, width = Phases.of(op.window).size(*_size(op.x))
        return replace(self._plane_of(op.results[0]), height=height, width=width)

    def _zeroed(self) -> frozenset[SSAValue]:
        """Return the values that windows read beyond their pixels; what is joined or cut counts with all its parts."""
        found: set[SSAValue] = set()
        for op in reversed(self.ops):
            if op in self.phased:
                continue
            if isinstance(op, Conv2dOp | Depthwise2dOp) and not self._needs_phases(op):
                # pads at the end alone move no tap, but make the image larger
                if not Phases.of(op.window).is_point or self._plane_of(op.x) != self._plane_of(op.results[0]):
                    found.add(self.stored.place(op.x))
            elif reads_all(op):
                found.add(self.stored.place(op.operands[0]))
            elif isinstance(op, ConcatOp | SplitOp) and any(result in found for result in op.results):
                found.update(map(self.stored.place, op.operands))
        return frozenset(found)


def _with_channels(parts: Sequence[SSAValue]) -> Iterator[tuple[SSAValue, int]]:
    """Yield the parts of a whole, each with its first channel there."""
    first = 0
    for part in parts:
        yield part, first
        first += shape_of(part)[1]


def _offsets_of(op: WindowOp) -> Sequence[Pair]:
    return Phases.of(op.window).offsets


def padded_outputs(op: Conv2dOp) -> int:
    """Return the outputs of a convolution, padded to whole vectors of the widest kind."""
    return -(-shape_of(op.weight)[1] // PADDED) * PADDED


def _own_rows(op: Operation) -> int:
    """Return the rows of floats in which a thread puts the windows of a tile, and what is made of codes."""
    match op:
        case Conv2dOp():
            return shape_of(op.weight)[0] if op.codes is None else OwnRows.of(op).total
        case _:
            # lines of codes on their way to floats
            return max((-(-shape_of(result)[1] // FLOAT_BYTES) for result in op.results), default=0)


class OwnRows(NamedTuple):
    """Rows of floats of a thread for a quantized convolution: lines of windows, sums, lines of results."""

    windows: int
    sums: int
    lines: int

    @staticmethod
    def of(op: Conv2dOp) -> "OwnRows":
        """Return the rows that an op needs."""
        inputs, outputs = shape_of(op.weight)
        # records that pad others add to sums that nothing reads
        return OwnRows(-(-inputs // FLOAT_BYTES), outputs + 2 * QUAD, -(-outputs // FLOAT_BYTES))

    @property
    def total(self) -> int:
        """All rows."""
        return sum(self)


def _size(value: SSAValue) -> Pair:
    _, _, height, width = image_shape(value)
    return height, width
