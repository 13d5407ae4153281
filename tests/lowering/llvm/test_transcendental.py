"""The errors in ulp that the functions state, against float64, and their limits, on every target."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special

from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.llvm import transcendental
from tests.lowering.llvm.elementwise_jit import Emit, Floats, compile_elementwise, every_nth_float, ulp_error
from tests.support.lowering_modules import each_target

Doubles = NDArray[np.float64]


class Claim(NamedTuple):
    """A function, its float64 reference, the error it states, and the largest argument it is made for."""

    emit: Emit
    reference: Callable[[Doubles], NDArray[np.floating]]
    ulp: float
    largest: float = np.inf


def softplus(x: Doubles) -> Doubles:
    return np.logaddexp(0.0, x)


CLAIMS = {
    "exp": Claim(transcendental.exp, np.exp, 1),
    "expm1": Claim(transcendental.expm1, np.expm1, 2, 88.0),
    "log": Claim(transcendental.log, np.log, 1),
    "softplus": Claim(transcendental.softplus, softplus, 2),
    "tanh": Claim(transcendental.tanh, np.tanh, 6),
    "sigmoid": Claim(transcendental.sigmoid, special.expit, 3),
    "erf": Claim(transcendental.erf, special.erf, 2),
}
each_claim = pytest.mark.parametrize("claim", CLAIMS.values(), ids=CLAIMS)


def largest_error(claim: Claim, target: CpuTarget, x: Floats) -> float:
    y = compile_elementwise(claim.emit, target)(x)
    with np.errstate(all="ignore"):
        return float(ulp_error(y, claim.reference(x.astype(np.float64))).max())


@each_target
@each_claim
def test_the_stated_error_holds_over_all_magnitudes(claim: Claim, target: CpuTarget) -> None:
    x = every_nth_float(8191)
    assert largest_error(claim, target, x[~(x > claim.largest)]) <= claim.ulp


@each_target
@each_claim
def test_the_stated_error_holds_where_the_function_bends(claim: Claim, target: CpuTarget) -> None:
    rng = np.random.default_rng(7)
    places = [rng.uniform(-20.0, 20.0, 200_000), rng.uniform(-1.5, 1.5, 200_000)]
    assert largest_error(claim, target, np.concatenate(places).astype(np.float32)) <= claim.ulp


@each_target
@each_claim
def test_the_stated_error_holds_at_the_seams(claim: Claim, target: CpuTarget) -> None:
    seams = [
        0.85,
        4.0,
        10.0,
        20.0,
        88.0,
        88.72284,
        87.33655,
        103.97208,
        104.0,
        0.5**0.5,
        2**0.5,
        2.0**-126,
        2.0**-149,
        1,
    ]
    multiples_of_half_ln2 = np.arange(1, 300) * np.log(2) / 2
    places = np.concatenate([seams, multiples_of_half_ln2]).astype(np.float32).view(np.uint32)
    near = (places[:, None] + np.arange(-40, 41)).astype(np.uint32).view(np.float32).ravel()
    x = np.concatenate([near, -near])
    assert largest_error(claim, target, x[~(x > claim.largest)]) <= claim.ulp


@pytest.mark.slow
@each_target
@each_claim
def test_the_stated_error_holds_for_one_float_in_251(claim: Claim, target: CpuTarget) -> None:
    for start in range(0, 16 * 251, 251):
        x = every_nth_float(16 * 251, start)
        assert largest_error(claim, target, x[~(x > claim.largest)]) <= claim.ulp


@each_target
@each_claim
def test_limits_are_those_of_float64(claim: Claim, target: CpuTarget) -> None:
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-45, -1e-45, 1e-40, 3e38, -3e38, -1.0], dtype=np.float32)
    x = x[~(x > claim.largest)]
    y = compile_elementwise(claim.emit, target)(x)
    with np.errstate(all="ignore"):
        expected = claim.reference(x.astype(np.float64)).astype(np.float32)
    np.testing.assert_allclose(y, expected, rtol=1e-6, atol=0.0)


@each_target
@pytest.mark.parametrize("name", ["tanh", "erf"])
def test_odd_functions_keep_the_sign_of_zero(name: str, target: CpuTarget) -> None:
    zeros = np.array([0.0, -0.0], dtype=np.float32)
    np.testing.assert_array_equal(np.signbit(compile_elementwise(CLAIMS[name].emit, target)(zeros)), [False, True])


@each_target
def test_exp_underflows_gradually(target: CpuTarget) -> None:
    x = np.linspace(-104.0, -87.0, 20_000, dtype=np.float32)
    y = compile_elementwise(transcendental.exp, target)(x)
    assert np.all(np.diff(y) >= 0.0)
    assert y[0] == 0.0
    assert np.count_nonzero((y > 0.0) & (y < np.finfo(np.float32).tiny)) > 10_000


@each_target
def test_the_exponential_of_negative_numbers_is_as_exact_as_it_states(target: CpuTarget) -> None:
    rng = np.random.default_rng(5)
    x = -np.concatenate([rng.uniform(0.0, 87.3, 200_000), rng.exponential(2.0, 200_000) % 87.3]).astype(np.float32)
    x = np.concatenate([x, np.array([0.0, -1e-40], np.float32)])
    y = compile_elementwise(transcendental.exp_of_negative, target)(x)
    assert np.all(ulp_error(y, np.exp(x.astype(np.float64))) < 2.0 - x / 16.0)
    limits = compile_elementwise(transcendental.exp_of_negative, target)(
        np.array([-88.0, -1e9, -np.inf, np.nan, 0.0], np.float32)
    )
    np.testing.assert_array_equal(limits, np.array([0.0, 0.0, 0.0, np.nan, 1.0], np.float32))


@each_target
def test_the_stated_error_of_a_gate_holds_and_its_limits_are_those_of_the_sigmoid(target: CpuTarget) -> None:
    x = np.random.default_rng(6).uniform(-87.3, 87.3, 200_000).astype(np.float32)
    y = compile_elementwise(transcendental.gate, target)(x)
    assert np.all(ulp_error(y, special.expit(x.astype(np.float64))) < 5.0 + np.abs(x) / 16.0)
    limits = compile_elementwise(transcendental.gate, target)(np.array([-np.inf, -89, 0, np.inf, np.nan], np.float32))
    np.testing.assert_array_equal(limits, np.array([0.0, 0.0, 0.5, 1.0, np.nan], np.float32))


@pytest.mark.slow
@each_target
@pytest.mark.parametrize("width", [1, 2, 16, 32])
def test_the_width_does_not_change_the_result(width: int, target: CpuTarget) -> None:
    x = np.random.default_rng(3).normal(0.0, 5.0, 999).astype(np.float32)
    for claim in CLAIMS.values():
        expected = compile_elementwise(claim.emit, target)(x)
        np.testing.assert_array_equal(compile_elementwise(claim.emit, target, width)(x), expected)


def exact_softplus(x: float) -> mpmath.mpf:
    return mpmath.log1p(mpmath.exp(x))


def exact_sigmoid(x: float) -> mpmath.mpf:
    return 1 / (1 + mpmath.exp(-x))


@pytest.mark.parametrize(
    "name, oracle",
    [
        ("exp", mpmath.exp),
        ("expm1", mpmath.expm1),
        ("log", mpmath.log),
        ("softplus", exact_softplus),
        ("tanh", mpmath.tanh),
        ("sigmoid", exact_sigmoid),
        ("erf", mpmath.erf),
    ],
)
def test_the_float64_references_are_exact_enough_to_judge(name: str, oracle: Callable[[float], mpmath.mpf]) -> None:
    x = np.random.default_rng(4).uniform(1e-3, 15.0, 200).astype(np.float32).astype(np.float64)
    with mpmath.workdps(40):
        expected = np.array([float(oracle(value)) for value in x])
    np.testing.assert_allclose(CLAIMS[name].reference(x), expected, rtol=1e-14)
