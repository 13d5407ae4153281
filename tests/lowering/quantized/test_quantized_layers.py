"""Quantized layers as native code against sums of integers in numpy: the same bits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.attributes.codes import CodesAttr
from redpebble.kernels.byte_times import QUADS, SCATTERED, SHARED, TILES
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.runtime.jit import host_target
from tests.support.lowering_modules import native
from tests.support.quantized_layers import CODES, GELU, RELU, TANH, Layers, each_form, inputs


@each_form
@pytest.mark.parametrize("activation", [None, RELU], ids=["linear", "relu"])
def test_layers_are_exact_for_any_rows(target: CpuTarget, activation: ActivationAttr | None) -> None:
    layers = Layers([37, 50, 19], CODES, activation)
    x = inputs(79, 37)
    expected = layers.expected(x)
    net = native(layers.module(), target, 1)
    for rows in (0, 1, 2, 3, 7, 8, 64, 79):
        assert np.array_equal(net.run(None, {"x0": x[:rows]})[0], expected[:rows])
    assert np.array_equal(layers.interpreted(x), expected)


# the first layer's outputs are rounded in both: each activation is tried with codes, each kind of output at the end
@each_form
@pytest.mark.parametrize(
    ("activation", "codes"),
    [
        pytest.param(None, CODES, id="linear-rounded"),
        pytest.param(RELU, CODES[:2], id="relu-values", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("quads", [QUADS, SCATTERED, *SHARED.values(), TILES])
def test_quads_are_exact(
    target: CpuTarget, activation: ActivationAttr | None, codes: list[CodesAttr], quads: str
) -> None:
    layers = Layers([437, 50, 19], codes, activation, quads=quads)
    x = inputs(110, 437)
    assert np.array_equal(layers.run(x, target), layers.expected(x))


@pytest.mark.parametrize("density", [0.01, 0.2, 0.7])
@pytest.mark.parametrize("sizes", [[437, 50, 19], [128, 70], [65, 33], [1, 16]], ids=str)
def test_look_ups_by_windows_are_exact_for_any_rows(sizes: list[int], density: float) -> None:
    layers = Layers(sizes, CODES[:2], density=density, windows=True)
    # inputs that nobody takes at the beginning, in the middle and at the end of a panel, and a panel that takes none
    layers.weights[0][: sizes[0] // 3, :16] = 0
    layers.weights[0][-(sizes[0] // 4) :, :16] = 0
    layers.weights[0][sizes[0] // 3 : sizes[0] // 2, 16:32] = 0
    layers.weights[0][:, 32:48] = 0
    x = inputs(81, sizes[0])
    expected, net = layers.expected(x), native(layers.module(), host_target(), 1)
    for rows in (1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 81):
        assert np.array_equal(net.run(None, {"x0": x[:rows]})[0], expected[:rows])


@pytest.mark.parametrize("density", [0.0, 0.01, 0.5])
@pytest.mark.parametrize("sizes", [[437, 50, 19], [128, 70], [65, 33, 32], [1, 16], [64, 1]], ids=str)
@pytest.mark.parametrize("codes", [CODES, CODES[:1]], ids=["codes", "floats"])
def test_tiles_are_exact_for_any_rows(sizes: list[int], codes: list[CodesAttr], density: float) -> None:
    """Where this machine has no tiles, quads of scattered inputs do them."""
    codes = [codes[index % len(codes)] for index in range(len(sizes) - (len(codes) == 1))]
    layers = Layers(sizes, codes, RELU, density=density, quads=TILES, windows=True)
    # a panel and a block of inputs that nothing is in
    layers.weights[0][:, 32:64] = 0
    layers.weights[0][64:128] = 0
    x = inputs(145, sizes[0])
    expected, net = layers.expected(x), native(layers.module(), host_target(), 1)
    for rows in (0, 1, 7, 17, 33, 47, 48, 49, 63, 64, 65, 145):
        assert np.array_equal(net.run(None, {"x0": x[:rows]})[0], expected[:rows])


@each_form
def test_look_ups_by_windows_come_before_quads(target: CpuTarget) -> None:
    layers = Layers([437, 50, 19], CODES, RELU, windows=True, quads=SCATTERED)
    x = inputs(64 + 21, 437)
    assert np.array_equal(layers.run(x, target), layers.expected(x))


@pytest.mark.parametrize("quads", [QUADS, SCATTERED])
def test_layers_of_as_many_inputs_have_their_own_outputs(quads: str) -> None:
    codes = [CODES[index % len(CODES)] for index in range(5)]
    layers = Layers([64, 96, 64, 16, 8], codes, quads=quads)
    x = inputs(70, 64)
    assert np.array_equal(layers.run(x, host_target()), layers.expected(x))


@each_form
def test_results_that_are_not_rounded_are_exact(target: CpuTarget) -> None:
    layers = Layers([130, 33], CODES[:1])
    assert np.array_equal(layers.run(x := inputs(9, 130), target), layers.expected(x))


@pytest.mark.parametrize("quads", [SCATTERED, TILES])
@pytest.mark.parametrize("activation", [TANH, GELU])
@pytest.mark.parametrize("rows", [20, 70])
def test_an_activation_between_layers_is_within_a_step(activation: ActivationAttr, rows: int, quads: str) -> None:
    layers = Layers([64, 48, 17], CODES, activation, quads=quads)
    error = np.abs(layers.run(x := inputs(rows, 64), host_target()) - layers.expected(x))
    assert error.max() <= np.float32(1.01) * CODES[2].scale
    assert np.mean(error > 0) < 0.01


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 130),
    st.integers(1, 130),
    st.sampled_from([("u8", 0), ("u8", 127), ("u8", 255), ("s8", -128), ("s8", 0), ("s8", 127)]),
    st.sampled_from([0.0, 0.05, 0.5, 1.0]),
)
def test_sizes_zeros_and_densities(features: int, outputs: int, kind: tuple[str, int], density: float) -> None:
    codes = [CodesAttr(kind[0], 0.05, kind[1]), CodesAttr("s8", 0.5, 3)]
    layers = Layers([features, outputs], codes, None, density)
    for target in (host_target(), CpuTarget.avx2(), CpuTarget.generic()):
        assert np.array_equal(layers.run(x := inputs(11, features), target), layers.expected(x))


def test_values_out_of_bounds_ties_and_not_numbers_become_codes() -> None:
    codes = [CodesAttr("u8", 0.5, 10), CodesAttr("u8", 1.0, 0)]
    layers = Layers([16, 16], codes, None, 0.0)
    layers.weights[0][:] = 2 * np.eye(16, dtype=np.int64)
    layers.biases[0][:] = 0
    layers.multipliers[0][:] = 0.25
    special = [
        np.nan,
        np.inf,
        -np.inf,
        1e30,
        -1e30,
        0.25,
        0.75,
        1.25,
        -0.25,
        -0.75,
        122.5,
        122.75,
        123.0,
        -5.0,
        -5.25,
        0.0,
    ]
    x = np.array([special], dtype=np.float32)
    nearest = np.rint(np.clip(np.nan_to_num(x, nan=-np.inf, posinf=np.inf, neginf=-np.inf) / 0.5, -10, 245))
    expected = np.clip(np.rint(nearest * 2 * 0.25), 0, 255)
    assert np.array_equal(layers.run(x, host_target()), expected)


@pytest.mark.slow
def test_sums_wrap_around_as_integers_do() -> None:
    codes = [CodesAttr("u8", 1.0, 0)]
    layers = Layers([40_000, 2], codes, None, 0.0)
    layers.weights[0][:] = 255
    x = np.full((1, 40_000), 255, dtype=np.float32)
    assert np.array_equal(layers.run(x, host_target()), layers.expected(x))
    assert layers.expected(x).max() < 0


def test_threads_change_nothing() -> None:
    layers = Layers([96, 80, 16], CODES)
    assert np.array_equal(layers.run(x := inputs(150, 96), host_target(), 2), layers.expected(x))
