"""Keys and values that exporters repeat for the heads that share them: attention reads each once."""

import numpy as np
import onnx
import pytest

from redpebble.dialect.ops.attention import Attention
from redpebble.dialect.ops.foreign import ForeignOp
from redpebble.frontend.import_model import import_model
from tests.frontend.import_oracle import assert_agrees, imported, model

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
