"""What counts as the same result."""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from redpebble.verification.compare import CheckPlan, Feeds, compare_runs
from redpebble.verification.feeds import InputChoice
from redpebble.verification.oracle import Oracle, Tolerance, compare


@pytest.mark.parametrize("operator, apart, agrees", [("Round", 1, True), ("Round", 3, False), ("Abs", 1, False)])
def test_values_that_lie_between_two_integers_may_be_rounded_to_either(
    tmp_path: Path, operator: str, apart: int, agrees: bool
) -> None:
    np.savez(tmp_path / "x.npz", x=np.full((2, 4), 0.5, np.float32))
    text = f'<ir_version: 10, opset_import: ["" : 21]> r (float[n, 4] x) => (float[n, 4] y) {{ y = {operator} (x) }}'
    model = ir.from_onnx_text(text)
    oracle = Oracle(model)
    plan = CheckPlan((1,), 1, 0, Tolerance(), InputChoice(file=tmp_path / "x.npz"))

    def other(feeds: Feeds) -> list[np.ndarray]:
        (right,) = oracle.run(feeds)
        return [right + np.float32(apart)]

    (found,) = compare_runs(plan, model, oracle, other)
    assert (found.mismatches == 0) == agrees
    assert found.max_error == apart


@pytest.mark.parametrize(("size", "mismatches"), [(1.0, 1), (100.0, 0)])
def test_sums_that_cancel_may_be_off_by_what_large_values_beside_them_round(size: float, mismatches: int) -> None:
    expected = np.array([size, -size, 0.0, np.inf, 1e-3], np.float32)
    found = expected + np.array([0, 0, 0, 0, 5e-4 if size > 1 else 5e-5], np.float32)
    assert compare("y", expected, found, Tolerance()).mismatches == mismatches


@pytest.mark.parametrize(("units", "mismatches"), [(0.5, 0), (50.0, 1)])
def test_results_may_be_as_far_apart_as_those_of_weights_that_differ_in_their_last_bits(
    tmp_path: Path, units: float, mismatches: int
) -> None:
    # two large products of each sum cancel
    x, large = np.array([[1.0, -1.0, 1e-3]], np.float32), np.full((2, 5), 3000.0, np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 21]> r (float[n, 3] x) => (float[n, 5] y) { y = MatMul (x, w) }',
        initializers=[ir.tensor(np.concatenate([large, np.ones((1, 5), np.float32)]), name="w")],
    )
    oracle, plan = Oracle(model), CheckPlan((1,), 1, 0, Tolerance(), InputChoice(file=tmp_path / "x.npz"))

    def other(feeds: Feeds) -> list[np.ndarray]:
        (right,) = oracle.run(feeds)
        changed = np.array(right)
        changed[0, 0] += np.float32(units * 3000 * 2.0**-21)
        return [changed]

    (found,) = compare_runs(plan, model, oracle, other)
    assert found.mismatches == mismatches


def test_what_zero_weights_make_of_nan_is_left_open_and_no_other_value_is(tmp_path: Path) -> None:
    x = np.ones((3, 4), np.float32)
    x[1, 2] = np.nan
    np.savez(tmp_path / "x.npz", x=x)
    model = ir.from_onnx_text(
        '<ir_version: 10, opset_import: ["" : 21]> r (float[n, 4] x) => (float[n, 4] y) { y = Neg (x) }'
    )
    oracle, plan = Oracle(model), CheckPlan((1,), 1, 0, Tolerance(), InputChoice(file=tmp_path / "x.npz"))
    for place, mismatches in (((1, 2), 0), ((0, 0), 1), ((1, 1), 1)):

        def other(feeds: Feeds, place: tuple[int, int] = place) -> list[np.ndarray]:
            (right,) = oracle.run(feeds)
            changed = np.array(right)
            changed[place] = 7
            return [changed]

        (found,) = compare_runs(plan, model, oracle, other)
        assert found.mismatches == mismatches
