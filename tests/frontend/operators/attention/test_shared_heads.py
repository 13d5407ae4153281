"""Keys and values that exporters repeat for the heads that share them: attention reads each once."""

import numpy as np
import onnx
import onnx_ir
import pytest

from redpebble.dialect.ops.attention import Attention
from redpebble.dialect.ops.foreign import ForeignOp
from redpebble.export.export_model import export_model
from redpebble.frontend.import_model import import_model
from tests.frontend.import_oracle import assert_agrees, feeds_of, imported, model, session

REPEATED = (
    """one_{n} = Unsqueeze({n}, two) copies_{n} = Expand(one_{n}, copies) {n}_all = Reshape(copies_{n}, joined)"""
)
PRODUCTS = """keys = Transpose<perm=[0,1,3,2]>(k_all) scores = MatMul(q, keys) weights = Softmax<axis=-1>(scores)
    y = MatMul(weights, v_all)"""
NUMBERS = {"two": np.array([2]), "copies": np.array([1, 1, 3, 1, 1]), "joined": np.array([0, 6, -1, 4])}


def repeated(past: bool = False, **numbers: list[int]) -> onnx.ModelProto:
    """Six heads of queries that share two of keys and values, which may stand behind those of a past."""
    own = "k2 = Concat<axis=2>(pk, k) v2 = Concat<axis=-2>(pv, v) " if past else "k2 = Identity(k) v2 = Identity(v) "
    inputs = ", ".join(f"float[b,2,{'p' if name[0] == 'p' else 's'},4] {name}" for name in ("k", "v", "pk", "pv"))
    nodes = own + " ".join(REPEATED.format(n=name) for name in ("k2", "v2")) + PRODUCTS
    nodes = nodes.replace("k_all", "k2_all").replace("v_all", "v2_all")
    given = inputs if past else ", ".join(inputs.split(", ")[:2])
    weights = NUMBERS | {name: np.array(value) for name, value in numbers.items()}
    return model(f"(float[b,6,s,4] q, {given}) => (float[b,6,s,4] y)", nodes, opset=17, weights=weights)


@pytest.mark.parametrize("past", [False, True])
def test_heads_that_are_repeated_are_read_once(past: bool) -> None:
    proto = repeated(past)
    assert_agrees(proto)
    (op,) = (op for op in imported(proto).walk() if isinstance(op, Attention))
    assert (op.head_counts.queries, op.head_counts.keys) == (6, 2)
    assert bool(op.past) is past


def test_the_copies_do_not_stay_behind_in_a_session() -> None:
    proto = repeated()
    for node in proto.graph.node:
        node.name = f"{node.output[0]}_node"
    module = import_model(proto, foreign="keep", whole=frozenset()).module
    assert not [op.operator.data for op in module.walk() if isinstance(op, ForeignOp)]


def test_copies_in_another_order_are_heads_of_their_own() -> None:
    proto = repeated(two=[1], copies=[1, 3, 1, 1, 1])  # heads 0, 1, 0, 1, 0, 1 instead of 0, 0, 0, 1, 1, 1
    assert_agrees(proto)
    (op,) = (op for op in imported(proto).walk() if isinstance(op, Attention))
    assert (op.head_counts.queries, op.head_counts.keys) == (6, 6)


def test_a_gather_that_takes_heads_in_another_order_is_no_repetition() -> None:
    for places in ([0, 0, 0, 1, 1, 1], [0, 1, 0, 1, 0, 1], [0, 0, 0, 0, 1, 1]):
        text = "k_all = Gather<axis = 1>(k, places) v_all = Gather<axis = 1>(v, places) " + PRODUCTS
        proto = model(
            "(float[b,6,s,4] q, float[b,2,s,4] k, float[b,2,s,4] v) => (float[b,6,s,4] y)",
            text,
            opset=17,
            weights={"places": np.array(places)},
        )
        module = import_model(proto, foreign="keep", whole=frozenset()).module
        heads = [op.head_counts.keys for op in module.walk() if isinstance(op, Attention)]
        assert heads == ([2] if places == [0, 0, 0, 1, 1, 1] else [6])


@pytest.mark.parametrize("past", [False, True])
def test_shared_heads_are_written_as_they_are_read(past: bool) -> None:
    proto = repeated(past)
    read = import_model(proto, foreign="keep", whole=frozenset())
    written = onnx_ir.to_proto(export_model(read.module, read.model))
    assert "Expand" not in {node.op_type for node in written.graph.node}
    (op,) = (op for op in imported(written).walk() if isinstance(op, Attention))
    assert (op.head_counts.queries, op.head_counts.keys, bool(op.past)) == (6, 2, past)
    for size in (0, 3):
        feeds = feeds_of(proto, size)
        found = session(written).run(None, feeds)[0]
        assert found.shape == (size, 6, size, 4)
        if size:
            np.testing.assert_allclose(found, session(proto).run(None, feeds)[0], rtol=1e-5, atol=1e-6)
