"""Graph networks are trained on all nodes at once: gradients are those of finite differences in onnxruntime."""

import numpy as np
import pytest

from redpebble import finetune
from redpebble.models.graph_network import GraphNetwork
from redpebble.training.native_step import NativeStep, StepOptions
from redpebble.training.samples import Samples
from redpebble.verification.oracle import Oracle

NODES = 60


@pytest.mark.parametrize("graph", ["power_law"])
@pytest.mark.parametrize("kind", ["gcn", "sage", "gin", "gat"])
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


@pytest.mark.parametrize(("kind", "width"), [("sage", 16), ("gat", 32)])
def test_a_graph_network_learns_classes_of_its_nodes(kind: str, width: int) -> None:
    rng = np.random.default_rng(0)
    model = GraphNetwork(kind, "geometric", NODES, 4.0, (9, width, 3)).build(rng)
    x, classes = rng.standard_normal((NODES, 9), dtype=np.float32), rng.integers(0, 3, NODES)
    trained = finetune(model, {"x": x}, labels=classes, loss="cross-entropy", epochs=100, rate=3e-2)
    (scores,) = Oracle(trained.model).run({"x": x})
    assert (scores.argmax(axis=1) == classes).mean() > 0.9


def test_samples_that_are_not_the_nodes_are_refused() -> None:
    fewer = GraphNetwork("gcn", "grid", NODES, 4.0, (9, 8, 4)).build(np.random.default_rng(0))
    x = np.zeros((7, 9), np.float32)
    with pytest.raises(ValueError, match=f"expected a sample for each of {NODES} nodes, got 7"):
        finetune(fewer, {"x": x}, labels=x[:, :4])


@pytest.mark.slow
@pytest.mark.parametrize("heads", [1, 3, 8])
def test_gradients_of_attention_are_those_of_torch(heads: int) -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(heads)
    network = GraphNetwork("gat", "power_law", NODES, 4.0, (9, 4 * heads, 2 * heads), heads)
    model = network.build(np.random.default_rng(heads))
    x, wanted = (rng.standard_normal((NODES, width), dtype=np.float32) for width in (9, 2 * heads))
    step = NativeStep(model, StepOptions("mse", NODES))
    step.bind({"x": x}, wanted).run()
    loops = np.arange(NODES)
    # the graph is drawn before weights
    pairs = network.edges(np.random.default_rng(heads))
    sources, targets = (torch.tensor(np.concatenate((ends, loops))) for ends in pairs)
    arrays = {name: value.const_value for name, value in model.graph.initializers.items()}
    held = {
        name: torch.tensor(array.numpy(), dtype=torch.float64, requires_grad=True)
        for name, array in arrays.items()
        if array is not None and name in step.initializers
    }
    y = torch.tensor(x, dtype=torch.float64)
    for layer in ("layers.0", "layers.1"):
        y = torch.relu(y) if layer == "layers.1" else y
        h = (y @ held[f"{layer}.weight"]).reshape(NODES, heads, -1)
        ends = [(h * held[f"{layer}.{end}"]).sum(-1) for end in ("source", "target")]
        scores = torch.nn.functional.leaky_relu(ends[0][sources] + ends[1][targets], 0.2)
        powers = torch.exp(scores - scores.max())
        totals = torch.zeros(NODES, heads, dtype=torch.float64).index_add(0, targets, powers)
        messages = (powers / totals[targets])[:, :, None] * h[sources]
        y = torch.zeros_like(h).index_add(0, targets, messages).reshape(NODES, -1) + held[f"{layer}.bias"]
    ((y - torch.tensor(wanted)) ** 2).mean(dim=1).sum().backward()
    assert len(held) == 8
    for parameter in step.parameters:
        expected = held[parameter.name].grad.numpy().ravel()[parameter.places]
        np.testing.assert_allclose(step.gradient[parameter.values], expected, rtol=1e-3, atol=1e-4)
