"""Ops of an image network that run depth first, in bands of tiles: see `redpebble.theory.depth_first.bands`.

An op that reads copies of pixels, those of a stride, is two stages: the copies, and what is computed of them.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from xdsl.ir import Operation, SSAValue

from ...dialect.ops.images import Interleave2dOp, Resample2dOp, WindowOp
from ...theory.depth_first import bands
from ...theory.depth_first.bands import Indices, Reach, Reading
from .geometry import NO_PIXEL, Phases, Plane
from .packing import interleaved_positions, phase_positions, resampled_positions


class Copies(NamedTuple):
    """The plane of the copies of pixels that an op reads, and the op whose windows these are for."""

    plane: Plane
    reader: WindowOp


class Stage(NamedTuple):
    """Tiles that an op makes one after the other: those of its results, or of the copies of pixels that it reads."""

    op: Operation
    copies: bool = False


def _reach_of_windows(phases: Phases, source: Plane, target: Plane) -> Reach:
    """Return the tiles that windows read, the positions beside pixels as well: these have to be zeros."""
    distances = [tap.row * source.pitch + tap.column for tap in phases.taps]
    starts = target.tile * np.arange(target.tiles)
    first, last = starts + min(distances), starts + target.tile - 1 + max(distances)
    return Reach.between(first // source.tile, last // source.tile, source.tiles)


def _reach_of_pixels(positions: Sequence[Indices], source: Plane, target: Plane) -> Reach:
    """Return the tiles in which pixels are, of which each position of the target has some."""
    found = np.stack(positions).reshape(len(positions), target.tiles, target.tile)
    nothing, tiles = found == NO_PIXEL, found // source.tile
    first = np.where(nothing, source.tiles, tiles).min(axis=(0, 2))
    last = np.where(nothing, 0, tiles).max(axis=(0, 2))
    return Reach.between(first, last, source.tiles)


@dataclass(frozen=True, eq=False)
class BandedOps:
    """A group of ops, and the bands in which they run."""

    ops: Sequence[Operation]
    count: int
    """Bands."""
    plane_of: Callable[[SSAValue], Plane]
    copies: Mapping[Operation, Copies]
    """The copies that ops make before they run."""

    @cached_property
    def stages(self) -> list[Stage]:
        """All stages, in their order."""
        return [Stage(op, copies) for op in self.ops for copies in (True, False) if not copies or op in self.copies]

    @cached_property
    def bands(self) -> bands.Bands:
        """The tiles of each stage in each band."""
        readings = self._readings()
        read = [
            [reading for one in ([stage.op] if stage.copies else stage.op.results) for reading in readings[one]]
            for stage in self.stages
        ]
        return bands.Bands([self._plane(stage).tiles for stage in self.stages], read, self.count)

    def ring(self, stages: Sequence[Stage]) -> int:
        """Return how many tiles of what stages write are there at the same time."""
        return self.bands.ring([self.stages.index(stage) for stage in stages])

    def _plane(self, stage: Stage) -> Plane:
        return self.copies[stage.op].plane if stage.copies else self.plane_of(stage.op.results[0])

    def _readings(self) -> dict[SSAValue | Operation, list[Reading]]:
        """Return what reads each value, and the copies of an op."""
        found: dict[SSAValue | Operation, list[Reading]] = defaultdict(list)
        for number, stage in enumerate(self.stages):
            target = self._plane(stage)
            moved = self._moved(stage, target)
            # a residual, or an operand of elementwise work, is read where the result is
            in_place = () if stage.copies else stage.op.operands[len(moved) :]
            for value, reach in [*moved, *((value, Reach.same(target.tiles)) for value in in_place)]:
                found[value].append(Reading(number, reach))
        return found

    def _moved(self, stage: Stage, target: Plane) -> Sequence[tuple[SSAValue | Operation, Reach]]:
        """Return what a stage reads in place of the first operand, or of that at other places than its own."""
        match stage.op:
            case Resample2dOp() as op:
                source = self.plane_of(op.x)
                return [(op.x, _reach_of_pixels(resampled_positions(source, target, op), source, target))]
            case Interleave2dOp() as op:
                source = self.plane_of(op.x)
                return [(op.x, _reach_of_pixels([interleaved_positions(source, target, op)], source, target))]
            case op if isinstance(op, WindowOp):
                source = self.plane_of(op.x)
                if stage.copies:
                    positions = phase_positions(source, target, self.copies[op].reader)
                    return [(op.x, _reach_of_pixels(positions, source, target))]
                copies, phases = self.copies.get(op), Phases.of(op.window)
                if copies is None:
                    return [(op.x, _reach_of_windows(phases, source, target))]
                # the operand itself is read by the copies alone
                return [(op, _reach_of_windows(phases, copies.plane, target))]
            case _:
                return []
