"""Training keeps zeros, brings outputs closer to the dense model's, and is for chains of layers alone."""

import numpy as np
import onnx
import pytest

from redpebble.pruning.chains import ACTIVATIONS, ChainWeights, chain_of
from redpebble.pruning.finetune import Lessons, lessons_of, train
from redpebble.pruning.prune import prune
from redpebble.verification.oracle import Oracle
from tests.pruning.dense_networks import WIDTH, branched_network, samples, weight_of

TEXT = f"""<ir_version: 8, opset_import: ["" : 17]>
    chain (float[n, {WIDTH}] x) => (float[n, 5] y) {{
        a = MatMul(x, w1)  b = Add(a, b1)  c = Relu(b)
        d = Gemm<transB: int = 1>(c, w2, b2)  e = Tanh(d)
        y = MatMul(e, w3)
    }}"""


@pytest.fixture(scope="module")
def chain() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    arrays = {
        "w1": weight_of(WIDTH, WIDTH, rng),
        "b1": rng.standard_normal(WIDTH).astype(np.float32),
        "w2": weight_of(WIDTH, WIDTH, rng).T.copy(),
        "b2": rng.standard_normal(WIDTH).astype(np.float32),
        "w3": weight_of(WIDTH, 5, rng),
    }
    model = onnx.parser.parse_model(TEXT)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    return model


def chain_weights(model: onnx.ModelProto) -> ChainWeights:
    chain = chain_of(model.graph)
    assert chain is not None
    return ChainWeights.of(chain, model.graph, {})


def test_a_chain_computes_what_onnxruntime_does(chain: onnx.ModelProto) -> None:
    weights = chain_weights(chain)
    assert [layer.activation for layer in weights.chain.layers] == ["Relu", "Tanh", "Identity"]
    x = samples(20)
    found = weights.forward(x)[-1]
    np.testing.assert_allclose(found, Oracle.of(lambda: _session(chain)).run({"x": x})[0], rtol=1e-4, atol=1e-5)
    assert set(weights.stored) == {"w1", "b1", "w2", "b2", "w3"}


def _session(model: onnx.ModelProto):  # noqa: ANN202 - onnxruntime's own
    import onnxruntime

    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("layer", range(3))
def test_gradients_are_those_of_finite_differences(layer: int, chain: onnx.ModelProto) -> None:
    weights, x = chain_weights(chain), samples(6)
    wanted = np.random.default_rng(1).standard_normal((6, 5)).astype(np.float32)

    def loss() -> float:
        return float(0.5 * np.square(weights.forward(x)[-1].astype(np.float64) - wanted).sum())

    values = weights.forward(x)
    gradients, biases = weights.gradients(values, values[-1] - wanted)
    for array, gradient in ((weights.weights[layer], gradients[layer]), (weights.biases[layer], biases[layer])):
        place = np.unravel_index(np.argmax(np.abs(gradient)), gradient.shape)
        before = array[place]
        array[place] = before + 3e-3
        after = loss()
        array[place] = before - 3e-3
        slope = (after - loss()) / 6e-3
        array[place] = before
        assert slope == pytest.approx(float(gradient[place]), rel=0.05)


def test_training_keeps_zeros_and_comes_closer_to_the_dense_model(chain: onnx.ModelProto) -> None:
    dense, pruned = chain_weights(chain), chain_weights(chain)
    masks = [np.random.default_rng(2).random(weight.shape) < 0.3 for weight in pruned.weights]
    for weight, mask in zip(pruned.weights, masks, strict=True):
        weight *= mask
    x = samples(300)

    def moved(weights: ChainWeights) -> float:
        return float(np.square(weights.forward(x)[-1] - dense.forward(x)[-1]).mean())

    before = moved(pruned)
    assert train(pruned, dense, Lessons([x[:100], x[100:]]), 1.0, 0) > 0
    assert moved(pruned) < 0.5 * before
    for weight, mask in zip(pruned.weights, masks, strict=True):
        assert np.all(weight[~mask] == 0)


def test_labels_take_the_place_of_the_dense_model(chain: onnx.ModelProto) -> None:
    x = samples(300)
    labels = x[:, :5].argmax(axis=1)
    for given, is_linear in ((labels, True), (np.eye(5)[labels], False)):
        network = chain_weights(chain)
        lessons = lessons_of([x[:100], x[100:]], given, 5, is_linear)
        assert lessons.are_classes == is_linear
        train(network, chain_weights(chain), lessons, 1.0, 0)
        # five classes, and as many steps as a busy machine makes
        assert (network.forward(x)[-1].argmax(axis=1) == labels).mean() > 0.6


WRONG_LABELS = {
    "count": (
        np.zeros(9, np.int64),
        r"labels are int64 of shape \(9,\), accepted are classes \(10,\) or finite outputs",
    ),
    "class": (np.full(10, 5), "labels are 5 to 5, accepted are classes 0 to 4"),
    "nan": (np.full((10, 5), np.nan), "labels are float64 of shape"),
    "words": (np.full((10, 5), "a"), "labels are <U1 of shape"),
}


@pytest.mark.parametrize("name", WRONG_LABELS)
def test_labels_that_do_not_fit_are_refused(name: str, chain: onnx.ModelProto) -> None:
    labels, message = WRONG_LABELS[name]
    with pytest.raises(ValueError, match=message):
        prune(chain, {"x": samples(10)}, sparsity=0.5, finetune=1.0, labels=labels)


def test_what_is_no_chain_is_not_trained() -> None:
    with pytest.raises(
        ValueError, match="the model is no chain of layers with Relu, Tanh or Sigmoid: only such can be"
    ):
        prune(branched_network(), {"x": samples(99)}, sparsity=0.5, finetune=1.0)


@pytest.mark.slow
def test_a_pruned_chain_is_trained_on_request(chain: onnx.ModelProto) -> None:
    data = {"x": samples(300)}
    before = prune(chain, data, sparsity=0.9, rows=16)
    after = prune(chain, data, sparsity=0.9, rows=16, finetune=1.0)
    assert after.report.loss < before.report.loss
    assert after.report.connections == before.report.connections


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_slopes_are_those_of_finite_differences(name: str) -> None:
    x, one = np.array([-1.5, -0.4, 0.3, 2.0], np.float32), ACTIVATIONS[name]
    slope = (one.of(x + np.float32(1e-2)) - one.of(x - np.float32(1e-2))) / np.float32(2e-2)
    np.testing.assert_allclose(one.slope(one.of(x)), slope, rtol=1e-2, atol=1e-4)
