"""Weights of products of integers that are put together from few entries: they stay sparse, however large they are."""

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import parser

import redpebble
from redpebble.frontend.errors import UnsupportedModelError

WIDE = 20_000

LAYER = """
<ir_version: 9, opset_import: ["" : 17]>
layer (float[n, K] x) => (float[n, K] y) <
  float[3] values = {VALUES}, int64[3] places = {0, 19999, 399999999}, int64[1] count = {400000000},
  int64[2] shape = {20000, 20000}, float xs = {0.5}, uint8 xz = {0}, float least = {-3}, uint8 wz = {3},
  float ws = {1}, int8 zero = {0}>
{
  zeros = ConstantOfShape(count)
  flat = ScatterElements<axis = 0>(zeros, places, values)
  w = Reshape(flat, shape)
  BYTES
  s = Cast<to = 1>(p)
  y = Mul(s, xs)
}
"""
SIGNED = "b = Cast<to = 3>(w) q = QuantizeLinear(x, xs, xz) p = MatMulInteger(q, b, xz)"
UNSIGNED = "a = Sub(w, least) b = Cast<to = 2>(a) q = QuantizeLinear(x, xs, xz) p = MatMulInteger(q, b, xz, wz)"
DEQUANTIZED = """
  b = Cast<to = 3>(w)
  q = QuantizeLinear(x, xs, xz)
  d = DequantizeLinear(q, xs, xz)
  v = DequantizeLinear(b, ws, zero)
  y = MatMul(d, v)
}
"""
"""The layer in floats, of which runtimes make one of integers; its end is put where LAYER has its own."""


def layer(made: str, values: str = "2, -3, 5") -> onnx.ModelProto:
    text = LAYER.partition("BYTES")[0] + DEQUANTIZED if made is DEQUANTIZED else LAYER.replace("BYTES", made)
    return parser.parse_model(text.replace("K", str(WIDE)).replace("VALUES", values))


@pytest.mark.parametrize("made", [SIGNED, UNSIGNED, DEQUANTIZED], ids=["signed", "unsigned", "dequantized"])
def test_a_weight_that_would_fill_the_memory_with_zeros_stays_sparse(made: str) -> None:
    x = np.zeros((2, WIDE), np.float32)
    x[:, 0], x[1, -1] = 10, 3
    expected = np.zeros((2, WIDE), np.float32)
    expected[:, 0], expected[:, -1], expected[1, -1] = 20, -30, -15
    y: NDArray[np.float32] = redpebble.compile(layer(made)).run(None, {"x": x})[0]
    assert np.array_equal(y, expected)


def test_entries_lose_their_fractions_as_bytes_do() -> None:
    x = np.zeros((1, WIDE), np.float32)
    x[:, [0, -1]] = 10
    y: NDArray[np.float32] = redpebble.compile(layer(SIGNED, "2.5, -3.5, 0.5")).run(None, {"x": x})[0]
    assert (y[0, 0], y[0, -1], np.count_nonzero(y)) == (20, -30, 2)


def test_entries_beyond_bytes_are_refused() -> None:
    model = parser.parse_model(CONVOLUTION.replace("ZERO", "3").replace("-3, 5}", "-3, 260}"))
    with pytest.raises(UnsupportedModelError, match=r"operator Cast .*expected to=float, got uint8"):
        redpebble.compile(model)


CONVOLUTION = """
<ir_version: 9, opset_import: ["" : 17]>
convolution (float[n, 2, 4, 4] x) => (float[n, 3, 4, 4] y) <
  float[3] values = {1, -3, 5}, int64[3] places = {0, 4, 5}, int64[1] count = {6}, int64[2] matrix = {2, 3},
  int64[4] shape = {3, 2, 1, 1}, float xs = {0.5}, uint8 xz = {0}, float least = {-3}, uint8 wz = {ZERO},
  float ws = {1}>
{
  zeros = ConstantOfShape(count)
  flat = ScatterElements<axis = 0>(zeros, places, values)
  w = Reshape(flat, matrix)
  a = Sub(w, least)
  b = Cast<to = 2>(a)
  t = Transpose<perm = [1, 0]>(b)
  k = Reshape(t, shape)
  q = QuantizeLinear(x, xs, xz)
  p = ConvInteger(q, k, xz, wz)
  s = Cast<to = 1>(p)
  y = Mul(s, xs)
}
"""
CONVOLUTION_OF_FLOATS = """
  d = DequantizeLinear(q, xs, xz)
  v = DequantizeLinear(k, ws, wz)
  y = Conv(d, v)
}
"""


@pytest.mark.parametrize("zero", ["3", "2"])
@pytest.mark.parametrize("form", ["integers", "floats"])
def test_weights_of_convolutions_are_those_of_their_bytes(zero: str, form: str) -> None:
    text = CONVOLUTION if form == "integers" else CONVOLUTION.partition("  p =")[0] + CONVOLUTION_OF_FLOATS
    model = parser.parse_model(text.replace("ZERO", zero))
    x = np.random.default_rng(0).integers(0, 9, (2, 2, 4, 4)).astype(np.float32) / 2
    weight = np.array([[1, 0, 0], [0, -3, 5]], np.float32) + 3 - float(zero)
    expected = np.einsum("nchw,co->nohw", x, weight)
    assert np.array_equal(redpebble.compile(model).run(None, {"x": x})[0], expected)
