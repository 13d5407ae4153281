from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from redpebble.models import zoo
from redpebble.verification.feeds import inputs_for
from tests.models.zoo_oracle import checked, density, run, serialized, weights

DENSITIES = {
    "ffnn": 0.1,
    "ffnn(depth=3, width=64, density=0.5, skip=True)": 0.5,
    "bert_ffn": 0.1,
    "bert_layer(density=0.05)": 0.05,
    "resmlp(depth=3, width=96, density=0.2)": 0.2,
    "every_activation": 0.25,
    "structured(width=256)": 0.5,
    "structured(pattern='1:4', width=256, shuffled=True)": 0.25,
    "structured(pattern='block16x1', width=256, density=0.2)": 0.2,
    "compact": 0.1,
    "digits": 0.05,
}
"""Spec -> density of its pruned weights; dense heads are left out by name."""

MODELS = [*DENSITIES, "masked_mlp(width=128)", "radixnet(layers=7)"]


@pytest.mark.parametrize("spec", MODELS)
def test_every_model_passes_the_checker_and_gives_finite_numbers(spec: str) -> None:
    model = zoo.build(spec)
    checked(model)
    outputs = run(model, inputs_for(model, 7, np.random.default_rng(1)))
    assert len(outputs) == len(model.graph.outputs)
    for output, value in zip(outputs, model.graph.outputs, strict=True):
        assert value.shape is not None
        assert output.shape == (7, value.shape[1])
        assert np.isfinite(output).all()


@pytest.mark.parametrize("spec", MODELS)
def test_every_model_says_its_versions_and_batch(spec: str) -> None:
    model = zoo.build(spec)
    assert (model.ir_version, model.opset_imports[""]) == (10, 21)
    for value in (*model.graph.inputs, *model.graph.outputs):
        assert value.shape is not None
        assert value.shape[0] == ir.SymbolicDim("batch")


@pytest.mark.parametrize("spec", DENSITIES)
def test_weights_have_the_promised_density(spec: str) -> None:
    for name, weight in weights(zoo.build(spec)).items():
        if "head" not in name:
            deviation = 5 * (0.25 / weight.size) ** 0.5
            assert density(weight) == pytest.approx(DENSITIES[spec], abs=deviation), name


@pytest.mark.parametrize("spec", [spec for spec in MODELS if "bert" not in spec])
def test_the_same_seed_gives_the_same_bytes(spec: str) -> None:
    assert serialized(zoo.build(spec, seed=3)) == serialized(zoo.build(spec, seed=3))


@pytest.mark.parametrize("spec", ["ffnn(width=32)", "masked_mlp", "radixnet(layers=7)", "structured(width=32)"])
def test_another_seed_gives_other_weights(spec: str) -> None:
    assert serialized(zoo.build(spec, seed=3)) != serialized(zoo.build(spec, seed=4))


def test_prune_masks_are_still_attached_and_hide_dense_weights() -> None:
    model = zoo.build("masked_mlp")
    stored = weights(model)
    originals = [density(array) for name, array in stored.items() if name.endswith("weight_orig")]
    masks = [density(array) for name, array in stored.items() if name.endswith("weight_mask")]
    assert originals == [1.0] * 3
    assert masks == pytest.approx([0.1] * 3, abs=0.01)
    assert sum(node.op_type == "Mul" for node in model.graph) == 3


def test_every_activation_of_the_zoo_changes_the_output() -> None:
    """A step whose output were constant would hide every error before it."""
    model = zoo.build("every_activation")
    (y,) = run(model, inputs_for(model, 64, np.random.default_rng(0)))
    assert (y.std(axis=0) > 1e-3).all()


@pytest.mark.parametrize("external_data", [False, True])
def test_a_saved_model_is_whole_and_leaves_nothing_else(tmp_path: Path, external_data: bool) -> None:
    model = zoo.build("ffnn(depth=2, width=64)")
    path = tmp_path / "m.onnx"
    path.write_bytes(b"an older file")
    zoo.save(model, path, external_data=external_data)
    names = sorted(file.name for file in tmp_path.iterdir())
    assert names == (["m.onnx", "m.onnx.data"] if external_data else ["m.onnx"])
    onnx.checker.check_model(str(path), full_check=True)  # pyright: ignore[reportUnknownMemberType]
    x = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    (saved,) = onnxruntime.InferenceSession(str(path)).run(None, {"x": x})
    assert np.array_equal(np.asarray(saved), run(model, {"x": x})[0])
