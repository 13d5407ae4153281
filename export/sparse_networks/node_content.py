"""The network that a node of ours holds, as a model that can be compiled."""

import base64
import zlib
from typing import Final

import onnx
import onnx_ir
from google.protobuf.message import DecodeError

from .node_format import Attributes, Constants

MOST_BYTES: Final = 1 << 28
"""Bytes of a node's network, which holds no weights."""


def network_model(op_type: str, attributes: Attributes, constants: Constants) -> onnx.ModelProto:
    """Return the computation of a node as a model; `constants` are its inputs behind the activations.

    Raises:
        ValueError: the node is not one that this version wrote, or was changed since.
    """
    text = str(attributes.get("network", ""))
    try:
        unpacking = zlib.decompressobj()
        content = unpacking.decompress(base64.b64decode(text, validate=True), MOST_BYTES)
        if not unpacking.eof:
            raise ValueError(f"cut short, or more than {MOST_BYTES} bytes")
        model = onnx.ModelProto.FromString(content)
    except (ValueError, zlib.error, DecodeError) as error:
        raise ValueError(f"{op_type}: the network is damaged") from error
    count = int(attributes.get("activations", 0))
    names = [value.name for value in model.graph.input[count:]]
    if len(names) != len(constants):
        raise ValueError(f"{op_type}: {len(constants)} constants, the network has {len(names)}")
    del model.graph.input[count:]
    for name, array in zip(names, constants, strict=True):
        if array is not None:
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, name))
    return model


def written(node: onnx_ir.Node) -> tuple[str, Attributes, Constants]:
    """Return type, attributes and constants of a node as our library gives them to `compile_network`."""
    attributes: dict[str, str | int] = {}
    for name, attribute in node.attributes.items():
        is_text = attribute.type == onnx_ir.AttributeType.STRING
        attributes[name] = attribute.as_string() if is_text else attribute.as_int()
    values = node.inputs[int(attributes.get("activations", 0)) :]
    tensors = [None if value is None else value.const_value for value in values]
    return node.op_type, attributes, [None if tensor is None else tensor.numpy() for tensor in tensors]
