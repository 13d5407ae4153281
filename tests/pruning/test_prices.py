"""Prices of layers know shared inputs, and what the clock found."""

import pytest

from redpebble.kernels.machine import Machine
from redpebble.pruning.layer_prices import Anchor, Correction, LayerPrices, correction_of
from redpebble.pruning.layers import PrunableLayer
from redpebble.pruning.measured_prices import measured_corrections
from redpebble.pruning.options import Goal, PruneOptions
from redpebble.pruning.runs.call_sizes import CallSizes
from redpebble.pruning.runs.layer_times import LayerClock
from redpebble.pruning.runs.timing import MeasuredTimes


def layer_of(inputs: int, outputs: int) -> PrunableLayer:
    return PrunableLayer("one", 0, "x", "w", False, inputs, outputs)


def prices_of(layer: PrunableLayer, structure: str, rows: int = 64) -> LayerPrices:
    options = PruneOptions(Goal("sparsity", 0.5), rows, structure=structure)
    return LayerPrices([layer], options, CallSizes(1, {"one": rows}, {}), Machine())


def test_outputs_that_share_inputs_are_cheaper() -> None:
    layer = layer_of(256, 256)
    even, shared = (prices_of(layer, name).sparse_us(layer, 0.3) for name in ("equal", "rows:16"))
    assert even is not None
    assert shared is not None
    assert shared < 0.95 * even


def test_corrections_are_exact_where_something_was_measured_and_geometric_between() -> None:
    anchors = [Anchor(0.4, 100.0, MeasuredTimes(300.0, 150.0)), Anchor(0.1, 50.0, MeasuredTimes(200.0, 40.0))]
    correction = correction_of(400.0, anchors)
    assert correction.dense == 0.5
    assert 100.0 * correction.of_density(0.4) == pytest.approx(200.0 / 2)
    assert 50.0 * correction.of_density(0.1) == pytest.approx(200.0 / 5)
    assert correction.of_density(0.2) == pytest.approx((correction.of_density(0.1) * correction.of_density(0.4)) ** 0.5)
    assert correction.of_density(0.01) == correction.of_density(0.1)
    assert Correction().of_density(0.3) == 1.0


def test_corrected_gains_are_those_of_the_clock() -> None:
    large, small = layer_of(256, 256), layer_of(16, 128)
    options = PruneOptions(Goal("speedup", 2.0), 64, structure="1:8")
    prices, clock = prices_of(large, "1:8"), LayerClock(options, CallSizes(1, {"one": 64}, {}))
    seen = list[tuple[str, int, int]]()

    def watch(what: str, done: int, total: int) -> None:
        seen.append((what, done, total))

    found = measured_corrections([large, small], options.chosen_structure, prices, clock, watch)
    assert seen == [("measuring prices", 1, 1)]
    assert found[prices.kind_of(large)] == found[prices.kind_of(small)]
    before = prices.dense_us(large)
    prices.correct(found)
    correction = found[prices.kind_of(large)]
    assert prices.dense_us(large) == pytest.approx(correction.dense * before)
    us = prices.sparse_us(large, 0.125)
    expected = (prices.predicted_us(large, 0.125) or 0.0) * correction.of_density(0.125)
    assert us is None or us == pytest.approx(expected)
