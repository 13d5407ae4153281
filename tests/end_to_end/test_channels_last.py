"""Networks as converters of TensorFlow write them, whose channels stand last."""

import numpy as np
import onnx_ir
import pytest

import redpebble
from redpebble.models.channels_last import ChannelsLast
from tests.end_to_end.agreement import assert_close
from tests.ort.provider_models import plain_session

KINDS = ("residual", "separable")
BATCHES = (0, 1, 7, 17)


def network(kind: str, density: float = 0.1, sizes: tuple[int, int] = (64, 32)) -> onnx_ir.Model:
    recipe, rng = ChannelsLast(*sizes, density=density), np.random.default_rng(0)
    return recipe.residual(rng) if kind == "residual" else recipe.separable(rng)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_session_computes_all_sparse_convolutions_in_one_network(kind: str) -> None:
    model = network(kind)
    optimized = redpebble.optimize(model, target="ort").model
    left = [node.op_type for node in optimized.graph if node.domain == ""]
    assert sum(node.domain != "" for node in optimized.graph) == 1
    assert left.count("Transpose") == 1
    assert not {"Sub", "Mul"} & {*left}
    original, ours = plain_session(onnx_ir.to_proto(model)), redpebble.session(onnx_ir.to_proto(model))
    for batch in BATCHES:
        x = {"x": np.random.default_rng(batch).standard_normal((batch, 64, 64, 3)).astype(np.float32)}
        assert_close(ours.run(None, x), original.run(None, x))


@pytest.mark.parametrize("kind", [pytest.param("residual", marks=pytest.mark.slow), "separable"])
def test_native_code_computes_the_same(kind: str) -> None:
    model = network(kind, sizes=(31, 8))
    original, compiled = plain_session(onnx_ir.to_proto(model)), redpebble.compile(model)
    for batch in BATCHES:
        x = {"x": np.random.default_rng(batch).standard_normal((batch, 31, 31, 3)).astype(np.float32)}
        assert_close(compiled.run(None, x), original.run(None, x))


def test_a_file_in_which_nothing_gains_is_not_rewritten() -> None:
    model = onnx_ir.to_proto(network("residual", density=1.0))
    assert onnx_ir.to_proto(redpebble.optimize(model, target="ort").model) == model
