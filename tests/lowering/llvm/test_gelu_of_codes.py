"""Gelu of what is going to be rounded to codes: cubics in a register, against erf in double precision."""

from math import erf, inf, nan

import numpy as np

from redpebble.lowering.llvm.activations import THIRDS, gelu_cubics


def test_cubics_are_within_the_stated_error_everywhere() -> None:
    x = np.concatenate([np.linspace(-9, 9, 100_001), [-1e30, -88.0, 88.0]])
    powers, thirds = np.array(gelu_cubics()), np.minimum(np.abs(x) * THIRDS, len(gelu_cubics()[0]) - 1)
    nearest = np.rint(thirds).astype(int)
    half = sum(powers[power][nearest] * (thirds - nearest) ** power for power in range(len(powers)))
    expected = np.array([value * (1 + erf(value / np.sqrt(2))) / 2 for value in x])
    np.testing.assert_allclose(x / 2 + np.abs(x) * half, expected, rtol=0, atol=3.5e-6)


def test_what_lies_behind_the_last_cubic_is_the_value_or_zero() -> None:
    assert [power[-1] for power in gelu_cubics()] == [0.5, 0.0, 0.0, 0.0]
    assert {inf, nan}.isdisjoint(value for power in gelu_cubics() for value in power)
