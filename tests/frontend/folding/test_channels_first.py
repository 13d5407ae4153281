import numpy as np
import onnx
import onnx.parser
import onnx_ir
import onnxruntime
import pytest
from numpy.typing import NDArray

from redpebble.frontend.fold_model import fold_model
from redpebble.frontend.folding.channels_first import with_channels_first

WEIGHTS = {
    "w": (5, 3, 3, 3),
    "c": (5,),
    "row": (1, 1, 5),
    "places": (1, 6, 7, 5),
    "two": (2,),
}

TEXT = """<ir_version: 8, opset_import: ["" : OPSET]> g (float[batch, 6, 7, 3] x) => (OUTPUTS)
    <int64[4] starts = {0, 1, 0, 1}, int64[4] ends = {9, 9, -1, 4}, int64[2] axes = {-2, -1}, int64[2] some = {1, 0},
     int64[2] many = {5, 3}, int64[8] pads = {0, 1, 0, 2, 0, 3, 1, 0}, int64[2] pixels = {1, 2}, float half = {0.5},
     int64[2] halves = {2, 3}, uint8 zero = {128}, int64[1] pixel = {1}>
    {
        a = Transpose <perm = [0, 3, 1, 2]> (x)
        b = Conv <pads = [1, 1, 1, 1]> (a, w)
        z = Transpose <perm = [0, 2, 3, 1]> (b)
        NODES
    }"""

CHANNELS_FIRST = "f = Transpose <perm = [0, 3, 1, 2]> (y) g = Conv (f, v) out = Transpose <perm = [0, 2, 3, 1]> (g)"


WIDER = {"Pad": 7, "Slice": 3}
"""Operators that change how many channels there are."""


def model(nodes: str, opset: int = 17, outputs: str = "float[b, h, w, k] out") -> onnx.ModelProto:
    text = TEXT.replace("OPSET", str(opset)).replace("OUTPUTS", outputs).replace("NODES", nodes)
    proto = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    channels = next((count for operator, count in WIDER.items() if f"{operator} " in nodes), 5)
    for name, shape in {**WEIGHTS, "v": (4, channels, 1, 1)}.items():
        proto.graph.initializer.append(
            onnx.numpy_helper.from_array(rng.standard_normal(shape).astype(np.float32), name)
        )
    read = {name for node in proto.graph.node for name in node.input}
    kept = [tensor for tensor in proto.graph.initializer if tensor.name in read]
    del proto.graph.initializer[:]
    proto.graph.initializer.extend(kept)
    return proto


def moved(proto: onnx.ModelProto) -> onnx.ModelProto | None:
    source = onnx_ir.from_proto(proto)
    fold_model(source, keep_foreign=True)
    found = with_channels_first(source)
    return None if found is None else onnx_ir.to_proto(found)


def transposes(proto: onnx.ModelProto) -> int:
    onnx.shape_inference.infer_shapes(proto, check_type=True, strict_mode=True)
    return sum(node.op_type == "Transpose" for node in proto.graph.node)


def run(proto: onnx.ModelProto, batch: int) -> list[NDArray[np.float32]]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    x = np.random.default_rng(1).standard_normal((batch, 6, 7, 3)).astype(np.float32)
    return [np.asarray(one, np.float32) for one in session.run(None, {"x": x})]


def assert_same(before: onnx.ModelProto, after: onnx.ModelProto) -> None:
    for batch in (0, 1, 3):
        for one, other in zip(run(before, batch), run(after, batch), strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


BETWEEN = {
    "activation": "y = Relu (z)",
    "batch norm": "p = Sub (z, c) q = Mul (p, row) y = Add (q, c)",
    "constant first": "p = Sub (c, z) y = PRelu (p, c)",
    "clip": "p = Add (z, half) y = Clip (p, half)",
    "sum of both": "p = Sigmoid (z) q = Tanh (z) r = Mul (p, z) y = Add (r, q)",
    "pad": "y = Pad (z, pads, half)",
    "reflected": 'y = Pad <mode = "reflect"> (z, pads)',
    "cut": "y = Slice (z, starts, ends)",
    "cut along axes": "y = Slice (z, some, many, axes)",
    "joined and parted": "p = Concat <axis = 3> (z, z) q, y = Split <axis = -1> (p)",
    "joined below": "p = Concat <axis = -3> (z, z) y = Relu (p)",
    "excited": "p = ReduceMean <axes = [1, 2]> (z) q = Sigmoid (p) y = Mul (z, q)",
    "rounded": "p = QuantizeLinear (z, half, zero) y = DequantizeLinear (p, half, zero)",
    "cast": "p = Cast <to = 11> (z) y = Cast <to = 1> (p)",
    "dropped out": "y = Dropout (z)",
    "pooled": """p = Transpose <perm = [0, 3, 1, 2]> (z) q = MaxPool <kernel_shape = [2, 2]> (p)
        y = Transpose <perm = [0, 2, 3, 1]> (q)""",
}


@pytest.mark.parametrize("nodes", BETWEEN.values(), ids=BETWEEN)
def test_a_transpose_moves_past_what_stands_between_convolutions(nodes: str) -> None:
    before = model(f"{nodes} {CHANNELS_FIRST}")
    after = moved(before)
    assert after is not None
    assert transposes(after) == 2
    assert_same(before, after)


HEADS = {
    "mean": "out = ReduceMean <axes = [1, 2], keepdims = 0> (z)",
    "negative axes": "out = ReduceMax <axes = [-2, -3], keepdims = 0> (z)",
    "sum": "out = ReduceSum <keepdims = 0> (z, pixels)",
    "squeezed": "p = ReduceMean <axes = [1, 2]> (z) out = Squeeze (p, pixels)",
}


@pytest.mark.parametrize("nodes", HEADS.values(), ids=HEADS)
def test_a_transpose_ends_at_what_takes_all_pixels(nodes: str) -> None:
    before = model(nodes, outputs="float[b, k] out")
    after = moved(before)
    assert after is not None
    assert transposes(after) == 1
    assert_same(before, after)


KEPT = {
    "means of channels": "p = ReduceMean <axes = [3]> (z) q = Sub (z, p) y = Relu (q)",
    "constants of places": "y = Add (z, places)",
    "rows": "p = ReduceMean <axes = [1]> (z) y = Mul (z, p)",
    "shares": "y = Softmax (z)",
    "flat": "p = Flatten (z) q = Shape (z) y = Reshape (p, q)",
}


@pytest.mark.parametrize("nodes", KEPT.values(), ids=KEPT)
def test_what_needs_channels_last_has_them_last(nodes: str) -> None:
    before = model(f"{nodes} {CHANNELS_FIRST}")
    assert_same(before, moved(before) or before)


@pytest.mark.parametrize("opset", [9, 10, 11, 13])
def test_pads_are_attributes_or_inputs(opset: int) -> None:
    pad = "Pad <pads = [0, 1, 0, 2, 0, 3, 1, 0], value = 2.0> (z)" if opset < 11 else "Pad (z, pads, half)"
    before = model(f"y = {pad} {CHANNELS_FIRST}", opset)
    after = moved(before)
    assert after is not None
    assert transposes(after) == 2
    assert_same(before, after)


@pytest.mark.parametrize("opset", [9, 13])
def test_slices_are_attributes_or_inputs(opset: int) -> None:
    cut = "Slice <starts = [1, 0], ends = [5, 3], axes = [2, 3]> (z)" if opset < 10 else "Slice (z, some, many, axes)"
    before = model(f"y = {cut} {CHANNELS_FIRST}", opset)
    after = moved(before)
    assert after is not None
    assert transposes(after) == 2
    assert_same(before, after)


def test_outputs_keep_their_names_and_orders() -> None:
    nodes = f"y = Relu (z) {CHANNELS_FIRST}"
    before = model(
        nodes, outputs="float[b, h, w, k] z, float[b, h, w, k] y, float[b, k, h, w] f, float[b, h, w, k] out"
    )
    after = moved(before)
    assert after is None or [value.name for value in after.graph.output] == ["z", "y", "f", "out"]
    assert_same(before, after or before)


def test_a_transpose_moves_up_to_an_input_past_its_scaling_and_pads() -> None:
    before = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 13]> g (float[batch, 6, 7, 3] x) => (float[b, h, w, k] out)
        <int64[8] pads = {0, 1, 0, 0, 0, 3, 1, 0}, float half = {0.5}, float[3] mean = {0.1, 0.2, 0.3},
         float[2, 3, 1, 1] v = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}, float[3, 2, 1, 1] w = {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}>
        {
            p = Mul (x, half)
            q = Sub (p, mean)
            r = Pad (q, pads)
            a = Transpose <perm = [0, 3, 1, 2]> (r)
            b = Conv (a, v)
            c = Transpose <perm = [0, 2, 3, 1]> (b)
            d = Relu (c)
            e = Transpose <perm = [0, 3, 1, 2]> (d)
            f = Conv (e, w)
            out = Transpose <perm = [0, 2, 3, 1]> (f)
        }"""
    )
    after = moved(before)
    assert after is not None
    assert [node.op_type for node in after.graph.node] == [
        *("Transpose", "Mul", "Sub", "Pad", "Conv", "Relu", "Conv", "Transpose")
    ]
    assert_same(before, after)


def test_a_model_without_images_is_left_alone() -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[b, 6, 7, 3] x) => (float[b, 7, 3, 6] y)
        { p = Relu (x) q = Transpose <perm = [0, 2, 3, 1]> (p) y = Exp (q) }"""
    assert moved(onnx.parser.parse_model(text)) is None
