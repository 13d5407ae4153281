"""ONNX models as modules of torch: outputs are those of onnxruntime, and weights go back where they came from."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

torch: Any = pytest.importorskip("torch")

from redpebble.frontend.errors import UnsupportedModelError  # noqa: E402
from redpebble.models.exports.stored import random_feeds, stored_export, stored_names  # noqa: E402
from redpebble.pytorch.imported.module import OnnxModule  # noqa: E402
from tests.support.few_bits import FewBits  # noqa: E402
from tests.support.quantized_models import statically_quantized  # noqa: E402

Feeds = dict[str, NDArray[Any]]

DEFAULT = ("bert.classic", "deit.dynamo", "distilbert.dynamo", "llama.classic", "llama.genai", "resnet.dynamo")
"""Exports that the default suite runs; the slow one runs them all."""


def sizes_of(model: onnx.ModelProto) -> dict[str, int]:
    """A batch of two, and a past where the model allows one for several tokens."""
    names = {dim.dim_param for value in model.graph.input for dim in value.type.tensor_type.shape.dim} - {""}
    past = 0 if any(node.op_type == "GroupQueryAttention" for node in model.graph.node) else 7
    known = {"sequence": 7, "past": past, "total": 7 + past, "length": 9}
    return {name: known.get(name, 2) for name in names}


def judged(model: onnx.ModelProto, feeds: Feeds) -> list[Any]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def computed(module: OnnxModule, feeds: Feeds) -> list[Any]:
    with torch.no_grad():
        found = module(**{name: torch.from_numpy(value) for name, value in feeds.items()})
    return [one.numpy() for one in found.values()]


def assert_agrees(model: onnx.ModelProto, feeds: Feeds, tolerance: float = 1e-4) -> OnnxModule:
    module = OnnxModule(model)
    for ours, theirs in zip(computed(module, feeds), judged(model, feeds), strict=True):
        assert ours.shape == theirs.shape
        assert np.abs(ours - theirs).max(initial=0) <= tolerance * max(1e-30, np.abs(theirs).max(initial=0))
    return module


@pytest.mark.parametrize(
    "name",
    # gemma2 asks for a past that has the size of its window
    [
        one if one in DEFAULT else pytest.param(one, marks=pytest.mark.slow)
        for one in stored_names()
        if one != "gemma2.genai"
    ],
)
def test_a_stored_export_answers_in_torch_as_in_onnxruntime(name: str) -> None:
    model = stored_export(name, 0.5)
    feeds = random_feeds(model, sizes_of(model))
    if name.endswith(".genai"):
        # onnxruntime leaves tokens undefined that a mask hides
        feeds["attention_mask"][:] = 1
    # products on codes round what they multiply
    module = assert_agrees(model, feeds, 2e-2 if "int4" in name else 1e-4)
    assert len(module.layers)
    assert len(module.states)


def test_weights_go_back_and_all_else_stays() -> None:
    model = stored_export("bert.classic", 0.5)
    module = OnnxModule(model)
    with torch.no_grad():
        for one in module.parameters():
            one.mul_(1.5)
    written = onnx.ModelProto.FromString(_bytes(module))
    assert [one.name for one in written.graph.initializer] == [one.name for one in model.graph.initializer]
    assert [one.op_type for one in written.graph.node] == [one.op_type for one in model.graph.node]
    feeds = random_feeds(model, {"batch": 2, "sequence": 5})
    for ours, theirs in zip(computed(module, feeds), judged(written, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
    before, after = ({one.name: numpy_helper.to_array(one) for one in m.graph.initializer} for m in (model, written))
    scaled = {name for name, value in after.items() if not np.array_equal(value, before[name])}
    assert sum(value.ndim == 2 for name, value in after.items() if name in scaled) == 12
    # tables of embeddings stay
    assert not any("embeddings.weight" in name for name in scaled)
    for name in scaled:
        np.testing.assert_allclose(after[name], before[name] * np.float32(1.5))


def test_zeros_of_a_file_are_masked() -> None:
    module = OnnxModule(stored_export("bert.classic", 0.7))
    layer = next(iter(module.layers.values()))
    zeros = layer.weight.detach() == 0
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    feeds = random_feeds(stored_export("bert.classic"), {"batch": 2, "sequence": 5})
    (output, *_) = module(**{name: torch.from_numpy(value) for name, value in feeds.items()}).values()
    output.sum().backward()
    optimizer.step()
    assert torch.equal(layer.weight.detach() == 0, zeros)


def test_packed_codes_of_four_bits_keep_scales_and_zeros() -> None:
    case = FewBits(96, 40, size=32, has_zeros=True)
    model = case.model
    module = OnnxModule(model)
    x = np.random.default_rng(0).standard_normal((5, 96), dtype=np.float32)
    np.testing.assert_allclose(computed(module, {"x": x})[0], case.truth(x), atol=1e-4)
    assert _bytes(module) == _bytes(OnnxModule(model))
    (layer,) = module.layers.values()
    pruned = layer.weight.detach() == 0
    with torch.no_grad():
        layer.weight.add_(layer.scale * ~pruned)
    written = onnx.ModelProto.FromString(_bytes(module))
    again = OnnxModule(written)
    assert torch.equal(next(iter(again.layers.values())).weight.detach()[pruned], torch.zeros(int(pruned.sum())))
    changed = [
        a.name
        for a, b in zip(model.graph.initializer, written.graph.initializer, strict=True)
        if a.raw_data != b.raw_data
    ]
    assert len(changed) == 1


def test_quantized_products_are_trained_through_their_rounding(tmp_path: Path) -> None:
    dense = stored_export("bert.classic", 0.6)
    feeds = random_feeds(dense, {"batch": 4, "sequence": 9})
    for index, node in enumerate(dense.graph.node):
        node.name = node.name or f"node_{index}"
    model = statically_quantized(dense, [feeds], tmp_path, ["MatMul"])
    module = OnnxModule(model)
    (ours, *_), (theirs, *_) = computed(module, feeds), judged(model, feeds)
    # a value between two codes may be either, and kernels without VNNI round sums of products
    assert np.abs(ours - theirs).mean() < 0.03 * theirs.std()
    (layer, *_) = module.layers.values()
    assert layer.weight.detach().unique().numel() < 256 * len(layer.weight)
    (output, *_) = module(**{name: torch.from_numpy(value) for name, value in feeds.items()}).values()
    output.square().sum().backward()
    assert layer.weight.grad.abs().sum() > 0
    # without a step the codes are those of the file
    assert (
        onnx.ModelProto.FromString(_bytes(module)).graph.initializer[0].raw_data == model.graph.initializer[0].raw_data
    )


def test_half_floats_stay_half_floats() -> None:
    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.standard_normal((80, 60)).astype(np.float16), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT16, ["n", s]) for n, s in (("x", 80), ("y", 60))]
    model = helper.make_model(
        helper.make_graph(nodes, "g", values[:1], values[1:], [weight]), opset_imports=[helper.make_opsetid("", 17)]
    )
    written = onnx.ModelProto.FromString(_bytes(OnnxModule(model)))
    assert written.graph.initializer[0].data_type == TensorProto.FLOAT16
    assert numpy_helper.to_array(written.graph.initializer[0]).tobytes() == numpy_helper.to_array(weight).tobytes()


def test_a_weight_that_an_embedding_shares_stays() -> None:
    table = numpy_helper.from_array(np.random.default_rng(0).standard_normal((90, 60)).astype(np.float32), "table")
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["x"]),
        helper.make_node("Transpose", ["table"], ["turned"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "turned"], ["logits"]),
    ]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["n", "t"])
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", "t", 90])
    model = helper.make_model(
        helper.make_graph(nodes, "g", [ids], [logits], [table]), opset_imports=[helper.make_opsetid("", 17)]
    )
    module = assert_agrees(model, {"ids": np.array([[1, 5, 2], [0, 89, 7]])})
    assert not module.layers


def test_an_operator_that_is_not_covered_is_named() -> None:
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])
    node = helper.make_node("Det", ["x"], ["y"], name="odd")
    graph = helper.make_graph([node], "g", [value], [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    with pytest.raises(UnsupportedModelError, match="node 'odd': operator Det cannot be trained through: expected one"):
        OnnxModule(model)


def _bytes(module: OnnxModule) -> bytes:
    from redpebble.export.save_model import model_bytes

    found = model_bytes(module.updated())
    assert found is not None
    return found


def test_an_updated_file_has_no_denormals() -> None:
    """onnxruntime takes twice as long for a whole network of which one weight in a hundred is one."""
    module = OnnxModule(stored_export("bert.classic", 0.6))
    with torch.no_grad():
        for layer in module.layers.values():
            layer.weight[:, ::7] *= 1e-38
    for one in module.updated().graph.initializers.values():
        assert one.const_value is not None
        array = abs(one.const_value.numpy())
        if array.dtype == np.float32:
            assert not ((array > 0) & (array < np.finfo(np.float32).tiny)).any()
