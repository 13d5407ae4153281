"""Models whose inputs and outputs are float16 or float64 compile, and agree with onnxruntime as far as these round."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from numpy.typing import NDArray

import redpebble
from redpebble.models.exports.stored import stored_export
from redpebble.models.pruned_weights import random_weight

WIDTH, HIDDEN = 65, 130


def model(text: str, kind: int, **weights: tuple[int, ...]) -> onnx.ModelProto:
    """A model of this text with pruned weights of an element type."""
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')
    rng = np.random.default_rng(0)
    for name, shape in weights.items():
        values = random_weight(shape[0], int(np.prod(shape[1:])), 0.1, rng)
        proto.graph.initializer.append(onnx.helper.make_tensor(name, kind, shape, values))
    return proto


HALF, FLOAT = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT

LAYERS = f"""g (float16[n,{WIDTH}] x) => (float16[n,{WIDTH}] y, float16[n,{HIDDEN}] h) {{
    a = MatMul(x, w)   h = Relu(a)   b = MatMul(h, v)   c = Add(b, x)   y = Softmax(c)
}}"""
LAST = """g (float16[n,3,9,7] x) => (float16[n,9,7,6] y) {
    a = Conv<kernel_shape=[3,3], pads=[1,1,1,1]>(x, k)   b = Relu(a)   y = Transpose<perm=[0,2,3,1]>(b)
}"""
WIDE = f"""g (float[n,{WIDTH}] x) => (float[n,{HIDDEN}] y) {{
    c = Cast<to=10>(x)   a = MatMul(c, w)   b = Sigmoid(a)   y = Cast<to=1>(b)
}}"""
IMAGES = """g (float16[n,3,17,19] x) => (float16[n,8] y) {
    a = Conv<kernel_shape=[3,3], pads=[1,1,1,1], strides=[2,2]>(x, k)   b = Relu(a)
    c = Conv<kernel_shape=[1,1]>(b, p)   d = GlobalAveragePool(c)   y = Flatten(d)
}"""
ENDS = f"""g (float16[n,{WIDTH}] x, float[n,{HIDDEN}] z) => (double[n,{HIDDEN}] y, float[n,{HIDDEN}] s) {{
    f = Cast<to=1>(x)   a = MatMul(f, w)   s = Add(a, z)   t = Tanh(s)   y = Cast<to=11>(t)
}}"""
MODELS = {
    "layers": model(LAYERS, HALF, w=(WIDTH, HIDDEN), v=(HIDDEN, WIDTH)),
    "images": model(IMAGES, HALF, k=(16, 3, 3, 3), p=(8, 16, 1, 1)),
    "channels last": model(LAST, HALF, k=(6, 3, 3, 3)),
    "floats at the ends": model(WIDE, HALF, w=(WIDTH, HIDDEN)),
    "mixed ends": model(ENDS, FLOAT, w=(WIDTH, HIDDEN)),
}


KINDS = {"tensor(float16)": np.float16, "tensor(float)": np.float32}


def feeds_of(network: onnxruntime.InferenceSession, batch: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    feeds = dict[str, NDArray[Any]]()
    for one in network.get_inputs():
        shape = [size if isinstance(size, int) else batch for size in one.shape]
        feeds[one.name] = rng.standard_normal(shape).astype(KINDS[one.type])
    return feeds


def agree(found: Sequence[NDArray[Any]], expected: Sequence[Any]) -> None:
    for one, other in zip(found, expected, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape)
        # onnxruntime rounds between nodes as well
        np.testing.assert_allclose(one.astype(np.float64), other.astype(np.float64), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("name", MODELS)
def test_models_with_other_floats_at_their_ends_compile_and_agree(name: str) -> None:
    proto = MODELS[name]
    judge = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    network = redpebble.compile(proto)
    assert [one.type for one in network.get_inputs()] == [one.type for one in judge.get_inputs()]
    assert [one.type for one in network.get_outputs()] == [one.type for one in judge.get_outputs()]
    rng = np.random.default_rng(1)
    for batch in (0, 1, 7, 17):
        feeds = feeds_of(judge, batch, rng)
        agree(network.run(None, feeds), judge.run(None, feeds))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["letters.classic", "lines.classic", "resnet.classic", "deit.dynamo"])
def test_exports_of_half_precision_compile_and_agree_as_far_as_they_round(name: str) -> None:
    float16 = pytest.importorskip("onnxruntime.transformers.float16")
    floats = stored_export(name)
    network = redpebble.compile(float16.convert_float_to_float16(floats, keep_io_types=False))
    judge = onnxruntime.InferenceSession(floats.SerializeToString(), providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(1)
    for batch in (1, 3):
        feeds = ids_or_values(judge, batch, rng)
        halves = {
            name: array.astype(np.float16) if array.dtype == np.float32 else array for name, array in feeds.items()
        }
        for found, expected in zip(network.run(None, halves), judge.run(None, feeds), strict=True):
            assert isinstance(expected, np.ndarray)
            assert found.dtype == np.float16
            scale = float(np.abs(expected).max())
            np.testing.assert_allclose(found.astype(np.float32), expected, rtol=0, atol=0.01 * max(scale, 1.0))


def ids_or_values(judge: onnxruntime.InferenceSession, batch: int, rng: np.random.Generator) -> dict[str, NDArray[Any]]:
    """Inputs of a model for a batch: free lengths are 40."""
    sizes, feeds = {"batch": batch}, dict[str, NDArray[Any]]()
    for one in judge.get_inputs():
        shape = [size if isinstance(size, int) else sizes.get(str(size), 40) for size in one.shape]
        values = rng.standard_normal(shape).astype(np.float32)
        feeds[one.name] = rng.integers(0, 20, shape) if one.type == "tensor(int64)" else values
    return feeds


def test_what_is_beyond_float16_is_infinite_and_a_nan_stays_in_its_row() -> None:
    proto = MODELS["layers"]
    judge = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    x = np.random.default_rng(1).standard_normal((3, WIDTH)).astype(np.float16)
    x[0] = 65504
    x[1, :] = np.nan
    (_, found), (_, expected) = redpebble.compile(proto)(x), judge.run(None, {"x": x})
    assert isinstance(expected, np.ndarray)
    assert np.isinf(found[0]).any()
    assert np.array_equal(np.isinf(found[0]), np.isinf(expected[0]))
    assert np.isfinite(found[2]).all()


def test_arrays_of_another_dtype_are_refused_with_both_named() -> None:
    network = redpebble.compile(MODELS["layers"])
    with pytest.raises(ValueError, match=r"input .x.: expected dtype float16, got float32"):
        network(np.zeros((1, WIDTH), np.float32))
