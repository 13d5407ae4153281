from statistics import fmean

import numpy as np
import pytest

from redpebble.bench.train_rolling import OTHER_WIDTHS, case_of, random_network, text_of, trained
from redpebble.sparse.neuron_graph import NeuronGraph, from_layers
from redpebble.theory.pebbling.machine import Memory
from redpebble.theory.pebbling.machine_compiled import count_transfers
from redpebble.theory.pebbling.orders.interval_stabbing import check_target_orders
from redpebble.theory.pebbling.orders.learned_rule import EXPONENT, FEATURES, NUMBERS, learned_rule, rule_of
from redpebble.theory.pebbling.orders.rolling_orders import greedy_target_orders, rolled_target_orders
from redpebble.theory.pebbling.search.search import SearchRequest, search_order
from redpebble.theory.pebbling.search.starts import LEARNED, start_orders


def unseen(number: int) -> tuple[NeuronGraph, int]:
    return random_network(np.random.default_rng([11, number]), (60, 250))


def test_the_rule_of_no_weights_is_the_greedy_one() -> None:
    network, capacity = unseen(0)
    rule = rule_of(np.zeros((FEATURES, NUMBERS)), network, capacity - 2)
    found = rolled_target_orders(network, capacity - 2, rule)
    greedy = greedy_target_orders(network, capacity - 2, EXPONENT)
    assert np.array_equal(found.opening, greedy.opening)
    assert np.array_equal(found.closing, greedy.closing)


def test_the_learned_rule_moves_less_than_any_other_start_on_networks_it_has_not_seen() -> None:
    shares: list[float] = []
    for number in range(6):
        network, capacity = unseen(number)
        orders = start_orders(network, capacity)
        costs = {name: count_transfers(network, order, Memory(capacity)).total for name, order in orders.items()}
        shares.append(costs.pop(LEARNED) / min(costs.values()))
    assert fmean(shares) <= 0.988


@pytest.mark.parametrize("density", [0.0, 0.02, 1.0])
def test_any_network_is_rolled(density: float) -> None:
    rng = np.random.default_rng(0)
    network = from_layers([rng.random(shape) < density for shape in ((9, 30), (30, 1), (1, 12))])
    for open_count in (1, 3, 100):
        rule = learned_rule(network, open_count)
        check_target_orders(network, rolled_target_orders(network, open_count, rule))


def test_a_search_says_that_it_began_with_the_learned_order() -> None:
    network, capacity = random_network(np.random.default_rng([7, 1]), OTHER_WIDTHS)
    found = search_order(network, SearchRequest(capacity, proposals=0), np.random.default_rng(0))
    assert found.start == LEARNED
    assert found.counts.total == min(count.total for count in found.starts.values())


def test_training_is_repeatable_and_gains() -> None:
    cases = [case_of(np.random.default_rng(number), (10, 15)) for number in range(4)]
    few = trained(cases, 3, np.random.default_rng(0))
    assert np.array_equal(few, trained(cases, 3, np.random.default_rng(0)))
    assert text_of(few).count("\n    ") == FEATURES * NUMBERS
    weights = trained(cases, 150, np.random.default_rng(0))
    before = fmean(case.share(np.zeros_like(weights)) for case in cases)
    assert fmean(case.share(weights) for case in cases) < before
