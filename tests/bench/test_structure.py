"""The benchmark of planted structures measures all engines, and finds what was planted."""

import numpy as np
import pytest

from redpebble.bench.suites.structure_bench import CASES, StructuredLayer, bench_structure
from redpebble.verification.measuring import Budget


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "found"), [("panels of 8 at 0.80", "panels, 8 of 8 outputs"), ("2:4", "2 of every 4")]
)
def test_a_case_is_found_and_measured_in_every_engine(case: str, found: str) -> None:
    measured = bench_structure(case, 64, 40, Budget(0.0, least_rounds=1))
    assert any(found in sentence for sentence in measured.found)
    assert measured.connections == np.count_nonzero(StructuredLayer.of(case, 64).weight())
    assert {"kernel", "ports", "call", "onnxruntime"} <= measured.timings.keys()
    assert all(measured.gflops(engine, 40) > 0 for engine in measured.timings)


def test_layers_are_as_sparse_as_their_cases_say() -> None:
    for case in CASES:
        share = np.count_nonzero(StructuredLayer.of(case, 512).weight()) / 512**2
        *_, said = case.split(" at ")
        wanted = {"2:4": 0.5, "2:4, inputs shuffled": 0.5}.get(case, 0.25) if said == case else 1 - float(said)
        assert share == pytest.approx(wanted, abs=0.02)
