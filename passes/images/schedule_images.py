"""Let layers of image networks run depth first, where their values leave the cache.

```mlir
%y = pebble.image_network %x threads 1 predicted_us 1.0e+05 : ... { two convolutions of 361 x 720 pixels }
// ->
%y = pebble.image_network %x threads 1 predicted_us 1.0e+05
    depth_first <[<ops 0 to 1, bands 91, "0.9 of 33.3 MB at a time, 8.8e+03 us less for memory">]> : ... { the same }
```

Layer by layer, every value is written to memory and read again. In bands of rows each goes through all layers of a
group, and of what only the group reads a few rows are there at a time: see `redpebble.theory.depth_first.bands`. A
group is as long as that saves time, by the prices of bytes from each cache; nothing is computed twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.passes import ModulePass

from ...dialect.attributes.resampling import OUTSIDE
from ...dialect.ops.elementwise import rounds_to_codes
from ...dialect.ops.image_bands import FEWEST_BANDS, FEWEST_OPS, BandGroupAttr, BandsAttr, runs_in_bands
from ...dialect.ops.image_network import ImageNetworkOp
from ...dialect.ops.images import Conv2dOp, Interleave2dOp, Resample2dOp, WindowOp, image_shape
from ...dialect.ops.regions import YieldOp
from ...kernels.machine import Machine, MachineOptions
from ...theory.depth_first.bands import Bands, Indices, Reach, Reading
from ..analysis.rowwise import dynamic_operands
from .image_layers import pixels_of

ROWS: Final = (1, 2, 4, 8, 16)
"""Rows of the last op in a band."""

USUAL_ROWS: Final = 4
"""Rows of a band by which the ops of a group are found."""

PATIENCE: Final = 4
"""Ops that a group may take in without a gain: those behind them may bring one."""

BAND_US: Final = 0.05
"""Microseconds of an op for each band: hundreds of bands were measured to take no longer than dozens."""

SHARED_BAND_US: Final = 4.0
"""The same where threads meet behind each op."""

ROOM: Final = 1.5
"""Bytes that pass through a cache, over those of the rows that are needed."""


@dataclass(frozen=True)
class ScheduleImages(MachineOptions, ModulePass):
    """Write the groups of ops that run in bands on image networks."""

    name = "pebble-schedule-images"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for network in [found for found in op.walk() if isinstance(found, ImageNetworkOp)]:
            _schedule(network, self.machine)

    @staticmethod
    def on(machine: Machine) -> "ScheduleImages":
        """Return the pass for a machine."""
        return ScheduleImages(**MachineOptions.numbers(machine))


def _schedule(network: ImageNetworkOp, machine: Machine) -> None:
    ops = [op for op in network.body.block.ops if not isinstance(op, YieldOp)]
    if any((isinstance(op, Conv2dOp) and op.codes is not None) or rounds_to_codes(op) for op in ops):
        return
    groups, begin = list[BandGroupAttr](), 0
    search = _Search(ops, machine, network.threads.value.data)
    while begin < len(ops):
        best = search.best_group(begin)
        if best is not None and best.gain_us > 0:
            groups.append(best.attribute)
            begin = best.attribute.ops.stop
        else:
            begin += 1
    network.depth_first = BandsAttr(groups) if groups else None


class _Choice(NamedTuple):
    """A group, and the microseconds that it saves."""

    attribute: BandGroupAttr
    gain_us: float


@dataclass(frozen=True)
class _Search:
    """The ops of a network, and what each reads."""

    ops: Sequence[Operation]
    machine: Machine
    threads: int

    @cached_property
    def rows_read(self) -> dict[Operation, Sequence[tuple[SSAValue, Reach]]]:
        """The rows of each operand that each op reads for each row of its results."""
        return {op: _rows_read(op) for op in self.ops}

    def best_group(self, begin: int) -> _Choice | None:
        """Return the group from an op on that saves most, None where none saves anything."""
        best: _Choice | None = None
        for end in range(begin + 1, len(self.ops) + 1):
            if not runs_in_bands(self.ops[end - 1]) or _apart_us(self.ops[begin], self.machine) <= 0:
                break
            if end - begin < FEWEST_OPS:
                continue
            found = self._choice(begin, end, USUAL_ROWS)
            if best is not None and end - best.attribute.ops.stop > PATIENCE:
                break
            # longer groups need no less at a time
            if found is None and end - begin > FEWEST_OPS + PATIENCE:
                break
            if found is not None and (best is None or found.gain_us > best.gain_us):
                best = found
        if best is None:
            return None
        end = best.attribute.ops.stop
        return max(filter(None, (self._choice(begin, end, rows) for rows in ROWS)), key=lambda one: one.gain_us)

    def _choice(self, begin: int, end: int, rows: int) -> _Choice | None:
        """Return a group in bands of so many rows; None where the rows at a time leave the last-level cache."""
        group = _Group(self.ops[begin:end], self.rows_read, self.machine)
        count = -(-image_shape(group.ops[-1].results[0])[2] // rows)
        if count < FEWEST_BANDS:
            return None
        at_a_time = group.bytes_at_a_time(count)
        if at_a_time > self.machine.l3_bytes:
            return None
        around = (BAND_US if self.threads == 1 else SHARED_BAND_US) * count * len(group.ops)
        gain, size = group.saved_us(at_a_time) - around, sum(map(_bytes_of, group.inner))
        reason = f"{at_a_time / 1e6:.2g} of {size / 1e6:.3g} MB at a time, {gain:.3g} us less for memory"
        return _Choice(BandGroupAttr(range(begin, end), count, reason), gain)


def _bytes_of(value: SSAValue) -> int:
    return 4 * pixels_of(value)


def _apart_us(op: Operation, machine: Machine) -> float:
    """Return the microseconds in which what an op reads and writes comes from beyond the second-level cache."""
    size = sum(map(_bytes_of, (*dynamic_operands(op), *op.results)))
    return machine.far_ns(size, size) / 1000


@dataclass(frozen=True)
class _Group:
    """Ops that follow each other, and the rows that each op of the network reads."""

    ops: Sequence[Operation]
    rows_read: Mapping[Operation, Sequence[tuple[SSAValue, Reach]]]
    machine: Machine

    def bytes_at_a_time(self, count: int) -> float:
        """Return the bytes of results that are needed at a time in so many bands, those of copies included."""
        bands = Bands([image_shape(op.results[0])[2] for op in self.ops], self._readings, count)
        return ROOM * sum(self._alive(number, op, bands) for number, op in enumerate(self.ops))

    def saved_us(self, at_a_time: float) -> float:
        """Return the microseconds that are not spent on memory where so many bytes are needed at a time."""
        return sum(_apart_us(op, self.machine) - self._together_us(op, at_a_time) for op in self.ops)

    @cached_property
    def inner(self) -> set[SSAValue]:
        """The values that nothing outside of the group reads."""
        results = [result for op in self.ops for result in op.results]
        return {value for value in results if all(use.operation in self._numbers for use in value.uses)}

    @cached_property
    def _numbers(self) -> dict[Operation, int]:
        return {op: number for number, op in enumerate(self.ops)}

    @property
    def _readings(self) -> list[list[Reading]]:
        """The readings of the rows of each op's results."""
        found: list[list[Reading]] = [[] for _ in self.ops]
        for number, reader in enumerate(self.ops):
            for value, reach in self.rows_read[reader]:
                if isinstance(value.owner, Operation) and value.owner in self._numbers:
                    found[self._numbers[value.owner]].append(Reading(number, reach))
        return found

    def _alive(self, number: int, op: Operation, bands: Bands) -> float:
        copied = any(isinstance(user, WindowOp) and user.window.stride != (1, 1) for user in _users(op))
        share = bands.ring([number]) / max(1, image_shape(op.results[0])[2])
        return (1 + copied) * share * sum(map(_bytes_of, op.results))

    def _together_us(self, op: Operation, at_a_time: float) -> float:
        values = [*dynamic_operands(op), *op.results]
        inner = sum(_bytes_of(value) for value in values if value in self.inner)
        outer = sum(_bytes_of(value) for value in values if value not in self.inner)
        return (self.machine.far_ns(inner, at_a_time) + self.machine.far_ns(outer, outer)) / 1000


def _users(op: Operation) -> Sequence[Operation]:
    return [use.operation for result in op.results for use in result.uses]


def _rows_read(op: Operation) -> Sequence[tuple[SSAValue, Reach]]:
    """Return the rows of each operand that an op reads for each row of its results."""
    height = image_shape(op.results[0])[2]
    rows, others = np.arange(height), dynamic_operands(op)
    moved = list[tuple[SSAValue, Reach]]()
    if isinstance(op, WindowOp | Resample2dOp | Interleave2dOp):
        first, last = _first_and_last(op, rows)
        moved = [(op.x, Reach.between(first, last, image_shape(op.x)[2]))]
        others = others[1:]
    return [*moved, *((value, Reach.same(height)) for value in others)]


def _first_and_last(op: WindowOp | Resample2dOp | Interleave2dOp, rows: Indices) -> tuple[Indices, Indices]:
    match op:
        case Resample2dOp():
            indices = np.stack([tap.indices for tap in op.rows.taps])
            # where there is no row of the image, nothing is read
            first = np.where(indices == OUTSIDE, image_shape(op.x)[2], indices).min(axis=0)
            return first, indices.max(axis=0)
        case Interleave2dOp():
            return rows // op.parts[0], rows // op.parts[0]
        case _:
            taps = [tap.row for tap in op.window.taps]
            return rows * op.window.stride[0] + min(taps), rows * op.window.stride[0] + max(taps)
