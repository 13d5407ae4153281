"""Measured layers make up for prices of another machine: over rows of two machines, with no clock involved."""

import pytest

from redpebble.bench.fit_prices import examples_of
from redpebble.bench.measured_layers import DATA, read_rows
from redpebble.bench.transfer_bench import machine_of, probed, regrets
from redpebble.kernels.measured.built_in_examples import built_in_examples
from redpebble.kernels.measured.neighbours import Example


@pytest.mark.slow
def test_thirty_probes_find_the_kernels_of_a_machine_that_prices_were_not_fitted_to() -> None:
    measured = read_rows(DATA / "zen5-16.csv")
    alone = machine_of(measured, "cascade_lake")
    before, after = (regrets(measured, machine, 20) for machine in (alone, probed(measured, alone)))
    assert before[16] > 1.05
    assert after[1] < 1.01
    assert after[16] < 1.03
    assert after[64] < 1.02
    assert sum(after.values()) < sum(before.values()) - 0.2


@pytest.mark.parametrize("machine", ["cascade_lake-4", "zen5-16"])
def test_committed_examples_are_those_of_the_rows(machine: str) -> None:
    measured = read_rows(DATA / f"{machine}.csv")
    known, found = built_in_examples(measured.name, measured.lanes), examples_of(measured, measured.name)
    assert [Example.parse(word).place for word in known.words] == [Example.parse(word).place for word in found.words]
    for one, other in zip(map(Example.parse, known.words), map(Example.parse, found.words), strict=True):
        assert one.factors == pytest.approx(other.factors, rel=0.02)
