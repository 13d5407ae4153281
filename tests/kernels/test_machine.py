from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.kernels.families import FAMILIES
from redpebble.kernels.machine import Machine
from redpebble.kernels.measured.neighbours import Example, Examples, Place
from redpebble.kernels.prediction import candidates, predicted_us
from redpebble.kernels.tile_widths import WIDTHS
from redpebble.kernels.work import Layer, misses

machines = st.builds(
    Machine,
    lanes=st.sampled_from((4, 8, 16)),
    l2_bytes=st.sampled_from((256 << 10, 1 << 20, 2 << 20)),
    l3_ns=st.floats(0.01, 0.2),
)


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    inputs = draw(st.sampled_from((0, 1, 7, 100, 128, 1000)))
    counts = np.array(draw(st.lists(st.integers(0, inputs), max_size=70)), dtype=np.int64)
    stored = draw(st.sampled_from(("dense", "sparse", "panels")))
    return Layer(inputs, counts, draw(st.sampled_from((0.0, 1e5, 1e7, 1e9))), stored, 0.4 * float(counts.sum()))


@st.composite
def cases(draw: st.DrawFn) -> tuple[str, Layer, int, Machine]:
    layer, machine, width = draw(layers()), draw(machines), draw(st.sampled_from(WIDTHS))
    return draw(st.sampled_from(candidates(layer, width, machine))), layer, width, machine


@settings(deadline=None)
@given(cases())
def test_every_cost_is_a_time(case: tuple[str, Layer, int, Machine]) -> None:
    assert 0 <= predicted_us(*case) < float("inf")


@settings(deadline=None)
@given(cases(), st.data())
def test_more_connections_cost_no_less(case: tuple[str, Layer, int, Machine], data: st.DataObject) -> None:
    family, layer, width, machine = case
    more = np.array([data.draw(st.integers(count, layer.inputs)) for count in layer.counts], dtype=np.int64)
    # beyond that, more connections make blocks cut the inputs into parts that fit the first-level cache
    if not family.endswith("_blocks") or layer.inputs <= 128:
        fuller = replace(layer, counts=more, panel_reads=0.4 * float(more.sum()))
        assert predicted_us(family, fuller, width, machine) >= predicted_us(family, layer, width, machine) * (1 - 1e-9)


@settings(deadline=None)
@given(cases())
def test_wider_tiles_cost_no_less(case: tuple[str, Layer, int, Machine]) -> None:
    family, layer, _, machine = case
    times = [predicted_us(family, layer, width, machine) for width in FAMILIES[family].widths]
    assert times == sorted(times)


@pytest.mark.slow
@settings(deadline=None)
@given(cases())
def test_a_smaller_cache_or_a_slower_memory_costs_no_less(case: tuple[str, Layer, int, Machine]) -> None:
    family, layer, width, machine = case
    time = predicted_us(*case)
    smaller = replace(machine, l2_bytes=machine.l2_bytes // 2)
    slower = replace(machine, l3_ns=2 * machine.l3_ns, dram_ns=2 * machine.dram_ns)
    crowded = replace(layer, other_bytes=layer.other_bytes + 1e6)
    assert predicted_us(family, layer, width, slower) >= time
    assert predicted_us(family, crowded, width, machine) >= time
    if 4 * width * (layer.inputs + layer.outputs) < machine.l2_bytes / 4:
        assert predicted_us(family, layer, width, smaller) >= time


@settings(deadline=None)
@given(cases(), st.floats(0.1, 10))
def test_a_measured_factor_multiplies_the_time_of_what_the_cache_holds(
    case: tuple[str, Layer, int, Machine], factor: float
) -> None:
    family, layer, width, machine = case
    near = replace(layer, other_bytes=0.0)
    calibrated = replace(machine, l2_bytes=1 << 30, l3_bytes=1 << 30)
    time = predicted_us(family, near, width, calibrated)
    examples = Examples.of([Example(Place.of(near), {f"{family}@{width}": factor})])
    corrected = predicted_us(family, near, width, replace(calibrated, examples=examples))
    assert corrected == pytest.approx(factor * time, rel=1e-3)


def test_dense_kernels_cost_the_same_whatever_the_connections() -> None:
    thin, full = (Layer(300, np.full(200, count)) for count in (1, 300))
    for width in WIDTHS:
        (dense,) = candidates(replace(thin, stored="dense"), width, Machine())
        assert predicted_us(dense, thin, width, Machine()) == predicted_us(dense, full, width, Machine())


@pytest.mark.parametrize("lanes", [8, 16])
@pytest.mark.parametrize("width", WIDTHS)
def test_sparse_wins_where_little_is_left_and_dense_where_nothing_was_pruned(lanes: int, width: int) -> None:
    machine = Machine(lanes=lanes)

    def fastest(count: int) -> str:
        layer = Layer(1024, np.full(1024, count))
        return min(candidates(layer, width, machine), key=lambda name: predicted_us(name, layer, width, machine))

    assert "dense" not in FAMILIES[fastest(50)].stored
    assert "dense" in FAMILIES[fastest(1024)].stored


def test_permuted_lookups_are_for_vectors_that_can_be_permuted_at_will() -> None:
    layer = Layer(8, np.ones(8, dtype=np.int64))
    assert "permute_lookup" in candidates(layer, 1, Machine())
    assert "permute_lookup" not in {*candidates(layer, 1, Machine(lanes=8)), *candidates(layer, 1, Machine(lanes=4))}


def test_panels_are_for_layers_that_have_some() -> None:
    layer = Layer(8, np.ones(8, dtype=np.int64))
    assert "row_panels" not in candidates(layer, 64, Machine())
    assert "row_panels" in candidates(replace(layer, stored="panels"), 64, Machine())


def test_a_cache_holds_what_is_smaller_and_nothing_of_what_is_much_larger() -> None:
    assert misses(1000, 2000) == 0
    assert 0 < misses(2200, 2000) < 1
    assert misses(4000, 2000) == 1


def test_a_family_without_code_for_the_width_is_refused() -> None:
    found = "got permute_lookup for a sparse layer at width 8 and 16 lanes"
    message = f"^expected a cost for one of dense_outputs, .*sparse_rows, {found}$"
    with pytest.raises(ValueError, match=message):
        predicted_us("permute_lookup", Layer(8, np.ones(8, dtype=np.int64)), 8, Machine())


def test_vectors_of_odd_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^expected 4, 8 or 16 lanes, got 3$"):
        Machine(lanes=3)


def test_caches_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^expected ascending positive sizes of caches, got 48, 32, 64 bytes$"):
        Machine(l1_bytes=48, l2_bytes=32, l3_bytes=64)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_times_that_are_not_positive_are_refused(value: float) -> None:
    with pytest.raises(ValueError, match=rf"^expected a positive number of l3_ns, got {value}$"):
        Machine(l3_ns=value)


def test_a_machine_that_was_not_measured_has_no_prices() -> None:
    with pytest.raises(ValueError, match=r"^expected prices of cascade_lake.*, got 'abacus'"):
        Machine(prices="abacus")
