"""Prices are those that the fit makes of the measured rows, and the choice that follows from them is a good one."""

from dataclasses import replace
from statistics import fmean

import numpy as np
import pytest

from redpebble.bench.fit_prices import fit_all, fitted, text_of, with_streams
from redpebble.bench.measured_layers import DATA, MeasuredMachine, measured_machines, read_rows
from redpebble.kernels import prices
from redpebble.kernels.families import FAMILIES
from redpebble.kernels.prediction import predicted_us
from redpebble.kernels.tile_widths import WIDTHS
from redpebble.tuning.probe_layers import mask_of

SMALLEST = DATA / "cascade_lake-4.csv"


@pytest.mark.slow
def test_committed_prices_are_those_of_the_fit() -> None:
    measured = read_rows(SMALLEST)
    known = prices.PRICES[measured.name][measured.lanes]
    found = fitted(measured)
    assert list(found) == list(known)
    for family, own in found.items():
        assert own == pytest.approx(known[family], rel=0.01, abs=1e-3), family


@pytest.mark.slow
def test_committed_prices_of_all_machines_are_those_of_the_fit() -> None:
    found = fit_all()
    assert {name: list(by_lanes) for name, by_lanes in found.items()} == {
        name: list(by_lanes) for name, by_lanes in prices.PRICES.items()
    }
    for name, by_lanes in found.items():
        for lanes, own in by_lanes.items():
            for family, priced in own.items():
                assert priced == pytest.approx(prices.PRICES[name][lanes][family], rel=0.01, abs=1e-3)


def test_every_family_has_prices_wherever_it_has_code() -> None:
    for by_lanes in prices.PRICES.values():
        for lanes, known in by_lanes.items():
            fitted = [family for family in FAMILIES.values() if family.priced_in is None]
            own = {family.name for family in fitted if lanes in family.lanes and not family.rounds}
            # a machine may lack instructions for bfloat16, or have measured what others price by another family
            more = {name for name, family in FAMILIES.items() if family.rounds or family.priced_in is not None}
            assert own <= set(known) <= own | more


EXACT = [name for name, family in FAMILIES.items() if not family.rounds]


def regret(measured: MeasuredMachine, step: int) -> float:
    """The mean time of the kernel that the model chooses over that of the fastest one, at all widths."""
    machine = replace(with_streams(measured), prices=measured.name)
    ratios: list[float] = []
    for one in measured.layers[::step]:
        layer = one.layer()
        for width in WIDTHS:
            times = {name: one.microseconds.get(f"{name}@{width}", np.inf) for name in EXACT}
            known = [name for name, time in times.items() if time < np.inf]
            chosen = min(known, key=lambda name, at=width, of=layer: predicted_us(name, of, at, machine))
            ratios.append(times[chosen] / min(times.values()))
    return fmean(ratios)


@pytest.mark.slow
def test_the_choice_is_a_few_percent_off_the_fastest_kernel() -> None:
    for measured in measured_machines():
        assert regret(measured, 24) < 1.08


def test_rows_are_written_as_they_were_read() -> None:
    assert read_rows(SMALLEST).text() == SMALLEST.read_text(encoding="utf-8")


def test_layers_are_drawn_again_from_their_numbers() -> None:
    random, planted = mask_of(0), mask_of(1000)
    assert random.shape == (88, 592)
    assert round(float(random.mean()), 5) == 0.07258
    assert np.array_equal(planted, mask_of(1000))


def test_prices_are_written_as_a_module_that_python_reads() -> None:
    scope: dict[str, object] = {}
    exec(text_of({"abacus": {4: {"strips": (0.12345, 2.0)}}}), scope)
    assert scope["PRICES"] == {"abacus": {4: {"strips": (0.123, 2.0)}}}
