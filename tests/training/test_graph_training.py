"""Graph networks are trained on all nodes at once: gradients are those of finite differences in onnxruntime."""

import numpy as np
import pytest

from redpebble import UnsupportedModelError, finetune
from redpebble.models.graph_network import GraphNetwork
from redpebble.training.native_step import NativeStep, StepOptions
from redpebble.training.samples import Samples
from redpebble.verification.oracle import Oracle

NODES = 60


@pytest.mark.parametrize("graph", ["power_law"])
@pytest.mark.parametrize("kind", ["gcn", "sage", "gin"])
def test_gradients_are_slopes_of_the_loss(kind: str, graph: str) -> None:
    rng = np.random.default_rng(0)
    # a layer that narrows, one that widens: sums stand behind and before weights
    model = GraphNetwork(kind, graph, NODES, 4.0, (9, 5, 12, 3)).build(rng)
    x, wanted = (rng.standard_normal((NODES, width), dtype=np.float32) for width in (9, 3))
    step = NativeStep(model, StepOptions("mse", NODES))
    samples = step.prepared(Samples({"x": x}, wanted))
    feeds = {tensor.name: np.asarray(samples.inputs[tensor.name], np.float32) for tensor in step.tensors}
    batch = step.bind(feeds, wanted)
    batch.run()
    np.testing.assert_allclose(batch.outputs, Oracle(model).run({"x": x})[0], rtol=1e-4, atol=1e-4)

    def loss(values: np.ndarray[tuple[int, ...], np.dtype[np.float32]]) -> float:
        (y,) = Oracle(step.trained(values)).run({"x": x})
        return float(np.square(y.astype(np.float64) - wanted).mean(axis=1).sum())

    for _ in range(3):
        direction = rng.standard_normal(len(step.values), dtype=np.float32)
        direction *= np.float32(1e-3) / np.abs(direction).max()
        slope = (loss(step.values + direction) - loss(step.values - direction)) / 2
        assert step.gradient.astype(np.float64) @ direction == pytest.approx(slope, rel=0.02, abs=1e-4)


def test_sums_of_the_inputs_are_computed_once() -> None:
    """A layer reads the sum over a graph, wherever the product stood in the model."""
    model = GraphNetwork("gcn", "grid", NODES, 4.0, (9, 5, 3)).build(np.random.default_rng(0))
    step = NativeStep(model, StepOptions("mse", NODES))
    (cached,) = step.cached
    x = np.random.default_rng(1).standard_normal((NODES, 9), dtype=np.float32)
    inputs = step.prepared(Samples({"x": x}, x[:, :3])).inputs
    np.testing.assert_allclose(inputs[cached.name], cached.graph.to_dense().T @ x, rtol=1e-4, atol=1e-5)


def test_a_graph_network_learns_classes_of_its_nodes() -> None:
    rng = np.random.default_rng(0)
    model = GraphNetwork("sage", "geometric", NODES, 4.0, (9, 16, 3)).build(rng)
    x, classes = rng.standard_normal((NODES, 9), dtype=np.float32), rng.integers(0, 3, NODES)
    trained = finetune(model, {"x": x}, labels=classes, loss="cross-entropy", epochs=60, rate=3e-2)
    (scores,) = Oracle(trained.model).run({"x": x})
    assert (scores.argmax(axis=1) == classes).mean() > 0.9


def test_what_is_not_trained_is_said() -> None:
    model = GraphNetwork("gat", "grid", NODES, 4.0, (9, 8, 4)).build(np.random.default_rng(0))
    x = np.zeros((NODES, 9), np.float32)
    with pytest.raises(UnsupportedModelError, match=r"pebble.attend_edges"):
        finetune(model, {"x": x}, labels=x[:, :4])
    fewer = GraphNetwork("gcn", "grid", NODES, 4.0, (9, 8, 4)).build(np.random.default_rng(0))
    with pytest.raises(ValueError, match=f"expected a sample for each of {NODES} nodes, got 7"):
        finetune(fewer, {"x": x[:7]}, labels=x[:7, :4])
