"""The benchmark of parts sets predicted beside measured times for every plan and number of ranks."""

import pytest

from redpebble.bench.suites.parts_bench import RANKS, Measured, PartsCase, cells_of, measure
from redpebble.distributed.plans.cluster import Machine
from redpebble.distributed.plans.plans import ROW_KINDS

CASE = PartsCase("ffnn(depth=2, width=32, density=0.2)", 96)


def test_a_line_compares_prediction_and_measurement_and_both_with_one_rank() -> None:
    found = [Measured("batch", 1, 6.0, 8.0), Measured("rows", 2, 5.0, 4.0)]
    assert list(cells_of(iter(found))) == [
        ("batch", "1", "6.00", "8.00", "0.75", "1.00"),
        ("rows", "2", "5.00", "4.00", "1.25", "2.00"),
    ]


@pytest.mark.slow
def test_every_plan_is_predicted_and_measured_on_every_number_of_ranks() -> None:
    found = list(measure(CASE, Machine(), 0.01))
    assert [(one.kind, one.ranks) for one in found] == [(kind, ranks) for kind in ROW_KINDS for ranks in RANKS]
    assert all(0 < one.predicted < float("inf") and 0 < one.measured < float("inf") for one in found)
