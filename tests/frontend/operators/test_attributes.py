"""Attributes of all operators in the table: what a converter does not read is refused, or changes nothing."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import AttributeProto, helper

from redpebble.dialect.semantics.interpreter import interpret
from redpebble.frontend.errors import ModelError, UnsupportedModelError
from redpebble.frontend.import_model import import_model
from redpebble.frontend.operators.attributes import DEFAULTS, HARMLESS
from redpebble.frontend.operators.table import CONVERTERS
from redpebble.frontend.reading.model_checks import REVIEWED_OPSET
from tests.frontend.import_oracle import imported, model, session

runtime: Any = import_module("onnxruntime.capi.onnxruntime_pybind11_state")

Key = tuple[str, str]
Array = NDArray[np.generic]
MICROSOFT: Final = "com.microsoft"
RNG = np.random.default_rng(0)

INPUTS = {
    "x": "float[2,4,6,6] x",
    "r": "float[6,16] r",
    **{name: f"float[2,3,16] {name}" for name in "qkv"},
    "one": "float[2,1,16] one",
    **{name: f"float[2,1,8] {name}" for name in ("ok", "ov")},
    **{name: f"float[2,1,5,8] {name}" for name in ("pk", "pv")},
}

NODES, EDGES = 6, 9
SOURCES, TARGETS = RNG.integers(0, NODES, (2, EDGES))


def normal(*shape: int) -> NDArray[np.float32]:
    return RNG.standard_normal(shape).astype(np.float32)


CONSTANTS: Mapping[str, Array] = {
    "half": np.array(0.5, np.float32),
    "two": np.array(2.0, np.float32),
    "channels": np.linspace(0.5, 1.5, 4, dtype=np.float32),
    "row": np.linspace(0.5, 1.5, 6, dtype=np.float32),
    "gains": np.linspace(0.5, 1.5, 16, dtype=np.float32),
    "slope": np.full((4, 1, 1), 0.25, np.float32),
    "kernel": normal(5, 4, 3, 3),
    "w": normal(16, 16),
    "qkv": normal(16, 48),
    "first": np.array(1),
    "axis": np.array([1]),
    "last": np.array([-1]),
    "sizes": np.array([0, 4, 36]),
    "wide": np.array([2, 4, 6, 6]),
    "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    "scales": np.array([1, 1, 2, 2], np.float32),
    "end": np.array([3]),
    "parts": np.array([1, 3]),
    "s": np.array(0.05, np.float32),
    "z": np.array(128, np.uint8),
    "c": RNG.integers(-99, 99, (16, 16)).astype(np.int8),
    "cz": np.array(0, np.int8),
    "sources": SOURCES,
    "places": SOURCES[:, np.newaxis],
    "targets": TARGETS[:, np.newaxis],
    "spread": np.repeat(TARGETS[:, np.newaxis], 16, axis=1),
    "zeros": np.zeros((NODES, 16), np.float32),
    "sparse": np.where(RNG.random((NODES, NODES)) < 0.2, np.float32(2), np.float32(0)),
    "at": np.array([[0, 1, 2], [2, 3, 4]]),
    "cosines": np.cos(np.arange(20, dtype=np.float32)).reshape(5, 4),
    "sines": np.sin(np.arange(20, dtype=np.float32)).reshape(5, 4),
    "ends": np.full(2, 5, np.int32),
    "total": np.array([6], np.int32),
    "back": np.linspace(-1, 1, 80, dtype=np.float32).reshape(4, 5, 2, 2),
    "nibbles": RNG.choice(np.array([0x88, 0x98, 0x8B], np.uint8), (16, 1, 8), p=[0.8, 0.1, 0.1]),
    "scales_of_blocks": np.linspace(0.05, 0.1, 16, dtype=np.float32),
    **{
        f"{kind}_{part}": normal(1, gates * 4, size)
        for kind, gates in (("lstm", 4), ("gru", 3), ("rnn", 1))
        for part, size in (("w", 16), ("r", 4))
    },
}

ELEMENTWISE = (
    *("Abs", "Celu", "Dropout", "Elu", "Erf", "Exp", "Flatten", "Gelu", "GlobalAveragePool", "GlobalMaxPool"),
    *("HardSigmoid", "HardSwish", "Identity", "LeakyRelu", "Log", "LogSoftmax", "Mish", "Neg", "Reciprocal", "Relu"),
    *("Selu", "Sigmoid", "Softmax", "Softplus", "Sqrt", "Swish", "Tanh"),
)
SUM = "m = Gather<axis = 0>(r, sources)"

TEXTS: Mapping[Key, str] = {
    **{("", name): f"y = {name}(x)" for name in ELEMENTWISE},
    **{("", name): f"y = {name}(x, two)" for name in ("Add", "Div", "Max", "Min", "Mul", "Pow", "Sub")},
    ("", "Attention"): "y = Attention<q_num_heads = 2, kv_num_heads = 2>(q, k, v)",
    ("", "AveragePool"): "y = AveragePool<kernel_shape = [2, 2]>(x)",
    ("", "BatchNormalization"): "y = BatchNormalization(x, channels, channels, channels, channels)",
    ("", "Cast"): "y = Cast<to = 1>(x)",
    ("", "Clip"): "y = Clip(x, half, two)",
    ("", "Concat"): "y = Concat<axis = 1>(x, x)",
    ("", "Conv"): "y = Conv(x, kernel)",
    ("", "ConvTranspose"): "y = ConvTranspose(x, back)",
    ("", "DepthToSpace"): "y = DepthToSpace<blocksize = 2>(x)",
    ("", "DequantizeLinear"): "a = QuantizeLinear(r, s, z) y = DequantizeLinear(a, s, z)",
    ("", "Expand"): "y = Expand(x, wide)",
    ("", "Gather"): "y = Gather<axis = 1>(x, first)",
    ("", "GatherND"): 'm = GatherND(r, places) y = ScatterND<reduction = "add">(zeros, targets, m)',
    ("", "Gemm"): "y = Gemm(r, w)",
    ("", "GRU"): "y = GRU<hidden_size = 4>(q, gru_w, gru_r)",
    ("", "LSTM"): "y = LSTM<hidden_size = 4>(q, lstm_w, lstm_r)",
    ("", "RNN"): "y = RNN<hidden_size = 4>(q, rnn_w, rnn_r)",
    ("", "GroupNormalization"): "y = GroupNormalization<num_groups = 4>(x, channels, channels)",
    ("", "InstanceNormalization"): "y = InstanceNormalization(x, channels, channels)",
    ("", "LayerNormalization"): "y = LayerNormalization(x, row)",
    ("", "MatMul"): "y = MatMul(r, w)",
    ("", "MatMulInteger"): """a = QuantizeLinear(r, s, z) b = MatMulInteger(a, c, z) f = Cast<to = 1>(b)
        y = Mul(f, s)""",
    ("", "MaxPool"): "y = MaxPool<kernel_shape = [2, 2]>(x)",
    ("", "PRelu"): "y = PRelu(x, slope)",
    ("", "Pad"): "y = Pad(x, pads)",
    ("", "QLinearMatMul"): """a = QuantizeLinear(r, s, z) b = QLinearMatMul(a, s, z, c, s, cz, s, z)
        y = DequantizeLinear(b, s, z)""",
    ("", "QuantizeLinear"): "a = QuantizeLinear(r, s, z) y = DequantizeLinear(a, s, z)",
    ("", "RMSNormalization"): "y = RMSNormalization(x, row)",
    ("", "ReduceL2"): "y = ReduceL2(r, axis)",
    ("", "ReduceMax"): "y = ReduceMax(x, last)",
    ("", "ReduceMin"): "y = ReduceMin(x, last)",
    ("", "ReduceMean"): "y = ReduceMean(x, last)",
    ("", "ReduceSum"): "y = ReduceSum(x, last)",
    ("", "Reshape"): "y = Reshape(x, sizes)",
    ("", "Resize"): "y = Resize(x, , scales)",
    ("", "ScatterElements"): SUM + 'y = ScatterElements<axis = 0, reduction = "add">(zeros, spread, m)',
    ("", "ScatterND"): SUM + 'y = ScatterND<reduction = "add">(zeros, targets, m)',
    ("", "SimplifiedLayerNormalization"): "y = SimplifiedLayerNormalization(x, row)",
    ("", "RotaryEmbedding"): "y = RotaryEmbedding<num_heads = 2>(q, cosines, sines, at)",
    ("", "Slice"): "y = Slice(x, axis, end, axis)",
    ("", "Split"): "y, rest = Split<axis = 1>(x, parts)",
    ("", "Squeeze"): "a = Unsqueeze(x, axis) y = Squeeze(a, axis)",
    ("", "Transpose"): "y = Transpose<perm = [0, 2, 3, 1]>(x)",
    ("", "Unsqueeze"): "y = Unsqueeze(x, axis)",
    ("", "Upsample"): "y = Upsample(x, scales)",
    (MICROSOFT, "Attention"): "y = com.microsoft.Attention<num_heads = 2>(q, qkv)",
    (MICROSOFT, "DequantizeLinear"): "a = QuantizeLinear(r, s, z) y = com.microsoft.DequantizeLinear(a, s, z)",
    (MICROSOFT, "DynamicQuantizeMatMul"): "y = com.microsoft.DynamicQuantizeMatMul(r, c, s)",
    (MICROSOFT, "FastGelu"): "y = com.microsoft.FastGelu(x)",
    (MICROSOFT, "Gelu"): "y = com.microsoft.Gelu(x)",
    (MICROSOFT, "GroupQueryAttention"): """y, nk, nv = com.microsoft.GroupQueryAttention<num_heads = 2,
        kv_num_heads = 1>(one, ok, ov, pk, pv, ends, total)""",
    (MICROSOFT, "MatMulIntegerToFloat"): """a = QuantizeLinear(r, s, z)
        y = com.microsoft.MatMulIntegerToFloat(a, c, s, s, z)""",
    (MICROSOFT, "MatMulNBits"): """y = com.microsoft.MatMulNBits<K = 16, N = 16, bits = 4, block_size = 16>(r, nibbles,
        scales_of_blocks)""",
    (MICROSOFT, "MultiHeadAttention"): "y = com.microsoft.MultiHeadAttention<num_heads = 2>(q, k, v)",
    (MICROSOFT, "QGemm"): "a = QuantizeLinear(r, s, z) y = com.microsoft.QGemm(a, s, z, c, s, cz)",
    (MICROSOFT, "QuantizeLinear"): "a = com.microsoft.QuantizeLinear(r, s, z) y = DequantizeLinear(a, s, z)",
    (MICROSOFT, "QuickGelu"): "y = com.microsoft.QuickGelu(x)",
    (MICROSOFT, "RotaryEmbedding"): "y = com.microsoft.RotaryEmbedding<num_heads = 2>(q, at, cosines, sines)",
    (MICROSOFT, "SkipLayerNormalization"): "y = com.microsoft.SkipLayerNormalization(q, k, gains)",
    (MICROSOFT, "SkipSimplifiedLayerNormalization"): "y = com.microsoft.SkipSimplifiedLayerNormalization(q, k, gains)",
    (MICROSOFT, "SparseToDenseMatMul"): "y = com.microsoft.SparseToDenseMatMul(sparse, r)",
}
"""(domain, operator) -> nodes that are accepted, the operator's among them."""

OPSETS: Mapping[Key, int] = {
    ("", "Upsample"): 9,
    ("", "Attention"): 25,
    ("", "RMSNormalization"): 23,
    ("", "RotaryEmbedding"): 23,
    ("", "Swish"): 24,
}
"""Opsets other than 21."""


def model_of(key: Key, **attributes: Any) -> onnx.ModelProto:  # noqa: ANN401 - whatever an attribute may be
    """Return the model of an operator with further attributes, or others."""
    text = TEXTS[key]
    words = set(text.replace("(", " ").replace(")", " ").replace(",", " ").split())
    ports = ", ".join(port for name, port in INPUTS.items() if name in words)
    given = {name: array for name, array in CONSTANTS.items() if name in words}
    proto = model(f"({ports}) => (float[] y)", text, opset=OPSETS.get(key, 21), weights=dict(given))
    proto.graph.output[0].type.tensor_type.ClearField("shape")
    node = next(one for one in proto.graph.node if (one.domain, one.op_type) == key)
    kept = [one for one in node.attribute if one.name not in attributes]
    del node.attribute[:]
    node.attribute.extend([*kept, *(helper.make_attribute(name, value) for name, value in attributes.items())])
    return proto


def schemas(key: Key) -> Mapping[str, tuple[int, onnx.AttributeProto]]:
    """Return type and default of an operator's attributes, as onnxruntime knows it and, if it does, the newest ONNX."""
    found: dict[str, tuple[int, onnx.AttributeProto]] = {}
    for schema in runtime.get_all_operator_schema():
        if (schema.domain, schema.name) == key:
            for name, entry in schema.attributes.items():
                found[name] = int(entry.type), onnx.AttributeProto.FromString(entry._default_value)
    if not key[0] and onnx.defs.has(key[1]):
        known: Any = onnx.defs.get_schema(key[1], REVIEWED_OPSET, "")
        for name, entry in known.attributes.items():
            found[name] = int(entry.type.value), entry.default_value
    return found


WORDS = {
    "approximate": ["tanh"],
    "auto_pad": ["SAME_UPPER", "SAME_LOWER", "VALID"],
    "coordinate_transformation_mode": ["asymmetric", "align_corners", "pytorch_half_pixel", "tf_crop_and_resize"],
    "keep_aspect_ratio_policy": ["not_larger", "not_smaller"],
    "k_quant_type": ["NONE", "PER_TENSOR"],
    "mode": ["linear", "cubic", "reflect", "edge", "wrap", "constant"],
    "nearest_mode": ["floor", "ceil", "round_prefer_ceil"],
    "reduction": ["none", "mul", "max", "min"],
    "v_quant_type": ["NONE", "PER_TENSOR"],
}

VALUES: Mapping[int, list[Any]] = {
    AttributeProto.INT: [0, 1, 2, 3, -1, 10],
    AttributeProto.FLOAT: [0.0, 0.25, 1.0, 3.0],
    AttributeProto.STRING: ["unheard of"],
    AttributeProto.INTS: [[1], [2, 2], [1, 2], [0, 0, 1, 1], [1, 1, 1, 1], [0, 1, 2, 3]],
    AttributeProto.FLOATS: [[0.5]],
    AttributeProto.STRINGS: [["unheard of"]],
}


def variants(key: Key) -> Iterator[dict[str, Any]]:
    for name, (kind, _) in schemas(key).items():
        for value in [*VALUES.get(kind, []), *WORDS.get(name, [])]:
            yield {name: value}


def feeds(proto: onnx.ModelProto) -> dict[str, NDArray[np.float32]]:
    given, rng = {tensor.name for tensor in proto.graph.initializer}, np.random.default_rng(1)
    shapes = {
        value.name: [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        for value in proto.graph.input
        if value.name not in given
    }
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def by_onnxruntime(proto: onnx.ModelProto) -> NDArray[np.float32] | None:
    """Return what onnxruntime makes of a model, None where it refuses it."""
    try:
        return np.asarray(session(proto).run(None, feeds(proto))[0])
    except Exception:  # its errors share no base class of their own
        return None


def assert_same(proto: onnx.ModelProto, expected: NDArray[np.float32]) -> None:
    found = interpret(imported(proto), feeds(proto))[0]
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_there_is_a_model_of_each_operator_in_the_table() -> None:
    assert set(TEXTS) == set(CONVERTERS)


@pytest.mark.parametrize("key", TEXTS, ids=".".join)
def test_an_operator_is_taken_without_an_attribute_that_nobody_knows(key: Key) -> None:
    expected = by_onnxruntime(model_of(key))
    # what onnxruntime reads as a sparse tensor is a dense one here
    assert (expected is None) == (key[1] == "SparseToDenseMatMul")
    if expected is not None:
        assert_same(model_of(key), expected)
    # sums of integers are nothing by themselves: the refusal is that of their reader
    message = None if key[1] == "MatMulInteger" else r"expected unheard_of=none.*, got 1"
    with pytest.raises(UnsupportedModelError, match=message):
        import_model(model_of(key, unheard_of=1), foreign="refuse")


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(key, marks=[] if key[1] in ("Attention", "GroupQueryAttention") else [pytest.mark.slow])
        for key in TEXTS
    ],
    ids=".".join,
)
def test_an_attribute_is_read_refused_or_changes_nothing(key: Key) -> None:
    for attributes in variants(key):
        proto = model_of(key, **attributes)
        try:
            import_model(proto, foreign="refuse")
        except ModelError:
            continue
        expected = by_onnxruntime(proto)
        if expected is not None:
            assert_same(proto, expected)


def test_harmless_attributes_are_those_of_the_operators() -> None:
    for key, reasons in HARMLESS.items():
        names = {
            name
            for schema in onnx.defs.get_all_schemas_with_history()
            if (schema.domain, schema.name) == key
            for name in schema.attributes
        }
        assert set(reasons) <= names | set(schemas(key)), key
        assert all(reasons.values())


def test_defaults_beside_those_of_onnx_are_those_of_onnxruntime() -> None:
    for key, defaults in DEFAULTS.items():
        for name, default in defaults.items():
            stated = schemas(key)[name][1]
            known = helper.get_attribute_value(stated) if stated.type else 0
            assert default == (known.decode() if isinstance(known, bytes) else known), name


def test_a_window_of_attention_is_refused_in_one_line() -> None:
    with pytest.raises(UnsupportedModelError, match=r"operator Attention .* expected left_window_size=-1, got 1"):
        import_model(model_of(("", "Attention"), left_window_size=1), foreign="refuse")
    with pytest.raises(UnsupportedModelError, match="expected causal=1, got 0"):
        import_model(model_of((MICROSOFT, "GroupQueryAttention"), causal=0), foreign="refuse")
