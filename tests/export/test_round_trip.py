import numpy as np
import onnx
import onnx_ir as ir
import pytest

from redpebble.export.export_model import export_model
from redpebble.frontend.import_model import import_model
from redpebble.options import Options
from redpebble.pipeline import run_stages
from tests.export.export_oracle import answers, checked
from tests.export.round_trip_models import FOREIGN, PLAIN, Example

by_name = pytest.mark.parametrize("example", [*PLAIN, *FOREIGN], ids=lambda example: example.name)


def round_trip(original: onnx.ModelProto, *, optimize: bool) -> onnx.ModelProto:
    imported = import_model(original, foreign="keep")
    if optimize:
        run_stages(imported.module, Options("optimize"), until="choose")
    return checked(export_model(imported.module, imported.model))


def rewritten(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return what onnx-ir alone makes of a model: it states the type of every weight, and sorts attributes."""
    return ir.to_proto(ir.from_proto(proto))


def interface(proto: onnx.ModelProto) -> list[object]:
    filled = {entry.name for entry in proto.graph.initializer} if proto.ir_version < 4 else set[str]()
    inputs = [entry for entry in proto.graph.input if entry.name not in filled]
    parts = (inputs, proto.graph.output, proto.metadata_props, proto.opset_import, proto.functions)
    return [proto.ir_version, proto.graph.name, proto.doc_string, *(list(part) for part in parts)]


@pytest.mark.parametrize("density", [0.4, 0.05])
@pytest.mark.parametrize("optimize", [False, True], ids=["unchanged", "optimized"])
@by_name
def test_a_model_that_went_in_comes_out_and_computes_the_same(example: Example, optimize: bool, density: float) -> None:
    original = example.proto(density=density)
    proto = round_trip(original, optimize=optimize)
    assert interface(proto) == interface(rewritten(original))
    for result, expected in zip(answers(proto, example.feeds()), answers(original, example.feeds()), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("optimize", [False, True], ids=["unchanged", "optimized"])
@by_name
def test_a_model_does_not_grow(example: Example, optimize: bool) -> None:
    original = example.proto()
    proto = round_trip(original, optimize=optimize)
    assert len(proto.graph.node) <= len(original.graph.node)
    assert proto.ByteSize() <= 1.03 * rewritten(original).ByteSize() + 64


def test_a_pruned_model_shrinks_and_keeps_its_names() -> None:
    original = PLAIN[0].proto(density=0.05)
    proto = round_trip(original, optimize=True)
    assert proto.ByteSize() < original.ByteSize() / 2
    assert [node.name for node in proto.graph.node] == [node.name for node in original.graph.node]
    assert {entry.name for entry in proto.graph.initializer} <= {entry.name for entry in original.graph.initializer}
    hidden = {info.name: info for info in proto.graph.value_info}["b"]
    (weight,) = [entry for entry in proto.graph.initializer if entry.name == "W1"]
    assert hidden.type.tensor_type.shape.dim[0].dim_param == "batch"
    assert hidden.type.tensor_type.shape.dim[1].dim_value == weight.dims[0] < 32


@by_name
def test_names_of_nodes_values_and_weights_come_back(example: Example) -> None:
    original, proto = example.proto(), round_trip(example.proto(), optimize=False)
    assert {node.name for node in proto.graph.node} <= {node.name for node in original.graph.node}
    known = {name for node in original.graph.node for name in (*node.input, *node.output)}
    assert {name for node in proto.graph.node for name in node.output} <= known
