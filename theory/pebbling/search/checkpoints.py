"""The exact cost of a changed order: run the machine again from a checkpoint until it is in a state that it was in.

Every `spacing` steps the residents are kept, under LRU in the order of their last uses: each as its last use and
whether slow memory lacks the value. Uses are those of connections, not steps, so that a checkpoint stays true while
connections before it change their order. Two equal checkpoints are equal states; what follows costs the same.

MIN also looks ahead: a move changes what it evicts since the previous uses of what moved. The run begins there, but not
further back than `look_back` steps: costs are exact if that is the whole order, else they drift, and must be counted
again now and then.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...compiled import compiled
from .order_line import Line, Move, moment

Ints = NDArray[np.int32]
RESIDENT, DIRTY, IS_OUTPUT, BEGINS_DIRTY = 1, 2, 4, 8
# What a run that finds no equal state within its room costs.
TOO_LONG = 1 << 40


class Kept(NamedTuple):
    """Checkpoint k, before step k `spacing`: `sizes[k]` residents `keys[k]` = 2 use + dirty; `costs[k]` to the next."""

    keys: Ints
    sizes: Ints
    costs: Ints


class Machine(NamedTuple):
    """`values` and `last_uses` [N]; `chain` [2, N + 1] by last use; `slot_of` [N] residents in `slots` [2, M - 1].

    `slots` hold neurons and the moments of their next uses; `counters` are the residents and M - 1.
    """

    values: Ints
    last_uses: Ints
    chain: Ints
    slot_of: Ints
    slots: Ints
    counters: Ints


class Settings(NamedTuple):
    """The policy, steps between checkpoints, steps that MIN looks back."""

    is_min: bool
    spacing: int
    look_back: int


class World(NamedTuple):
    """All that a run needs: `kept` is true for the line before a move, `fresh` takes what the run finds."""

    line: Line
    machine: Machine
    kept: Kept
    fresh: Kept
    settings: Settings


@compiled
def run_again(world: World, first: int, until: int) -> tuple[int, int]:
    """Run from checkpoint `first` until a state after step `until` is as it was.

    Returns:
        The change of cost and the last checkpoint that changed; TOO_LONG and -1 if there is no room for more.
    """
    fresh, spacing, count = world.fresh, world.settings.spacing, len(world.line.order)
    _resume(world, first)
    change, number, step = 0, 0, first * spacing
    while True:
        end = min(step + spacing, count)
        cost = 0
        for now in range(step, end):
            cost += _run_step(world, now)
        fresh.costs[number] = cost
        change += cost - world.kept.costs[first + number]
        step, number = end, number + 1
        if step == count:
            break
        if number == len(fresh.sizes):
            change = TOO_LONG
            break
        _save(world, number)
        if step >= until and _is_equal(world, first + number, number):
            break
    _leave_all(world.machine)
    return change, first + number - 1


@compiled
def first_checkpoint(world: World, move: Move) -> int:
    """The first step of a run after the move, which is already carried out."""
    line, settings = world.line, world.settings
    low = min(move.first, move.goal)
    step = low
    if settings.is_min:
        for moved in range(move.goal, move.goal + move.length):
            for side in range(2):
                before = int(line.prevs[2 * int(line.order[moved]) + side])
                # A use that was passed over may have been the next one of the last use before all that moved.
                while before >= 0 and line.steps[before >> 1] >= low:
                    before = int(line.prevs[before])
                # Without a use before, the value came when it was used, and no eviction looked at it.
                if before >= 0:
                    step = min(step, int(line.steps[before >> 1]))
        step = max(step, low - settings.look_back)
    return max(0, step) // settings.spacing


@compiled
def keep_fresh(world: World, first: int, last: int) -> None:
    """Keep what a run from checkpoint `first` to `last` found."""
    kept, fresh = world.kept, world.fresh
    for number in range(last - first + 1):
        kept.costs[first + number] = fresh.costs[number]
        if number > 0:
            kept.sizes[first + number] = fresh.sizes[number]
            for slot in range(fresh.sizes[number]):
                kept.keys[first + number, slot] = fresh.keys[number, slot]


@compiled
def _resume(world: World, checkpoint: int) -> None:
    line, machine = world.line, world.machine
    ring = len(machine.values)
    machine.chain[0, ring] = machine.chain[1, ring] = ring
    machine.counters[0] = 0
    for slot in range(world.kept.sizes[checkpoint]):
        key: int = world.kept.keys[checkpoint, slot]
        use: int = key >> 1
        neuron: int = line.ends[use]
        machine.values[neuron] |= RESIDENT | (DIRTY if key & 1 else 0)
        _take_slot(machine, neuron)
        _touch(world, neuron, use)


@compiled
def _save(world: World, number: int) -> None:
    machine, fresh = world.machine, world.fresh
    size = int(machine.counters[0])
    neuron = machine.chain[1, len(machine.values)]
    for slot in range(size):
        if world.settings.is_min:
            neuron = machine.slots[0, slot]
        fresh.keys[number, slot] = 2 * machine.last_uses[neuron] + (1 if machine.values[neuron] & DIRTY else 0)
        neuron = machine.chain[1, neuron]
    fresh.sizes[number] = size


@compiled
def _is_equal(world: World, checkpoint: int, number: int) -> bool:
    """Whether the machine, just saved, is where it was: under LRU the residents have an order, under MIN none."""
    kept, fresh, machine = world.kept, world.fresh, world.machine
    size, slot = int(fresh.sizes[number]), 0
    if kept.sizes[checkpoint] != size:
        return False
    if not world.settings.is_min:
        while slot < size and kept.keys[checkpoint, slot] == fresh.keys[number, slot]:
            slot += 1
        return slot == size
    while slot < size:
        use, dirty = kept.keys[checkpoint, slot] >> 1, kept.keys[checkpoint, slot] & 1
        neuron = world.line.ends[use]
        state = RESIDENT | (DIRTY if dirty else 0)
        if machine.last_uses[neuron] != use or machine.values[neuron] & (RESIDENT | DIRTY) != state:
            return False
        slot += 1
    return True


@compiled
def _leave_all(machine: Machine) -> None:
    for slot in range(machine.counters[0]):
        machine.values[machine.slots[0, slot]] &= ~(RESIDENT | DIRTY)


@compiled
def _run_step(world: World, step: int) -> int:
    """Rows that one step moves."""
    line, machine = world.line, world.machine
    use, cost = 2 * int(line.order[step]), 0
    source, target = line.ends[use], line.ends[use + 1]
    if machine.values[source] & RESIDENT:
        _pin(world, source)
    if machine.values[target] & RESIDENT:
        _pin(world, target)
    if not machine.values[source] & RESIDENT:
        cost += _load(world, use)
    if not machine.values[target] & RESIDENT:
        cost += _load(world, use + 1)
    machine.values[target] |= DIRTY
    for side in range(2):
        neuron = line.ends[use + side]
        if line.nexts[use + side] < 0:
            cost += int(machine.values[neuron] & (DIRTY | IS_OUTPUT) == DIRTY | IS_OUTPUT)
            _drop_slot(machine, neuron)
        else:
            _touch(world, neuron, use + side)
    return cost


@compiled
def _load(world: World, use: int) -> int:
    """Read the value of a use; 1, or 2 if another is written for it."""
    line, machine = world.line, world.machine
    cost, neuron = 1, line.ends[use]
    if machine.counters[0] == machine.counters[1]:
        victim = _farthest(machine) if world.settings.is_min else machine.chain[1, len(machine.values)]
        cost += int(machine.values[victim] & DIRTY != 0)
        _pin(world, victim)
        _drop_slot(machine, victim)
    machine.values[neuron] |= RESIDENT
    if machine.values[neuron] & BEGINS_DIRTY and line.prevs[use] < 0:
        machine.values[neuron] |= DIRTY
    _take_slot(machine, neuron)
    return cost


@compiled
def _farthest(machine: Machine) -> int:
    """The resident of the farthest next use; of both ends of one step the clean one, then that of the smaller id."""
    moments, values, count = machine.slots[1], machine.values, int(machine.counters[0])
    # The maximum by itself is found many at a time.
    farthest = np.int32(-1)
    for slot in range(count):
        farthest = max(farthest, moments[slot])
    best = 0
    while moments[best] != farthest:
        best += 1
    victim = machine.slots[0, best]
    if farthest & 1:
        for slot in range(count):
            if moments[slot] == farthest - 1:
                source = machine.slots[0, slot]
                dirty_source, dirty_victim = values[source] & DIRTY, values[victim] & DIRTY
                if dirty_source < dirty_victim or (dirty_source == dirty_victim and source < victim):
                    return source
    return victim


@compiled
def _take_slot(machine: Machine, neuron: int) -> None:
    slot = machine.counters[0]
    machine.counters[0] = slot + 1
    machine.slot_of[neuron] = slot
    machine.slots[0, slot], machine.slots[1, slot] = neuron, -1


@compiled
def _drop_slot(machine: Machine, neuron: int) -> None:
    machine.values[neuron] &= ~(RESIDENT | DIRTY)
    last = machine.counters[0] - 1
    machine.counters[0] = last
    slot, mover = machine.slot_of[neuron], machine.slots[0, last]
    machine.slots[0, slot], machine.slots[1, slot] = mover, machine.slots[1, last]
    machine.slot_of[mover] = slot


@compiled
def _touch(world: World, neuron: int, use: int) -> None:
    """The latest use; a resident has a next one."""
    machine = world.machine
    machine.last_uses[neuron] = use
    if world.settings.is_min:
        machine.slots[1, machine.slot_of[neuron]] = moment(world.line, int(world.line.nexts[use]))
        return
    chain, ring = machine.chain, len(machine.values)
    before = chain[0, ring]
    chain[1, before], chain[0, neuron] = neuron, before
    chain[1, neuron], chain[0, ring] = ring, neuron


@compiled
def _pin(world: World, neuron: int) -> None:
    """A resident that nobody evicts until it is touched again."""
    machine = world.machine
    if world.settings.is_min:
        machine.slots[1, machine.slot_of[neuron]] = -1
        return
    before, after = machine.chain[0, neuron], machine.chain[1, neuron]
    machine.chain[1, before], machine.chain[0, after] = after, before
