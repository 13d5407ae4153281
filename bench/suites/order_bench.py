"""The benchmark of the search: how close to W + N + S it comes on three reference networks, in how many seconds.

`python -m redpebble.bench.suites.order_bench [SECONDS,...]` prints a line for each network, policy and budget (5 and 60
s unless others are given): one thread, one seed, the time of this process alone.
"""

from dataclasses import dataclass
from itertools import product
from time import process_time
from typing import Annotated, Final

import numpy as np
import typer

from ...sparse.neuron_graph import NeuronGraph, from_layers
from ...theory.pebbling.bounds.bounds import instance_bound, lower_bound
from ...theory.pebbling.machine import POLICIES, Policy
from ...theory.pebbling.search.search import FoundOrder, SearchRequest, search_order
from ..results.page_tables import PageTable, Write

ORDERS: Final = PageTable(
    "orders of connections", ("network", "policy", "seconds", "times W + N + S", "target", "no order below", "start")
)


@dataclass(frozen=True)
class OrderCase:
    """A random network of four layers, and the rows of fast memory that its connections are ordered for."""

    name: str
    width: int
    density: float
    memory: int

    def network(self) -> NeuronGraph:
        """Return the network, always the same one."""
        rng, shape = np.random.default_rng(0), (self.width, self.width)
        return from_layers([rng.random(shape) < self.density for _ in range(3)])


CASES: Final = (
    OrderCase("A", 500, 0.1, 100),
    OrderCase("B", 100, 0.1, 30),
    OrderCase("C", 500, 0.01, 100),
)

TARGETS: Final = {
    ("A", "min", 5.0): 1.095,
    ("B", "min", 5.0): 1.187,
    ("C", "min", 5.0): 1.237,
    ("A", "min", 60.0): 1.088,
    ("B", "min", 60.0): 1.175,
    ("C", "min", 60.0): 1.218,
    ("A", "lru", 60.0): 1.14,
    ("B", "lru", 60.0): 1.245,
    ("C", "lru", 60.0): 1.33,
}
"""Multiples of W + N + S to reach, by network, policy and seconds."""


def search(case: OrderCase, policy: Policy, seconds: float) -> FoundOrder:
    """Return the order found in `seconds` of this process's time."""
    start = process_time()
    request = SearchRequest(case.memory, policy, remaining=lambda: seconds - (process_time() - start))
    return search_order(case.network(), request, np.random.default_rng(1))


def main(
    budgets: Annotated[str, typer.Argument(help="Seconds of each search.")] = "5,60", *, write: Write = False
) -> None:
    """Print a line for each case, policy and budget."""
    with ORDERS.rows(write=write) as add:
        for case, policy in product(CASES, POLICIES):
            network = case.network()
            least = lower_bound(network).total
            bound = instance_bound(network, case.memory).total / least
            search_order(network, SearchRequest(case.memory, policy, proposals=1), np.random.default_rng(0))  # compiles
            for seconds in map(float, budgets.split(",")):
                found = search(case, policy, seconds)
                target = TARGETS.get((case.name, policy, seconds))
                words = (f"{found.counts.total / least:.4f}", f"{target:.3f}" if target else "", f"{bound:.4f}")
                add(case.name, policy, f"{seconds:g}", *words, found.start)


if __name__ == "__main__":
    typer.run(main)
