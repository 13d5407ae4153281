"""Annealing of connection orders, compiled: moves of connections and of runs, at their exact cost under LRU or MIN.

A run is consecutive connections of one source. A move goes any way up to a window, or aims: next to the connection
before or behind that shares a neuron with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ....sparse.neuron_graph import NeuronGraph, check_order
from ...annealing.annealing import AnnealingPlan, AnnealingResult
from ...annealing.compiled_states import anneal_blocks
from ...compiled import compiled
from ..machine import Memory
from .checkpoints import (
    BEGINS_DIRTY,
    IS_OUTPUT,
    Kept,
    Machine,
    Settings,
    World,
    first_checkpoint,
    keep_fresh,
    run_again,
)
from .order_line import Move, earliest, latest, line_of, put_move

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
        network, slots = self._network, self._memory.capacity - 1
        count = -(-network.connection_count // self._settings.spacing)
        slots = min(slots, network.neuron_count)
        machine = _machine(network, slots)
        line = line_of(network, self.best())
        self._world = World(line, machine, _no_checkpoints(count, slots), _no_checkpoints(ROOM, slots), self._settings)
        self._recount()

    def _recount(self) -> None:
        """Run the whole order, and keep its checkpoints."""
        kept = self._world.kept
        blank = Kept(kept.keys, kept.sizes, np.zeros_like(kept.costs))
        if len(self._best):
            run_again(self._world._replace(kept=blank, fresh=kept), 0, len(self._best) + 1)


def anneal_connections(
    state: ConnectionBlocks, plan: AnnealingPlan, rng: np.random.Generator
) -> AnnealingResult[NDArray[np.int64]]:
    """Anneal from a state's order [W]; the state itself moves."""
    return anneal_blocks(state, plan, rng)


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
    """Make one proposal for each row of draws [proposals, DRAWS] at one temperature."""
    line = world.line
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
