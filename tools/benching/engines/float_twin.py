"""A quantized model with floats in its layers: what its speed is compared with beside that of its integers."""

import os
from pathlib import Path
from typing import Final

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from ....verification.oracle import session_options
from ..errors import NotCoveredError

ROUNDING: Final = ("QuantizeLinear", "DequantizeLinear")

ON_CODES: Final = frozenset(
    {
        "ConvInteger",
        "DynamicQuantizeMatMul",
        "MatMulInteger",
        "MatMulIntegerToFloat",
        "QGemm",
        "QLinearConv",
        "QLinearMatMul",
    }
)
"""Layers that compute with codes themselves."""


def without_rounding(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model in which no values are rounded: QuantizeLinear with DequantizeLinear behind it is the identity.

    Where the least code stands for 0 it is Relu, which quantizers drop there.
    """
    twin = onnx.ModelProto()
    twin.CopyFrom(model)
    nodes = twin.graph.node
    rounded = {node.output[0]: node for node in nodes if node.op_type == ROUNDING[0]}
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in twin.graph.initializer}
    for node in nodes:
        if node.op_type == ROUNDING[1] and node.input[0] in rounded:
            before = rounded[node.input[0]]
            zero = constants.get(before.input[2]) if len(before.input) > 2 else np.array(0, np.uint8)
            least = zero is not None and zero.dtype.kind in "iu" and bool(np.all(zero == np.iinfo(zero.dtype).min))
            operator = "Relu" if least else "Identity"
            node.CopyFrom(onnx.helper.make_node(operator, [before.input[0]], [node.output[0]], name=node.name))
    read = {name for node in nodes for name in node.input} | {value.name for value in twin.graph.output}
    kept = [node for node in nodes if node.op_type != ROUNDING[0] or node.output[0] in read]
    del nodes[:]
    nodes.extend(kept)
    return twin


def check_layers(path: str | os.PathLike[str]) -> None:
    """Check that floats are known for all layers of a model.

    Raises:
        NotCoveredError: one computes with codes itself.
    """
    model = onnx.load_from_string(Path(path).read_bytes())
    found = sorted({node.op_type for node in model.graph.node} & ON_CODES)
    if found:
        raise NotCoveredError(
            f"operator {found[0]} computes with codes, accepted are layers between DequantizeLinear and QuantizeLinear"
        )


def float_session(path: str | os.PathLike[str], threads: int) -> onnxruntime.InferenceSession:
    """Return onnxruntime's session of such a model, whose weights are floats, too."""
    options = session_options(threads)
    # it dequantizes constants when it loads a model only if it looks for no layers of integers
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    twin = without_rounding(onnx.load_from_string(Path(path).read_bytes()))
    return onnxruntime.InferenceSession(twin.SerializeToString(), options, providers=["CPUExecutionProvider"])
