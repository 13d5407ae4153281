"""Encoders as native code: ids and masks become floats in a prologue, all else is one network."""

from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import redpebble
from redpebble.frontend.errors import UnsupportedModelError
from redpebble.models.exports.stored import random_feeds, stored_export
from redpebble.runtime.network import Network

ENCODERS = (
    "bert.dynamo",
    *(
        pytest.param(name, marks=pytest.mark.slow)
        for name in ("bert.classic", "distilbert.classic", "distilbert.dynamo", "t5.classic")
    ),
)


@cache
def network(name: str) -> Network:
    return redpebble.compile(stored_export(name, 0.9), threads=2, cache=False)


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_with_ids_and_masks_is_native(name: str) -> None:
    proto = stored_export(name, 0.9)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    assert [value.type for value in network(name).get_inputs()] == [value.type for value in session.get_inputs()]
    for batch, sequence in ((1, 1), (2, 7), (3, 33)):
        feeds = random_feeds(proto, {"batch": batch, "sequence": sequence})
        feeds["attention_mask"][-1, sequence // 2 + 1 :] = 0
        for expected, found in zip(session.run(None, feeds), network(name).run(None, feeds), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5)


OTHERS = (
    *("ft_transformer.classic", "ft_transformer.dynamo", "deit.classic", "deit.dynamo", "mixer.classic"),
    *("dlrm.classic", "dlrm.dynamo"),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_an_encoder_that_asks_for_its_batch_is_native(name: str) -> None:
    proto = stored_export(name, 0.9)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for batch in (1, 5):
        feeds = random_feeds(proto, {"batch": batch})
        for expected, found in zip(session.run(None, feeds), network(name).run(None, feeds), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "heads", "features"), [("gpt2.dynamo", 4, 32), ("gpt2.classic", 4, 32), ("llama_step.classic", 2, 48)]
)
def test_the_step_of_a_decoder_is_native(name: str, heads: int, features: int) -> None:
    proto = stored_export(name, 0.9)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    assert network(name).get_outputs()[1].shape == ["batch", heads, "(past + sequence)", features]
    for batch, own, past in ((1, 1, 5), (2, 1, 33), (2, 7, 9), (1, 5, 0)):
        feeds = random_feeds(proto, {"batch": batch, "sequence": own, "past": past, "total": own + past})
        for expected, found in zip(session.run(None, feeds), network(name).run(None, feeds), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=2e-5)


POSITIONS = """<ir_version: 9, opset_import: ["" : 17]> g (int64[n, m] ids) => (float[n, m, 4] y) {
    shape = Shape(ids) flat = Concat<axis=0>(shape)
    rows = Reshape(ids, flat) length = Gather(shape, one) numbers = Range(zero, length, one)
    words = Gather(table, rows) places = Gather(table, numbers) x = Add(words, places)
    h = MatMul(x, weight) hshape = Shape(h) y = Reshape(h, hshape) }"""


def test_ids_in_another_shape_and_positions_have_the_sizes_of_the_ids() -> None:
    proto = onnx.parser.parse_model(POSITIONS)
    arrays = {"zero": np.array(0), "one": np.array(1), "table": np.eye(5, 8), "weight": np.ones((8, 4))}
    for name, array in arrays.items():
        kind = np.int64 if array.dtype.kind == "i" else np.float32
        proto.graph.initializer.append(numpy_helper.from_array(array.astype(kind), name))
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    net = redpebble.compile(proto, cache=False)
    ids = {"ids": np.array([[3, 1, 0], [4, 4, 2]])}
    np.testing.assert_array_equal(net.run(None, ids)[0], session.run(None, ids)[0])
    assert net.get_outputs()[0].shape == ["n", "m", 4]


ROTATED = """<ir_version: 9, opset_import: ["" : 17]> g (int64[n, m] places, float[n, m, 4] x) => (float[n, m, 8] y) {
    numbers = Cast<to=1>(places) open = Unsqueeze(numbers, last) angles = Mul(open, rates)
    left, right = Split<axis=-1>(angles) twice = Concat<axis=-1>(right, angles, left)
    cosines = Cos(twice) sines = Sin(twice) turned = Mul(x, cosines) lifted = Add(turned, sines)
    y = MatMul(lifted, weight) }"""


def test_angles_of_positions_are_computed_before_all_layers() -> None:
    proto = onnx.parser.parse_model(ROTATED)
    arrays = {"last": np.array([-1]), "rates": np.array([1.0, 0.5]), "weight": np.ones((4, 8))}
    for name, array in arrays.items():
        kind = np.int64 if array.dtype.kind == "i" else np.float32
        proto.graph.initializer.append(numpy_helper.from_array(array.astype(kind), name))
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {"places": np.arange(6).reshape(2, 3), "x": np.ones((2, 3, 4), np.float32)}
    found = redpebble.compile(proto, cache=False).run(None, feeds)[0]
    np.testing.assert_allclose(found, session.run(None, feeds)[0], rtol=1e-5, atol=1e-6)


MASKED = """<ir_version: 9, opset_import: ["" : 17]>
g (float[b,s,8] x, bool[p,q,r,t] seen, bool[u,v,w,z] near) => (float[b,s,8] y)
<float zero = {0}, float low = {-10000}> {
    q = MatMul(x, wq)
    heads = Reshape(q, apart)
    queries = Transpose<perm=[0,2,1,3]>(heads)
    keys = Transpose<perm=[0,2,3,1]>(heads)
    scores = MatMul(queries, keys)
    first = Where(seen, zero, low)
    second = Where(near, zero, low)
    one = Add(scores, first)
    both = Add(one, second)
    weights = Softmax<axis=-1>(both)
    mixed = MatMul(weights, queries)
    rows = Transpose<perm=[0,2,1,3]>(mixed)
    y = Reshape(rows, together)
}"""


def test_masks_of_sizes_that_a_call_alone_knows_are_added_up_before_all_layers() -> None:
    proto = onnx.parser.parse_model(MASKED)
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((8, 8)).astype(np.float32)
    arrays = {"wq": weight, "apart": np.array([0, 0, 2, 4]), "together": np.array([0, 0, 8])}
    for name, array in arrays.items():
        proto.graph.initializer.append(numpy_helper.from_array(array, name))
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    net = redpebble.compile(proto, cache=False)
    for seen, near in (((3, 1, 1, 5), (1, 2, 5, 5)), ((1, 1, 5, 5), (3, 2, 1, 5)), ((1, 1, 1, 1), (1, 1, 1, 1))):
        feeds = {"x": rng.standard_normal((3, 5, 8)).astype(np.float32)}
        feeds |= {name: rng.random(shape) < 0.7 for name, shape in (("seen", seen), ("near", near))}
        np.testing.assert_allclose(net.run(None, feeds)[0], session.run(None, feeds)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["lstm.dynamo", pytest.param("lstm.classic", marks=pytest.mark.slow)])
def test_a_stack_of_lstms_is_native(name: str) -> None:
    proto = stored_export(name, 0.9)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for batch, steps in ((1, 1), (3, 7)):
        feeds = random_feeds(proto, {"batch": batch, "sequence": steps})
        np.testing.assert_allclose(network(name).run(None, feeds)[0], session.run(None, feeds)[0], rtol=1e-4, atol=1e-5)


def test_what_keeps_a_network_from_being_native_is_the_node_that_has_no_code() -> None:
    nodes = "h = MatMul(x, w) y = Det(h)"
    graph = f"g (float[n,4,4] x) => (float[n] y) {{ {nodes} }}"
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> {graph}')
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((4, 4), np.float32), "w"))
    with pytest.raises(UnsupportedModelError, match=r"operator Det .*: no native code, a session"):
        redpebble.compile(proto, cache=False)


def test_a_product_of_what_was_computed_that_sums_any_number_of_values_is_refused_by_name() -> None:
    nodes = "h = MatMul(x, w) t = Transpose<perm=[0,2,1]>(h) y = MatMul(t, h)"
    graph = f"g (float[n,m,4] x) => (float[n,4,4] y) {{ {nodes} }}"
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 17]> {graph}')
    proto.graph.initializer.append(numpy_helper.from_array(np.ones((4, 4), np.float32), "w"))
    with pytest.raises(UnsupportedModelError, match="or at most 4096 values in a sum, got n x 4 x m by n x m x 4"):
        redpebble.compile(proto, cache=False)


def test_it_comes_from_the_cache(tmp_path: Path) -> None:
    proto = small()
    feeds = {"ids": np.array([[3, -1]], np.int64), "shift": np.array(1.5, np.float32)}
    first = redpebble.compile(proto, cache=tmp_path).run(None, feeds)
    again = redpebble.compile(proto, cache=tmp_path)
    np.testing.assert_array_equal(again.run(None, feeds)[0], first[0])
    np.testing.assert_array_equal(again(feeds["ids"], feeds["shift"]), first[0])


def small() -> bytes:
    """A table of 5 rows, of which the last id of each sample is looked up, a shift, and a layer."""
    rng = np.random.default_rng(0)
    table, weight = rng.random((5, 8), np.float32), rng.random((8, 4), np.float32)
    nodes = [
        helper.make_node("Gather", ["ids", "place"], ["last"], axis=1),
        helper.make_node("Gather", ["table", "last"], ["rows"], name="lookup"),
        helper.make_node("Add", ["rows", "shift"], ["shifted"]),
        helper.make_node("MatMul", ["shifted", "weight"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, ["n", 2]),
            helper.make_tensor_value_info("shift", TensorProto.FLOAT, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 4])],
        [
            helper.make_tensor(name, TensorProto.FLOAT, a.shape, a.tobytes(), raw=True)
            for name, a in (("table", table), ("weight", weight))
        ]
        + [helper.make_tensor("place", TensorProto.INT64, [], [1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 9
    return model.SerializeToString()


def test_what_does_not_fit_is_said() -> None:
    net = redpebble.compile(small(), cache=False)
    shift = np.zeros((), np.float32)
    with pytest.raises(ValueError, match="node 'lookup': operator Gather: index 5 is out of bounds"):
        net.run(None, {"ids": np.array([[0, 5]], np.int64), "shift": shift})
    with pytest.raises(ValueError, match="input 'ids': expected dtype int64, got int32"):
        net.run(None, {"ids": np.array([[1, 0]], np.int32), "shift": shift})
    with pytest.raises(ValueError, match="input 'ids': expected size 2 along axis 1, got 3"):
        net.run(None, {"ids": np.zeros((1, 3), np.int64), "shift": shift})
    with pytest.raises(ValueError, match="input 'shift' is missing"):
        net.run(None, {"ids": np.zeros((1, 2), np.int64)})
    with pytest.raises(
        ValueError, match="expected run for a network that computes what it reads from its inputs, got bind"
    ):
        net.bind({"ids": np.zeros((1, 2), np.float32), "shift": shift})
