"""A session takes all that onnxruntime's InferenceSession takes, and hands it on."""

from pathlib import Path
from typing import Any

import onnx
import onnxruntime
import pytest

import redpebble
from tests.support.quantized_models import pruned_network

CPU = "CPUExecutionProvider"
MODELS = {
    "dense": lambda: pruned_network((64, 64, 64), 1.0).SerializeToString(),
    "sparse": lambda: pruned_network((256, 256, 256), 0.05).SerializeToString(),
}


@pytest.mark.parametrize("name", MODELS)
def test_options_of_providers_reach_onnxruntime(name: str) -> None:
    model = MODELS[name]()
    for session in (
        redpebble.session(model, None, [CPU], [{}]),
        redpebble.session(path_or_bytes=model, providers=[(CPU, {})], provider_options=None),
    ):
        assert session.get_providers() == [CPU]
    with pytest.raises(ValueError, match="should be the same length"):
        redpebble.session(model, None, [CPU], [{}, {}], enable_fallback=False)


@pytest.mark.parametrize("disabled", [[], ["GemmActivationFusion"]])
def test_disabled_optimizers_reach_onnxruntime(disabled: list[str], tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "loaded.onnx")
    options.log_severity_level = 3
    redpebble.session(MODELS["dense"](), options, disabled_optimizers=disabled)
    loaded = onnx.ModelProto.FromString((tmp_path / "loaded.onnx").read_bytes())
    assert ("Relu" in {node.op_type for node in loaded.graph.node}) == bool(disabled)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("threads", "set intra_op_num_threads of an onnxruntime.SessionOptions and give that as sess_options"),
        ("log_severity_level", "set log_severity_level of an onnxruntime.SessionOptions and give that as sess_options"),
        (
            "row",
            "expected rows and those of onnxruntime.InferenceSession: disabled_optimizers, enable_fallback, "
            "read_config_from_model",
        ),
    ],
)
def test_an_argument_that_no_session_has_is_refused_with_what_to_do(name: str, hint: str) -> None:
    wrong: dict[str, Any] = {name: 2}
    with pytest.raises(TypeError) as refused:
        redpebble.session(b"", **wrong)
    assert str(refused.value) == f"session has no argument {name!r}, {hint}"
