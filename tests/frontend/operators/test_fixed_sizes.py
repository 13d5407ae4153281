"""Sizes that a model leaves to calls, though its nodes fit one of them alone: a trace holds that of its example."""

import numpy as np
import pytest

import redpebble
from tests.frontend.import_oracle import model, normal, session

WEIGHTS = {"w": normal(6, 8), "s": np.array([4, 2, 8])}
SIGNATURE = "(float[n,b,6] x) => (float[n,b,8] y)"
FITS_ONE_SIZE = "h = MatMul(x, w) k = Reshape(h, s) y = Add(h, k)"


def test_a_size_that_one_node_fixes_is_fixed_in_all_calls() -> None:
    proto = model(SIGNATURE, FITS_ONE_SIZE, weights={**WEIGHTS, "s": np.array([4, 0, 8])})
    compiled, x = redpebble.compile(proto, cache=False), normal(4, 7, 6)
    np.testing.assert_allclose(compiled.run(None, {"x": x})[0], session(proto).run(None, {"x": x})[0], rtol=1e-4)
    with pytest.raises(ValueError, match=r"input 'x': expected size 4 along axis 0, got 5"):
        compiled.run(None, {"x": normal(5, 7, 6)})


def test_sizes_that_fix_each_other_are_left_to_calls() -> None:
    # n b = 8 says nothing of n alone
    proto = model("(float[n,b,6] x) => (float[4,2,8] y)", "h = MatMul(x, w) y = Reshape(h, s)", weights=WEIGHTS)
    compiled = redpebble.compile(proto, cache=False)
    for shape in ((2, 4, 6), (8, 1, 6)):
        x = normal(*shape)
        np.testing.assert_allclose(compiled.run(None, {"x": x})[0], (x @ WEIGHTS["w"]).reshape(4, 2, 8), rtol=1e-4)


def test_a_node_that_nothing_reads_fixes_no_size() -> None:
    proto = model(SIGNATURE, "y = MatMul(x, w) k = Reshape(y, s)", weights={**WEIGHTS, "s": np.array([4, 0, 8])})
    compiled, x = redpebble.compile(proto, cache=False), normal(5, 7, 6)
    np.testing.assert_allclose(compiled.run(None, {"x": x})[0], x @ WEIGHTS["w"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("tokens", [1, 5, 16])
def test_as_many_positions_as_tokens_are_added(tokens: int) -> None:
    parts = "a = Shape(ids) e = Gather(a, one) p = Slice(table, zero, e, one)"
    nodes = f"{parts} h = Gather(words, ids) x = Add(h, p) g = Shape(x) k = Reshape(x, g) y = MatMul(k, w)"
    weights = {"one": np.array([1]), "zero": np.array([0]), "w": normal(6, 8), "words": normal(9, 6)}
    proto = model("(int64[n,t] ids) => (float[n,t,8] y)", nodes, weights={**weights, "table": normal(1, 16, 6)})
    ids = np.arange(3 * tokens).reshape(3, tokens) % 9
    ours, theirs = redpebble.compile(proto, cache=False), session(proto)
    np.testing.assert_allclose(ours.run(None, {"ids": ids})[0], theirs.run(None, {"ids": ids})[0], rtol=1e-4, atol=1e-5)
