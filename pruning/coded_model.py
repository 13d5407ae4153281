"""A pruned model whose products are MatMulNBits: weights are codes of four bits, and zeros the code of the zero.

Any onnxruntime computes it, and `redpebble.session` reads the codes that are not zeros.
"""

from collections.abc import Mapping
from typing import Final

import numpy as np
import onnx_ir
from numpy.typing import NDArray

from ..dialect.attributes.few_bits import ROUNDED_INPUTS
from .layers import SMALL
from .solving.few_bits import LEAST, Coded, Grid

BITS: Final = 4

DOMAIN: Final = "com.microsoft"


def with_codes(model: onnx_ir.Model, layers: Mapping[str, Coded], grid: Grid) -> onnx_ir.Model:
    """Return the model, changed, whose products read codes: those of `layers` by the names of their weights.

    Weights of other products are rounded to the nearest codes; those that anything else reads stay as well.
    """
    graph = model.graph
    for node in list(graph):
        weight = _weight(node)
        if weight is None:
            continue
        found = layers.get(weight.name or "") or Coded(*grid.nearest(_array(weight)))
        _replace(graph, node, weight, found, grid)
    model.opset_imports[DOMAIN] = model.opset_imports.get(DOMAIN, 1)
    return model


def _weight(node: onnx_ir.Node) -> onnx_ir.Value | None:
    """Return the constant weight [inputs, outputs] of a product that MatMulNBits may compute."""
    if node.op_type != "MatMul" or node.domain not in ("", "ai.onnx"):
        return None
    weight = node.inputs[1]
    if weight is None or not weight.is_initializer() or weight.const_value is None or weight.is_graph_input():
        return None
    shape = weight.const_value.shape
    is_float = weight.const_value.dtype == onnx_ir.DataType.FLOAT
    return weight if is_float and len(shape) == 2 and weight.const_value.size > SMALL else None


def _array(weight: onnx_ir.Value) -> NDArray[np.float32]:
    assert weight.const_value is not None
    return weight.const_value.numpy()


def _replace(graph: onnx_ir.Graph, node: onnx_ir.Node, weight: onnx_ir.Value, layer: Coded, grid: Grid) -> None:
    inputs, outputs = layer.weight.shape
    name = weight.name or ""
    values = {f"{name}_Q4": packed(layer, grid), f"{name}_scales": np.ascontiguousarray(layer.scales.T)}
    for own, array in values.items():
        if own not in graph.initializers:
            graph.initializers.add(onnx_ir.Value(name=own, const_value=onnx_ir.tensor(array, name=own)))
    constants = [graph.initializers[own] for own in values]
    sizes = {"K": inputs, "N": outputs, "bits": BITS, "block_size": grid.group, "accuracy_level": ROUNDED_INPUTS}
    made = onnx_ir.node("MatMulNBits", [node.inputs[0], *constants], sizes, domain=DOMAIN, name=node.name)
    output = node.outputs[0]
    made.outputs[0].shape, made.outputs[0].type = output.shape, output.type
    onnx_ir.convenience.replace_nodes_and_values(graph, node, [node], [made], [output], made.outputs)
    if not weight.uses():
        graph.initializers.pop(name)


def packed(layer: Coded, grid: Grid) -> NDArray[np.uint8]:
    """Return the codes [outputs, groups, bytes], two in a byte, the first one in its lower half."""
    wide = layer.scales.repeat(grid.group, axis=0)[: len(layer.weight)]
    codes = (grid.steps(layer.weight, wide) - LEAST).astype(np.uint8)
    padded = np.pad(codes, ((0, -len(codes) % grid.group), (0, 0)), constant_values=-LEAST).T
    pairs = padded.reshape(padded.shape[0], -1, grid.group // 2, 2)
    return pairs[..., 0] | pairs[..., 1] << np.uint8(4)
