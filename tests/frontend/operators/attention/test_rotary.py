"""RotaryEmbedding of ONNX and of com.microsoft as native code takes it."""

import numpy as np
import pytest

import redpebble
from redpebble.frontend.errors import UnsupportedModelError
from redpebble.frontend.import_model import import_model
from tests.frontend.import_oracle import Arrays, assert_agrees, model, normal, session

ANGLES = "float[b,n,4] c, float[b,n,4] s"
MICROSOFT = "com.microsoft.RotaryEmbedding"

FORMS: dict[str, tuple[str, str, Arrays]] = {
    "heads apart": (f"(float[b,3,n,8] x, {ANGLES}) => (float[b,3,n,8] y)", "RotaryEmbedding(x, c, s)", {}),
    "rows": (f"(float[b,n,24] x, {ANGLES}) => (float[b,n,24] y)", "RotaryEmbedding<num_heads=3>(x, c, s)", {}),
    "neighbours": (
        f"(float[b,n,24] x, {ANGLES}) => (float[b,n,24] y)",
        "RotaryEmbedding<num_heads=3, interleaved=1>(x, c, s)",
        {},
    ),
    "some features": (
        f"(float[b,n,36] x, {ANGLES}) => (float[b,n,36] y)",
        "RotaryEmbedding<num_heads=3, rotary_embedding_dim=8>(x, c, s)",
        {},
    ),
    "some neighbours of heads apart": (
        f"(float[b,3,n,12] x, {ANGLES}) => (float[b,3,n,12] y)",
        "RotaryEmbedding<rotary_embedding_dim=8, interleaved=1>(x, c, s)",
        {},
    ),
    "constant positions": (
        "(float[2,3,24] x) => (float[2,3,24] y)",
        f"{MICROSOFT}(x, at, table, table)",
        {"at": np.array([[0, 1, 2], [4, 3, 6]]), "table": normal(7, 4)},
    ),
    "an offset": (
        "(float[b,3,24] x) => (float[b,3,24] y)",
        f"{MICROSOFT}(x, at, table, table)",
        {"at": np.array([2]), "table": normal(7, 4)},
    ),
}


@pytest.mark.parametrize("name", FORMS)
def test_turned_features_agree(name: str) -> None:
    signature, node, weights = FORMS[name]
    assert_agrees(model(signature, f"y = {node}", opset=23, weights=weights), sizes=(1, 2, 5))


@pytest.mark.parametrize(
    "node",
    [
        f"{MICROSOFT}(a, at, table, other)",
        f"{MICROSOFT}<interleaved=1>(a, at, table, other)",
        "RotaryEmbedding<num_heads=3>(a, table, other, at)",
        "RotaryEmbedding<num_heads=3, interleaved=1>(a, table, other, at)",
    ],
)
def test_compiled_code_turns_features_by_positions_of_a_call(node: str) -> None:
    weight = normal(16, 24) * (np.random.default_rng(0).random((16, 24)) < 0.2)
    weights = {"table": normal(20, 4), "other": normal(20, 4, seed=1), "w": weight.astype(np.float32)}
    proto = model(
        "(float[b,n,16] x, int64[b,n] at) => (float[b,n,24] y)",
        f"a = MatMul(x, w) y = {node}",
        opset=23,
        weights=weights,
    )
    judge, ours = session(proto), redpebble.compile(proto, cache=False)
    for batch, length in ((1, 1), (1, 7), (3, 5), (2, 17)):
        feeds: Arrays = {"x": normal(batch, length, 16), "at": np.tile(np.arange(length), (batch, 1))}
        (expected,), (found,) = judge.run(None, feeds), ours.run(None, feeds)
        np.testing.assert_allclose(found, np.asarray(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ("RotaryEmbedding<num_heads=3>(x, w, w)", "expected cosines and sines of samples x tokens x angles, got 7 x 4"),
        ("RotaryEmbedding<num_heads=5>(x, c, s)", "expected features in heads of one size, got 24 in 5"),
        ("RotaryEmbedding<num_heads=2>(x, c, s)", "expected 12 turned features of 12, got angles for 8"),
        (f"{MICROSOFT}<scale=2.0>(x, at, w, w)", "expected scale=1, got 2.0"),
        (f"{MICROSOFT}(x, far, w, w)", "expected positions 0 to 6, got 0 to 7"),
        (f"{MICROSOFT}(x, some, w, w)", "expected a position for each token, and tables of two axes, got others"),
    ],
)
def test_turned_features_that_are_not_covered_are_refused(node: str, message: str) -> None:
    signature = f"(float[b,n,24] x, {ANGLES}, int64[1] some) => (float[b,n,24] y)"
    weights: Arrays = {"w": normal(7, 4), "at": np.array([[0]]), "far": np.array([[7]])}
    proto = model(signature, f"[op] y = {node}", opset=23, weights=weights)
    with pytest.raises(UnsupportedModelError) as refusal:
        import_model(proto, foreign="refuse")
    assert message in str(refusal.value)
    assert str(refusal.value).startswith("node 'op': operator RotaryEmbedding")
