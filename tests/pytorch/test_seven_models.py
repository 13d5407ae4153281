"""The models that `redpebble distil` has to take, by name: a few steps bring each closer to its teacher."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx_ir
import onnxruntime
import pytest
from numpy.typing import NDArray

torch: Any = pytest.importorskip("torch")

from redpebble import pytorch  # noqa: E402
from redpebble.frontend.reading.model_source import read_model  # noqa: E402
from redpebble.models.exports.stored import random_feeds, stored_export  # noqa: E402
from redpebble.models.recognizer import base_path  # noqa: E402
from redpebble.models.smollm2 import weights_path, write_genai  # noqa: E402
from redpebble.pytorch.distil_models import Length, distil_model  # noqa: E402
from redpebble.pytorch.imported.module import OnnxModule  # noqa: E402

Feeds = dict[str, NDArray[Any]]

SAMPLES = 10


class Case(NamedTuple):
    model: onnx_ir.Model
    feeds: Feeds
    metric: str = "quality"
    rate: float = 3e-4


def stored(name: str, rate: float = 3e-4) -> Callable[[Path], Case]:
    """Return the case of a stored export, whose weights are random."""

    def made(folder: Path) -> Case:
        del folder
        model = stored_export(name, 0.0)
        sizes = {"batch": SAMPLES, "sequence": 7}
        names = {dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim} - {""}
        feeds: Any = random_feeds(model, {one: sizes.get(one, SAMPLES) for one in names})
        return Case(read_model(model), feeds, rate=rate)

    return made


def recognizer(folder: Path) -> Case:
    del folder
    try:
        path = base_path()
    except ValueError as error:
        pytest.skip(str(error))
    images = np.random.default_rng(0).standard_normal((SAMPLES, 3, 48, 64), dtype=np.float32)
    return Case(read_model(path), {"x": images}, "cer")


def smollm2(folder: Path) -> Case:
    try:
        weights_path()
    except ValueError as error:
        pytest.skip(str(error))
    pytest.importorskip("onnxruntime_genai")
    write_genai(folder, "fp32", 2)
    ids = np.random.default_rng(0).integers(0, 4000, (SAMPLES, 6))
    feeds = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    return Case(read_model(folder / "model.onnx"), feeds, "perplexity")


MODELS: Mapping[str, Callable[[Path], Case]] = {
    "minilm": stored("minilm_size.classic"),
    "distilbert": stored("distilbert_base.dynamo"),
    "vit": stored("deit_tiny.dynamo"),
    "resnet18": stored("resnet_18.dynamo", 1e-5),
    "mobilenet": stored("mobilenet_v2.dynamo"),
    "recognizer": recognizer,
    "smollm2": smollm2,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_many_users_learns_what_its_zeros_lost(name: str, tmp_path: Path) -> None:
    dense, feeds, metric, rate = MODELS[name](tmp_path)
    student = OnnxModule(dense)
    pytorch.prune(student, sparsity=0.5)
    sparse = student.updated()
    length = Length(steps=8)
    result = distil_model(sparse, dense, feeds, metric=metric, length=length, batch=4, rate=rate, progress=False)
    points = result.report.history.points
    assert points[-1].loss < points[0].loss
    assert result.report.difference < 1e-3
    # what is written is the sparse file with other weights, and onnxruntime takes it
    result.save(tmp_path / "good.onnx")
    written = OnnxModule(tmp_path / "good.onnx")
    for key, layer in student.layers.items():
        assert bool((written.layers[key].weight[layer.weight == 0] == 0).all())
    session = onnxruntime.InferenceSession(tmp_path / "good.onnx", providers=["CPUExecutionProvider"])
    assert [one.name for one in session.get_outputs()] == [one.name for one in sparse.graph.outputs]
