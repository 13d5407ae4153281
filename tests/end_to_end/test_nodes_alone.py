"""Nodes of ours on codes, built from what a file holds of them: a cache may have lost what was made with the model."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import redpebble
from redpebble.driver.compiler import native_build
from redpebble.export.sparse_networks.node_content import network_model, written
from redpebble.export.sparse_networks.node_format import DOMAIN
from redpebble.options import Options
from tests.end_to_end import test_integer_ends as integer_ends
from tests.end_to_end import test_quantized as linear
from tests.end_to_end import test_quantized_convolutions as convolutions
from tests.end_to_end import test_quantized_transformers as transformers
from tests.support.quantized_models import (
    dynamically_quantized,
    pruned_network,
    quantized,
    quantized_images,
    statically_quantized,
)

SIZE = 128
"""Inputs and outputs of a layer that gains by itself."""

KINDS = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8}


def layer(kind: str, ends: Sequence[bool], *, bias: bool = False, per_channel: bool = False) -> onnx.ModelProto:
    """Return a product of codes; `ends` says whether they are the graph's input, and whether they are its output."""
    rng, zero = np.random.default_rng(1), {"uint8": 128, "int8": -3}[kind]
    weight = rng.integers(-127, 128, (SIZE, SIZE)) * (rng.random((SIZE, SIZE)) < 0.1)
    scale = np.full(SIZE, 0.01, np.float32) if per_channel else np.array(0.01, np.float32)
    arrays = {
        "s": np.array(0.05, np.float32),
        "z": np.array(zero, kind),
        "w": weight.astype(np.int8),
        "ws": scale,
        "wz": np.zeros(scale.shape, np.int8),
        "b": rng.standard_normal(SIZE).astype(np.float32),
    }
    rounding, floats = ["s", "z"], ["QuantizeLinear", "DequantizeLinear"]
    nodes = [] if ends[0] else [helper.make_node(floats[0], ["x", *rounding], ["q"])]
    nodes += [
        helper.make_node(floats[1], ["x" if ends[0] else "q", *rounding], ["d"]),
        helper.make_node(floats[1], ["w", "ws", "wz"], ["v"], axis=1),
        helper.make_node("MatMul", ["d", "v"], ["h"]),
        helper.make_node("Add", ["h", "b"], ["a"]) if bias else helper.make_node("Relu", ["h"], ["a"]),
        helper.make_node(floats[0], ["a", *rounding], ["y" if ends[1] else "r"]),
    ]
    nodes += [] if ends[1] else [helper.make_node(floats[1], ["r", *rounding], ["y"])]
    x, y = (
        helper.make_tensor_value_info(name, KINDS[kind] if is_codes else TensorProto.FLOAT, ["n", SIZE])
        for name, is_codes in zip("xy", ends, strict=True)
    )
    tensors = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "layer", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def count_of_nodes_alone(model: onnx.ModelProto) -> int:
    """Build native code for each node of ours from the node alone, and return how many there are."""
    nodes = [node for node in redpebble.optimize(model, target="ort").model.graph if node.domain == DOMAIN]
    for node in nodes:
        native_build(network_model(*written(node)), Options(is_node=True))
    return len(nodes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ends", [*product([False, True], repeat=2)], ids=str)
def test_a_layer_of_codes_is_built_from_its_node(kind: str, ends: tuple[bool, bool]) -> None:
    for form in (False, True):
        assert count_of_nodes_alone(layer(kind, ends, bias=form, per_channel=form)) == 1


@pytest.mark.parametrize("form", integer_ends.FORMS)
def test_layers_with_bytes_at_their_ends_are_built_from_their_nodes(form: str) -> None:
    assert count_of_nodes_alone(integer_ends.model_of(integer_ends.FORMS[form], "uint8")) == 1


@pytest.mark.slow
def test_what_the_quantizer_makes_of_layers_is_built_from_nodes(tmp_path: Path) -> None:
    network = pruned_network([40, 64, 48, 20], 0.15)
    for form, activations, weights, per_channel in linear.FORMS:
        model = quantized(network, tmp_path, form, activations, weights, per_channel=per_channel)
        assert count_of_nodes_alone(model) == 1
    for weights, per_channel in product(["QInt8", "QUInt8"], [False, True]):
        model = dynamically_quantized(network, tmp_path, weights, per_channel=per_channel)
        assert count_of_nodes_alone(model) == 1


@pytest.mark.slow
def test_what_the_quantizer_makes_of_convolutions_is_built_from_nodes(tmp_path: Path) -> None:
    model = convolutions.residual()
    for form, activations, per_channel in convolutions.STATIC:
        assert count_of_nodes_alone(quantized_images(model, tmp_path, form, activations, per_channel=per_channel))
    assert count_of_nodes_alone(dynamically_quantized(model, tmp_path, "QInt8"))


@pytest.mark.slow
@pytest.mark.parametrize("operators", transformers.CONFIGURATIONS)
def test_what_the_quantizer_makes_of_an_encoder_is_built_from_nodes(operators: str, tmp_path: Path) -> None:
    feeds, names = [transformers.inputs(2, 9)], transformers.CONFIGURATIONS[operators]
    for activations in ("QUInt8", "QInt8"):
        model = statically_quantized(
            transformers.encoder(), feeds, tmp_path, names, activations=activations, but=["mask"]
        )
        assert count_of_nodes_alone(model) == 1
