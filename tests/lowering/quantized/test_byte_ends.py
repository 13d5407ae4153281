"""Quantized layers that read and yield codes, as native code against sums of integers in numpy: the same bytes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from redpebble.dialect.attributes.codes import CodesAttr
from redpebble.dialect.semantics.interpreter import interpret
from redpebble.kernels.byte_times import QUADS, SCATTERED, SHARED
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.runtime.jit import host_target
from tests.support.lowering_modules import native
from tests.support.quantized_layers import CODES, RELU, Layers, best_form_first

FAMILIES = ["", QUADS, SCATTERED, *SHARED.values()]
"""Kernels for many rows; the first one is that of a few."""

DTYPES = {"u8": np.uint8, "s8": np.int8}


def codes_of(kind: CodesAttr, rows: int, features: int) -> NDArray[np.integer]:
    rng = np.random.default_rng((rows, features))
    return rng.integers(kind.least, kind.greatest + 1, (rows, features)).astype(DTYPES[kind.kind])


def check(layers: Layers, rows: int, target: CpuTarget, threads: int = 1) -> None:
    first, last = layers.codes[0], layers.codes[-1]
    net = native(layers.module(), target, threads)
    x = codes_of(first, rows, layers.sizes[0])
    expected = layers.expected_codes(x)
    for count in sorted({0, 1, 5, rows}):
        (found,) = net.run(None, {"x0": x[:count]})
        assert found.dtype == DTYPES[last.kind]
        assert np.array_equal(found, expected[:count])


@best_form_first
@pytest.mark.parametrize(
    "kinds", [pytest.param((0, 1, 2), id="unsigned"), pytest.param((1, 2, 1), id="signed", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("quads", FAMILIES)
def test_bytes_become_bytes(target: CpuTarget, kinds: tuple[int, ...], quads: str) -> None:
    layers = Layers([437, 50, 19], [CODES[kind] for kind in kinds], RELU, quads=quads, of_bytes=True)
    check(layers, 110, target)


@pytest.mark.parametrize("outputs", [1, 3, 16, 20, 33])
@pytest.mark.parametrize("quads", ["", SCATTERED])
def test_rows_of_any_length_leave_those_beside_them_alone(outputs: int, quads: str) -> None:
    check(Layers([outputs + 5, outputs], [CODES[1], CODES[1]], None, quads=quads, of_bytes=True), 70, host_target())


# rows of 128 and 136 codes are whole words, which quads take as they are
@pytest.mark.parametrize("outputs", [64, 123, 131])
@pytest.mark.parametrize("kind", [0, 1], ids=["unsigned", "signed"])
def test_outputs_that_panels_sort_are_yielded_in_their_order(outputs: int, kind: int) -> None:
    codes = [CODES[kind], CODES[kind]]
    layers = Layers([outputs + 5, outputs], codes, None, windows=True, quads=SCATTERED, of_bytes=True)
    layers.weights[0][20:, : outputs // 3] = 0
    for rows in (17, 33, 70):
        check(layers, rows, host_target())


@best_form_first
@pytest.mark.parametrize("quads", ["", QUADS, SCATTERED])
def test_ties_go_to_even_codes_and_what_is_beyond_them_is_bounded(target: CpuTarget, quads: str) -> None:
    layers = Layers([80, 80], [CodesAttr("u8", 1.0, 128), CodesAttr("s8", 1.0, 100)], quads=quads, of_bytes=True)
    layers.weights[0][:] = np.diag([1, -1, 3, -255] * 20)
    layers.biases[0][:] = 0
    layers.multipliers[0][:] = 0.5
    layers.multipliers[0][40:] = 1e30
    check(layers, 70, target)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 130),
    st.integers(1, 130),
    st.sampled_from([("u8", 0), ("u8", 127), ("u8", 255), ("s8", -128), ("s8", 0), ("s8", 127)]),
    st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    st.sampled_from(FAMILIES),
)
def test_sizes_zeros_and_densities(
    features: int, outputs: int, kind: tuple[str, int], density: float, quads: str
) -> None:
    codes = [CodesAttr(kind[0], 0.05, kind[1]), CodesAttr("s8", 0.5, 3)]
    layers = Layers([features, outputs], codes, None, density, quads=quads, blocks=1 + features % 3, of_bytes=True)
    for target in (host_target(), CpuTarget.avx2(), CpuTarget.generic()):
        check(layers, 66, target)


@pytest.mark.slow
@pytest.mark.parametrize("quads", FAMILIES)
def test_sums_wrap_around_as_integers_do(quads: str) -> None:
    codes = [CodesAttr("u8", 1.0, 0), CodesAttr("u8", 1e8, 128)]
    layers = Layers([40_000, 2], codes, None, 0.0, quads=quads, blocks=5, of_bytes=True)
    layers.weights[0][:] = 255
    x = np.full((40, 40_000), 255, dtype=np.uint8)
    (found,) = native(layers.module(), host_target(), 1).run(None, {"x0": x})
    assert np.array_equal(found, layers.expected_codes(x))


def test_the_interpreter_takes_codes() -> None:
    layers = Layers([40, 30, 20], [CODES[1], CODES[0], CODES[1]], RELU, of_bytes=True)
    x = codes_of(CODES[1], 6, 40)
    (found,) = interpret(layers.module(), {"x0": x.astype(np.float32)})
    assert np.array_equal(found, layers.expected_codes(x))


def test_threads_change_no_byte() -> None:
    check(Layers([96, 80, 18], [CODES[2], CODES[0], CODES[1]], None, of_bytes=True), 150, host_target(), 2)


def test_bound_arrays_are_bytes() -> None:
    layers = Layers([64, 32], [CODES[0], CODES[0]], None, of_bytes=True)
    net, x = native(layers.module(), host_target(), 1), codes_of(CODES[0], 70, 64)
    call = net.bind({"x0": x})
    assert np.array_equal(call.run()[0], layers.expected_codes(x))
    assert net.get_inputs()[0].type == net.get_outputs()[0].type == "tensor(uint8)"
    with pytest.raises(ValueError, match="'x0': expected dtype uint8, got float32"):
        net.bind({"x0": x.astype(np.float32)})
