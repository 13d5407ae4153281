"""Vector operations on the awkward values, on every target, and at every width."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest
from llvmlite import ir
from numpy.typing import NDArray

from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.llvm.vectors import Lanes
from tests.lowering.llvm.elementwise_jit import Emit, Floats, compile_elementwise, elementwise_object, undefined_symbols
from tests.support.lowering_modules import each_target

WIDTHS = (1, 2, 4, 8, 16, 32)
AWKWARD = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 3e38, -3e38, 1.5, -1.5, 7.25], dtype=np.float32)


def run(emit: Emit, target: CpuTarget, x: Floats = AWKWARD) -> Floats:
    return compile_elementwise(emit, target)(x)


@each_target
def test_a_bound_keeps_nan_and_the_sign_of_zero(target: CpuTarget) -> None:
    lower = run(lambda lanes, x: lanes.max(x, 0.0), target)
    upper = run(lambda lanes, x: lanes.min(x, 0.0), target)
    np.testing.assert_array_equal(lower, np.maximum(AWKWARD, np.float32(0.0)))
    np.testing.assert_array_equal(upper, np.minimum(AWKWARD, np.float32(0.0)))
    np.testing.assert_array_equal(np.signbit(lower[3:5]), [False, True])


@each_target
def test_arithmetic_is_rounded_once(target: CpuTarget) -> None:
    x = np.random.default_rng(1).standard_normal(1000).astype(np.float32)
    third = np.float32(1 / 3)
    np.testing.assert_array_equal(run(lambda lanes, v: lanes.add(v, 1 / 3), target, x), x + third)
    np.testing.assert_array_equal(run(lambda lanes, v: lanes.sub(1 / 3, v), target, x), third - x)
    np.testing.assert_array_equal(run(lambda lanes, v: lanes.mul(v, 1 / 3), target, x), x * third)
    np.testing.assert_array_equal(run(lambda lanes, v: lanes.div(1 / 3, v), target, x), third / x)
    np.testing.assert_array_equal(run(lambda lanes, v: lanes.sqrt(lanes.abs(v)), target, x), np.sqrt(np.abs(x)))


@each_target
def test_multiply_add_is_fused_where_the_target_has_it(target: CpuTarget) -> None:
    x = np.random.default_rng(2).standard_normal(1000).astype(np.float32)
    third = np.float32(1 / 3)
    fused = (x.astype(np.float64) * third - 1).astype(np.float32)
    expected = fused if target.has_fma else x * third - np.float32(1)
    np.testing.assert_array_equal(run(lambda lanes, v: lanes.fma(v, 1 / 3, -1.0), target, x), expected)


@each_target
def test_outer_products_are_added_factor_by_factor(target: CpuTarget) -> None:
    def emit(lanes: Lanes, x: ir.Value) -> ir.Value:
        vectors = [x, lanes.splat(2.0)]
        sums = [lanes.splat(float(number)) for number in range(6)]
        # 0 + 3 x, 1 + 6, 2 + 5 x, 3 + 10, 4 - x, 5 - 2
        added = lanes.add_outer(sums, (3.0, 5.0, -1.0), vectors)
        assert lanes.add_outer(sums[:0], (), vectors) == []
        # 3 x + 49 + (5 x + 2) - 13 + 7 (4 - x) + 3
        (total,) = lanes.add_products([added[0]], 7.0, [added[1]])
        (total,) = lanes.add_products([lanes.add(total, added[2])], -1.0, [added[3]])
        (total,) = lanes.add_products([total], 7.0, [added[4]])
        return lanes.add(total, added[5])

    x = np.arange(32, dtype=np.float32)
    assert np.array_equal(compile_elementwise(emit, target)(x), x + 69)


@each_target
def test_signs_are_bits(target: CpuTarget) -> None:
    def signed_two(lanes: Lanes, x: ir.Value) -> ir.Value:
        return lanes.copysign(2.0, x)

    cases: list[tuple[Emit, Floats]] = [
        (Lanes.neg, np.negative(AWKWARD)),
        (Lanes.abs, np.abs(AWKWARD)),
        (signed_two, np.copysign(np.float32(2.0), AWKWARD)),
    ]
    for emit, expected in cases:
        np.testing.assert_array_equal(run(emit, target).view(np.uint32), expected.view(np.uint32))


@each_target
def test_comparisons_never_hold_for_nan(target: CpuTarget) -> None:
    operators = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal}
    for operator, function in operators.items():

        def emit(lanes: Lanes, x: ir.Value, operator: str = operator) -> ir.Value:
            return lanes.select(lanes.compare(operator, x, 1.5), 1.0, 0.0)

        np.testing.assert_array_equal(run(emit, target), function(AWKWARD, np.float32(1.5)).astype(np.float32))
    nan = run(lambda lanes, x: lanes.select(lanes.is_nan(x), 1.0, 0.0), target)
    np.testing.assert_array_equal(nan, np.isnan(AWKWARD).astype(np.float32))


@each_target
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("emit, function", [(Lanes.horizontal_sum, np.sum), (Lanes.horizontal_max, np.max)])
def test_a_horizontal_reduction_sees_every_lane_and_every_nan(
    target: CpuTarget, width: int, emit: Callable[[Lanes, ir.Value], ir.Value], function: Callable[..., Floats]
) -> None:
    rows = np.random.default_rng(width).integers(-50, 50, (2 * width + 1, width)).astype(np.float32)
    rows[np.arange(width), np.arange(width)] = 1000.0
    rows[width + np.arange(width), np.arange(width)] = np.nan
    kernel = compile_elementwise(lambda lanes, x: lanes.splat(emit(lanes, x)), target, width)
    expected: NDArray[np.float32] = function(rows, axis=1, keepdims=True)
    np.testing.assert_array_equal(kernel(rows), np.broadcast_to(expected, rows.shape))


@each_target
def test_a_number_beyond_the_range_of_floats_is_infinite(target: CpuTarget) -> None:
    np.testing.assert_array_equal(run(lambda lanes, x: lanes.splat(-1e300), target), np.full(AWKWARD.size, -np.inf))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads ELF")
@each_target
def test_a_call_of_libm_would_be_seen(target: CpuTarget) -> None:
    def emit(lanes: Lanes, x: ir.Value) -> ir.Value:
        scalar = ir.Function(lanes.builder.module, ir.FunctionType(ir.FloatType(), [ir.FloatType()]), "llvm.exp.f32")
        first = lanes.builder.extract_element(x, ir.Constant(ir.IntType(32), 0))
        return lanes.splat(lanes.builder.call(scalar, [first]))

    assert undefined_symbols(elementwise_object(emit, target, target.lanes)) == {"expf"}
