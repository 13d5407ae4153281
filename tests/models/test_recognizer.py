"""The zoo's recognisers of text lines: what is stored, and the ONNX files made of it."""

import numpy as np
import onnx_ir
import onnxruntime
import pytest

import redpebble
from redpebble.models import zoo
from redpebble.models.graph_builder import GraphBuilder, Output
from redpebble.models.recognizer import (
    base_path,
    constants,
    packed,
    recognizer_cards,
    unpacked,
    weights_path,
    with_constants,
)
from tests.models.zoo_oracle import checked

ZEROS = (70, 80)


def without_base() -> bool:
    try:
        return not base_path().exists()
    except ValueError:
        return True


@pytest.mark.parametrize("zeros", ZEROS)
def test_what_is_stored_is_small_and_as_sparse_as_its_card_says(zeros: int) -> None:
    card, path = recognizer_cards()[f"ppocr_{zeros}"], weights_path(zeros)
    assert path.stat().st_size == card["bytes"] < 4 << 20
    stored = unpacked(path.read_bytes())
    assert all(np.isfinite(one).all() for one in stored.values())
    pruned = [one for one in stored.values() if (one == 0).mean() > zeros / 100 - 0.1]
    assert sum(one.size for one in pruned) > 2_490_000
    share = sum(int((one == 0).sum()) for one in pruned) / sum(one.size for one in pruned)
    # some weights that were kept are rounded to 0
    assert zeros / 100 - 0.005 < share < zeros / 100 + 0.03
    assert card["zeros"] == pytest.approx(share, abs=0.02)


def test_stored_constants_come_back_nearly_and_into_the_model() -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((24, 40)).astype(np.float32) * (rng.random((24, 40)) < 0.3)
    kernel = rng.standard_normal((8, 4, 1, 3)).astype(np.float32) * (rng.random((8, 4, 1, 3)) < 0.3)
    kernel[0], kernel[1, 0] = 0, 7
    dense = rng.standard_normal((6, 1, 3, 3)).astype(np.float32)
    given = {"factor": weight, "kernel": kernel, "dense": dense, "bias": np.zeros(5, np.float32)}
    found = unpacked(packed(given))
    assert found.keys() == given.keys()
    for name, array in given.items():
        assert found[name].shape == array.shape
        assert not found[name][array == 0].any()
        np.testing.assert_allclose(found[name], array, rtol=2**-11)
    builder = GraphBuilder()
    factor = builder.op("Constant", [], "factor", {"value": onnx_ir.tensor(weight)})
    product = builder.op("MatMul", [builder.input("x", (2, 24)), factor], "product")
    model = builder.model("network", {"y": Output(product, (2, 40))})
    changed = with_constants(model, {"factor_output_0": found["factor"]})
    assert np.array_equal(constants(changed)["factor_output_0"], found["factor"])
    session = onnxruntime.InferenceSession(onnx_ir.to_proto(changed).SerializeToString())
    x = rng.standard_normal((2, 24)).astype(np.float32)
    np.testing.assert_allclose(session.run(None, {"x": x})[0], x @ found["factor"], atol=1e-4)


@pytest.mark.skipif(not without_base(), reason="the extra zoo is installed")
def test_a_recogniser_names_the_package_it_needs() -> None:
    with pytest.raises(ValueError, match=r"^the recogniser needs the package rapidocr-onnxruntime: make zoo-extra$"):
        zoo.build("ppocr_70")


@pytest.mark.slow
@pytest.mark.skipif(without_base(), reason="needs the extra zoo")
@pytest.mark.parametrize("zeros", ZEROS)
def test_a_rebuilt_recogniser_runs_at_every_size_as_in_onnxruntime(zeros: int) -> None:
    model = zoo.build(f"ppocr_{zeros}")
    stored = unpacked(weights_path(zeros).read_bytes())
    own = constants(model)
    assert all(np.array_equal(own[name], one) for name, one in stored.items())
    checked(model)
    proto = onnx_ir.to_proto(model)
    theirs = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    ours = redpebble.session(proto.SerializeToString())
    rng = np.random.default_rng(0)
    for lines, width in ((1, 320), (3, 64), (7, 200)):
        x = rng.uniform(-1, 1, (lines, 3, 48, width)).astype(np.float32)
        wanted, found = theirs.run(None, {"x": x})[0], ours.run(None, {"x": x})[0]
        assert wanted.shape == (lines, width // 8, 6625)
        np.testing.assert_allclose(found, wanted, atol=1e-4)
