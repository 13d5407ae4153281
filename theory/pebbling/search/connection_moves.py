"""Annealing of connection orders, compiled: moves of connections and of runs, at their exact cost under LRU or MIN.

A run is consecutive connections of one source. A move goes any way up to a window, or aims: next to the connection
before or behind that shares a neuron with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....sparse.neuron_graph import NeuronGraph, check_order
from ...annealing.annealing import DRAWS, AnnealingPlan, AnnealingResult
from ...annealing.compiled_states import anneal_blocks
from ...compiled import compiled, is_ready, one_connection
from ..machine import Memory
from .order_line import Line, Move, earliest, latest, line_of, moment, put_move

# The exact cost of a changed order: run the machine again from a checkpoint until it is in a state that it was in.
#
# Every `spacing` steps the residents are kept, under LRU in the order of their last uses: each as its last use and
# whether slow memory lacks the value. Uses are those of connections, not steps, so that a checkpoint stays true while
# connections before it change their order. Two equal checkpoints are equal states; what follows costs the same.
#
# MIN also looks ahead: a move changes what it evicts since the previous uses of what moved. The run begins there, but
# not further back than `look_back` steps: costs are exact if that is the whole order, else they drift, and must be
# counted again now and then.


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


LONGEST_RUN = 64
# Checkpoints that a run may pass before it must be in a known state.
ROOM = 64


@dataclass(frozen=True)
class ConnectionMoves:
    """Lengths of moves in steps, shares of runs and of moves that aim, and how far MIN looks back."""

    window: int = 300
    run_share: float = 0.5
    aimed_share: float = 0.5
    look_back: int = 128


class Reach(NamedTuple):
    """`ConnectionMoves` for compiled code."""

    window: int
    run_share: float
    aimed_share: float


class ConnectionBlocks:
    """A connection order under moves, a block of proposals at a time; the best order is looked for between blocks.

    Raises:
        ValueError: the order is not topological.
    """

    def __init__(
        self, network: NeuronGraph, order: NDArray[np.int64], memory: Memory, moves: ConnectionMoves | None = None
    ) -> None:
        check_order(network, order)
        moves = moves or ConnectionMoves()
        self._network, self._memory = network, memory
        self._reach = Reach(moves.window, moves.run_share, moves.aimed_share)
        # Loading a checkpoint takes time and room for each resident: the more there are, the fewer checkpoints.
        spacing = max(32, memory.capacity // 3)
        self._settings = Settings(memory.policy == "min", spacing, moves.look_back)
        self._isolated = 2 * int(np.sum(network.is_output & (network.in_degrees + network.out_degrees == 0)))
        self._best = order.astype(np.int32)
        self._begin()
        self._best_cost = self.cost

    @property
    def cost(self) -> int:
        """Transfers of the current order, in values."""
        return self._network.connection_count + self._isolated + int(self._world.kept.costs.sum())

    @property
    def best_cost(self) -> int:
        """Transfers of the best order, in values."""
        return self._best_cost

    def run(self, draws: NDArray[np.float64], temperature: float) -> None:
        """Make one proposal for each row of draws, shape [proposals, 5]."""
        if len(self._best) < 2:
            return
        run_moves(self._world, self._reach, temperature, draws)
        if self._settings.is_min and self._settings.look_back < len(self._best):
            self._recount()
        if self.cost < self._best_cost:
            self._best_cost = self.cost
            self._best = self._world.line.order.copy()

    def current(self) -> NDArray[np.int64]:
        """The current order [W]."""
        return self._world.line.order.astype(np.int64)

    def best(self) -> NDArray[np.int64]:
        """The best order [W]."""
        return self._best.astype(np.int64)

    def go_back(self) -> None:
        """Continue from the best order."""
        self._begin()

    def _begin(self) -> None:
        self._world = world_of(self._network, self.best(), self._memory.capacity - 1, self._settings)
        self._recount()

    def _recount(self) -> None:
        """Run the whole order, and keep its checkpoints."""
        kept = self._world.kept
        blank = Kept(kept.keys, kept.sizes, np.zeros_like(kept.costs))
        if len(self._best):
            run_moves(self._world._replace(kept=blank, fresh=kept), self._reach, 1.0, np.zeros((0, DRAWS)))


def anneal_connections(
    state: ConnectionBlocks, plan: AnnealingPlan, rng: np.random.Generator
) -> AnnealingResult[NDArray[np.int64]]:
    """Anneal from a state's order [W]; the state itself moves."""
    return anneal_blocks(state, plan, rng)


def moves_are_ready(is_late: Callable[[], bool]) -> bool:
    """Whether all loops of a state are compiled, if need be now, before it is late; one connection stands for all."""
    one = one_connection()
    world = world_of(one, np.zeros(1, dtype=np.int64), 2, Settings(True, 1, 1))
    return is_ready(run_moves, is_late, world, Reach(1, 0.0, 0.0), 1.0, np.zeros((1, DRAWS)))


def world_of(network: NeuronGraph, order: NDArray[np.int64], slots: int, settings: Settings) -> World:
    """The world of an order [W] whose machine has not run."""
    count, slots = -(-network.connection_count // settings.spacing), min(slots, network.neuron_count)
    line, machine = line_of(network, order), _machine(network, slots)
    return World(line, machine, _no_checkpoints(count, slots), _no_checkpoints(ROOM, slots), settings)


def _machine(network: NeuronGraph, slots: int) -> Machine:
    neurons = network.neuron_count
    begins_dirty = network.is_output & (network.in_degrees == 0)
    values = np.where(network.is_output, IS_OUTPUT, 0) + np.where(begins_dirty, BEGINS_DIRTY, 0)
    return Machine(
        values=values.astype(np.int32),
        last_uses=np.zeros(neurons, dtype=np.int32),
        chain=np.zeros((2, neurons + 1), dtype=np.int32),
        slot_of=np.zeros(neurons, dtype=np.int32),
        slots=np.zeros((2, slots), dtype=np.int32),
        counters=np.array([0, slots], dtype=np.int32),
    )


def _no_checkpoints(count: int, slots: int) -> Kept:
    return Kept(
        np.zeros((count + 1, slots), dtype=np.int32),
        np.zeros(count + 1, dtype=np.int32),
        np.zeros(count + 1, dtype=np.int32),
    )


@compiled
def run_moves(world: World, reach: Reach, temperature: float, draws: NDArray[np.float64]) -> None:
    """Make one proposal for each row of draws [proposals, DRAWS] at one temperature; without draws run the whole order.

    Both are one function, since another one that is called from outside would be compiled with all that it calls.
    """
    line = world.line
    if len(draws) == 0:
        run_again(world, 0, len(line.order) + 1)
    for number in range(len(draws)):
        row = draws[number]
        move = _choose(world, reach, row)
        if move.goal == move.first:
            continue
        put_move(line, move)
        first = first_checkpoint(world, move)
        change, last = run_again(world, first, max(move.first, move.goal) + move.length)
        if change <= 0 or row[4] < np.exp(-change / temperature):
            keep_fresh(world, first, last)
        else:
            put_move(line, Move(move.goal, move.length, move.first))


@compiled
def _choose(world: World, reach: Reach, draws: NDArray[np.float64]) -> Move:
    """The move that the draws choose, cut short by what the run depends on; one that cannot move has itself as goal."""
    line = world.line
    first, length = int(draws[0] * len(line.order)), 1
    if draws[1] < reach.run_share:
        first, length = _run_around(line.ends, line.order, first)
    move = Move(first, length, first)
    if draws[2] < reach.aimed_share:
        goal = _aimed_goal(world, move, int(4 * draws[3]))
        if abs(goal - first) > reach.window:
            return move
    else:
        # Near steps are drawn as often as far ones, each scale equally.
        distance = int(reach.window ** abs(2 * draws[3] - 1))
        goal = first + (distance if draws[3] < 0.5 else -distance)
    if goal > first:
        return Move(first, length, max(first, min(goal, latest(line, move))))
    return Move(first, length, min(first, max(goal, earliest(line, move))))


@compiled
def _run_around(ends: NDArray[np.int32], order: NDArray[np.int32], step: int) -> tuple[int, int]:
    """First step and length of the run of one source that a step belongs to."""
    source = ends[2 * order[step]]
    first, end = step, step + 1
    while first > 0 and end - first < LONGEST_RUN and ends[2 * order[first - 1]] == source:
        first -= 1
    while end < len(order) and end - first < LONGEST_RUN and ends[2 * order[end]] == source:
        end += 1
    return first, end - first


@compiled
def _aimed_goal(world: World, move: Move, choice: int) -> int:
    """Next to the use before (0, 1) or behind (2, 3) of a source (0, 2) or target (1, 3) of the run."""
    line = world.line
    if choice < 2:
        near = line.prevs[2 * line.order[move.first] + choice]
        return int(line.steps[near >> 1]) + 1 if near >= 0 else move.first
    near = line.nexts[2 * line.order[move.first + move.length - 1] + choice - 2]
    return int(line.steps[near >> 1]) - move.length if near >= 0 else move.first
