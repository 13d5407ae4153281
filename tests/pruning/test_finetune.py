"""Training keeps zeros, brings outputs closer to the dense model's, and is refused before any work is done."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from redpebble.frontend.errors import UnsupportedModelError
from redpebble.pruning.finetune import lessons_of, trained
from redpebble.pruning.prune import prune
from redpebble.training.samples import Floats
from redpebble.verification.oracle import Oracle
from tests.pruning.dense_networks import WIDTH, branched_network, samples, weight_of

TEXT = f"""<ir_version: 8, opset_import: ["" : 17]>
    chain (float[n, {WIDTH}] x) => (float[n, 5] y) {{
        a = MatMul(x, w1)  b = Add(a, b1)  c = Relu(b)
        d = Gemm<transB: int = 1>(c, w2, b2)  e = Tanh(d)
        y = MatMul(e, w3)
    }}"""


def chain(density: float = 1.0) -> ir.Model:
    rng = np.random.default_rng(0)
    arrays = {
        "w1": weight_of(WIDTH, WIDTH, rng),
        "b1": rng.standard_normal(WIDTH).astype(np.float32),
        "w2": weight_of(WIDTH, WIDTH, rng).T.copy(),
        "b2": rng.standard_normal(WIDTH).astype(np.float32),
        "w3": weight_of(WIDTH, 5, rng),
    }
    for name in ("w1", "w2"):
        arrays[name][rng.random(arrays[name].shape) >= density] = 0
    model = onnx.parser.parse_model(TEXT)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in arrays.items())
    return ir.from_proto(model)


def answers(model: ir.Model, x: Floats) -> Floats:
    return Oracle(model).run({"x": x})[0]


def weight(model: ir.Model, name: str) -> Floats:
    tensor = model.graph.initializers[name].const_value
    assert tensor is not None
    return tensor.numpy()


def test_training_keeps_zeros_and_comes_closer_to_the_dense_model() -> None:
    dense, pruned, x = Oracle(chain()), chain(0.3), samples(300)
    lessons = lessons_of([{"x": x[:100]}, {"x": x[100:]}], None, lambda feeds: dense.run(feeds)[0])
    found = trained(pruned, lessons, 0.5, 0)
    (wanted,) = dense.run({"x": x})
    moved = [float(np.square(answers(model, x) - wanted).mean()) for model in (pruned, found)]
    assert moved[1] < 0.5 * moved[0]
    for name in ("w1", "w2"):
        assert np.array_equal(weight(found, name) == 0, weight(pruned, name) == 0)


@pytest.mark.parametrize("are_classes", [True, False])
def test_labels_take_the_place_of_the_dense_model(*, are_classes: bool) -> None:
    x, network = samples(300), chain()
    labels = x[:, :5].argmax(axis=1)
    given = labels if are_classes else np.eye(5)[labels]
    lessons = lessons_of([{"x": x[:100]}, {"x": x[100:]}], given, lambda feeds: answers(network, feeds["x"]))
    assert lessons.loss == ("cross-entropy" if are_classes else "mse")
    found = trained(network, lessons, 0.5, 0)
    # five classes, of which chance finds a fifth, and as many steps as a busy machine makes
    assert (answers(found, x).argmax(axis=1) == labels).mean() > 0.4


WRONG_LABELS = {
    "count": (
        np.zeros(9, np.int64),
        r"labels: expected classes \(10,\) or finite outputs .*, got int64 of shape \(9,\)",
    ),
    "class": (np.full(10, 5), "labels: expected classes 0 to 4, got 5 to 5"),
    "nan": (np.full((10, 5), np.nan), "labels: expected classes .*, got float64 of shape"),
    "words": (np.full((10, 5), "a"), "labels: expected classes .*, got <U1 of shape"),
}


@pytest.mark.parametrize("name", WRONG_LABELS)
def test_labels_that_do_not_fit_are_refused(name: str) -> None:
    labels, message = WRONG_LABELS[name]
    with pytest.raises(ValueError, match=message):
        prune(chain(), {"x": samples(10)}, sparsity=0.5, finetune=1.0, labels=labels)


def test_what_cannot_be_trained_is_refused() -> None:
    image = """<ir_version: 8, opset_import: ["" : 17]> image (float[n, 64, 8, 8] x) => (float[n, 128, 8, 8] y) {
        y = Conv(x, w)
    }"""
    convolution = onnx.parser.parse_model(image)
    convolution.graph.initializer.append(onnx.numpy_helper.from_array(np.ones((128, 64, 1, 1), np.float32), "w"))
    with pytest.raises(
        ValueError, match=r"input 'x': expected float32 \(samples, features\), got float32 of shape \(9, 64, 8, 8\)"
    ):
        prune(convolution, {"x": np.ones((9, 64, 8, 8), np.float32)}, sparsity=0.5, finetune=1.0)
    other = onnx.parser.parse_model(TEXT.replace("e = Tanh(d)", "e, i = TopK(d, k)"))
    other.graph.initializer.extend(ir.to_proto(chain()).graph.initializer)
    other.graph.initializer.append(onnx.numpy_helper.from_array(np.array([WIDTH]), "k"))
    with pytest.raises(UnsupportedModelError, match="TopK"):
        prune(other, {"x": samples(99)}, sparsity=0.5, finetune=1.0)


@pytest.mark.slow
@pytest.mark.parametrize("stages", [1, 3])
@pytest.mark.parametrize("model", [chain(), branched_network()])
def test_a_pruned_network_is_trained_on_request(model: ir.Model, stages: int) -> None:
    data = {"x": samples(300)}
    before = prune(model, data, sparsity=0.9, rows=16)
    after = prune(model, data, sparsity=0.9, rows=16, finetune=3.0, stages=stages)
    assert after.report.loss < before.report.loss
    assert after.report.connections == before.report.connections
