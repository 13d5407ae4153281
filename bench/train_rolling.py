"""Train the rule by which targets roll, and write `theory/pebbling/orders/learned_weights.py`.

`python -m redpebble.bench.train_rolling [--steps 1500] [--seed 0]`: policy gradients with exploration in parameters. A
step draws networks and, for each, a direction. The transfers of the orders that the rule makes, a step along it and
against it, over those of the best order that is constructed otherwise, say how far to go that way. Both are of the same
network, so most of what differs between networks cancels. What is written is the mean of the last steps.

`--measure` trains nothing, and prints what the rule gains on networks that it was not trained on, of other sizes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import exp, log
from pathlib import Path
from statistics import fmean
from time import process_time
from typing import Annotated, Final

import numpy as np
import typer
from numpy.typing import NDArray

from ..sparse.neuron_graph import NeuronGraph, from_layers
from ..theory.pebbling.machine import Memory
from ..theory.pebbling.machine_compiled import count_transfers
from ..theory.pebbling.orders import learned_weights
from ..theory.pebbling.orders.interval_stabbing import decode
from ..theory.pebbling.orders.learned_rule import FEATURES, NUMBERS, learned_rule, rule_of
from ..theory.pebbling.orders.rolling_orders import rolled_target_orders
from ..theory.pebbling.search.interval_annealing import StabbingBlocks, StabbingMoves
from ..theory.pebbling.search.starts import LEARNED, start_orders
from ..tools.benching.progress import shown
from ..tools.console.console import console

Floats = NDArray[np.float64]

NETWORKS: Final = 160
STEP_NETWORKS: Final = 16
STEPS: Final = 1500
EXPLORED: Final = 0.2
"""Standard deviation of the directions."""

RATE: Final = 0.3
MOMENTUM: Final = 0.8
KEPT: Final = 0.99
"""Share of the mean of former steps in the mean that is written."""

TRAINED_WIDTHS: Final = (50, 160)
OTHER_WIDTHS: Final = (100, 700)

HEAD: Final = '''"""Weights of the trained rule for rolling targets, [FEATURES, NUMBERS] one row after the other.

Written by `bench/train_rolling.py`: not to be edited.
"""

from typing import Final

WEIGHTS: Final = (
'''


@dataclass(frozen=True)
class Case:
    """A network, its memory in values, and the fewest transfers of the orders that are constructed otherwise."""

    network: NeuronGraph
    capacity: int
    transfers: int

    def share(self, weights: Floats) -> float:
        """Return the transfers by a rule over the fewest ones, by the intervals of targets, which MIN comes near."""
        open_count = self.capacity - 2
        orders = rolled_target_orders(self.network, open_count, rule_of(weights, self.network, open_count))
        return StabbingBlocks(self.network, orders, StabbingMoves()).cost / self.transfers


def random_network(rng: np.random.Generator, widths: tuple[int, int]) -> tuple[NeuronGraph, int]:
    """Return layers of about as many neurons as `widths`, two to thirty connections a target, and a memory."""
    width, depth = int(exp(rng.uniform(log(widths[0]), log(widths[1])))), int(rng.integers(2, 6))
    sizes: list[int] = (width * rng.uniform(0.6, 1.6, depth + 1)).astype(int).tolist()
    density = exp(rng.uniform(log(2.5), log(min(30, 0.3 * width)))) / width
    masks = [rng.random(shape) < density for shape in pairwise(sizes)]
    return from_layers(masks), max(6, int(width * exp(rng.uniform(log(0.06), log(0.5)))))


def others(network: NeuronGraph, capacity: int) -> Mapping[str, int]:
    """Return the transfers under MIN of each order that is constructed, the rule's among them."""
    orders = start_orders(network, capacity)
    return {name: count_transfers(network, order, Memory(capacity)).total for name, order in orders.items()}


def case_of(rng: np.random.Generator, widths: tuple[int, int]) -> Case:
    """Return a random case."""
    network, capacity = random_network(rng, widths)
    return Case(network, capacity, min(cost for name, cost in others(network, capacity).items() if name != LEARNED))


def trained(cases: Sequence[Case], steps: int, rng: np.random.Generator) -> Floats:
    """Return weights [FEATURES, NUMBERS] after some steps from a greedy rule."""
    weights: Floats = np.zeros((FEATURES, NUMBERS))
    mean, velocity = weights, weights
    for _ in shown(range(steps), "steps", steps):
        gradient: Floats = np.zeros((FEATURES, NUMBERS))
        slopes: list[float] = []
        chosen: list[int] = rng.choice(len(cases), min(STEP_NETWORKS, len(cases)), replace=False).tolist()
        for number in chosen:
            direction = rng.standard_normal((FEATURES, NUMBERS))
            ahead, behind = (cases[number].share(weights + sign * EXPLORED * direction) for sign in (1, -1))
            gradient += (behind - ahead) * direction
            slopes.append(behind - ahead)
        velocity = MOMENTUM * velocity + (1 - MOMENTUM) * gradient / (len(slopes) * max(float(np.std(slopes)), 1e-12))
        weights = weights + RATE * EXPLORED * velocity
        mean = KEPT * mean + (1 - KEPT) * weights
    return mean


def text_of(weights: Floats) -> str:
    """Return the source of `learned_weights.py`."""
    lines = (f"    {number:.3f}," for number in weights.ravel().tolist())
    return "\n".join([HEAD.rstrip("\n"), *lines, ")", ""])


def measure(count: int) -> None:
    """Print a line for each of some networks that are not trained on, and the mean."""
    gains: list[float] = []
    for number in range(count):
        network, capacity = random_network(np.random.default_rng([7, number]), OTHER_WIDTHS)
        costs = others(network, capacity)
        best = min(cost for name, cost in costs.items() if name != LEARNED)
        start = process_time()
        decode(network, rolled_target_orders(network, capacity - 2, learned_rule(network, capacity - 2)))
        seconds = process_time() - start
        gains.append(costs[LEARNED] / best)
        words = f"{network.connection_count} connections, M = {capacity}: {costs[LEARNED]} over {best} transfers"
        console.print(f"{words}, {gains[-1]:.4f}, in {seconds:.2f} s", highlight=False)
    as_a_start = fmean(min(1.0, gain) for gain in gains)
    console.print(f"mean {fmean(gains):.4f}, as one more start {as_a_start:.4f}", highlight=False)


def main(
    steps: Annotated[int, typer.Option(help="Steps of training.")] = STEPS,
    seed: Annotated[int, typer.Option(help="Seed of everything random.")] = 0,
    measured: Annotated[int, typer.Option("--measure", help="Train nothing; measure on so many networks.")] = 0,
) -> None:
    """Train and write, or measure."""
    if measured:
        measure(measured)
        return
    rng = np.random.default_rng(seed)
    cases = [case_of(rng, TRAINED_WIDTHS) for _ in range(NETWORKS)]
    Path(learned_weights.__file__).write_text(text_of(trained(cases, steps, rng)), encoding="utf-8")


if __name__ == "__main__":
    typer.run(main)
