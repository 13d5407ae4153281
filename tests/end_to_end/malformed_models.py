"""Files that are no models, or models that something is wrong with: each writes one into a folder."""

from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Maker = Callable[[Path], Path]

WEIGHT: Final = np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3)


def model(operator: str = "MatMul", *, dtype: int = TensorProto.FLOAT, domain: str = "") -> onnx.ModelProto:
    """y = x w, or another operator of the same inputs; valid as it is."""
    value = helper.make_tensor_value_info("x", dtype, ["batch", 4])
    result = helper.make_tensor_value_info("y", dtype, ["batch", 3])
    weight = numpy_helper.from_array(WEIGHT.astype(helper.tensor_dtype_to_np_dtype(dtype)), "w")
    node = helper.make_node(operator, ["x", "w"], ["y"], "layer", domain=domain)
    graph = helper.make_graph([node], "g", [value], [result], [weight])
    opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid(domain, 1)] if domain else [])]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def written(folder: Path, content: bytes | onnx.ModelProto) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(content if isinstance(content, bytes) else content.SerializeToString())
    return path


def _cyclic() -> onnx.ModelProto:
    proto = model()
    proto.graph.node[0].output[0] = "h"
    proto.graph.node.append(helper.make_node("Add", ["h", "z"], ["y"], "first"))
    proto.graph.node.append(helper.make_node("Relu", ["y"], ["z"], "second"))
    return proto


def _contradictory() -> onnx.ModelProto:
    """The weight has fewer inputs than the activation has features."""
    proto = model()
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(WEIGHT[:3], "w"))
    return proto


def _short_weight() -> onnx.ModelProto:
    """The weight holds fewer bytes than its shape asks for."""
    proto = model()
    proto.graph.initializer[0].raw_data = proto.graph.initializer[0].raw_data[:-4]
    return proto


def external(location: str, length: int = WEIGHT.nbytes) -> onnx.ModelProto:
    proto = model()
    weight = proto.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, text in (("location", location), ("offset", "0"), ("length", str(length))):
        weight.external_data.add(key=key, value=text)
    return proto


def _leaving(folder: Path) -> Path:
    """The weights are there, but outside of the model's folder."""
    (folder / "weights.bin").write_bytes(WEIGHT.tobytes())
    inner = folder / "inner"
    inner.mkdir()
    return written(inner, external("../weights.bin"))


def _absolute(folder: Path) -> Path:
    outside = folder / "weights.bin"
    outside.write_bytes(WEIGHT.tobytes())
    inner = folder / "inner"
    inner.mkdir()
    return written(inner, external(str(outside)))


def _linked(folder: Path) -> Path:
    """The name lies in the model's folder, the file it leads to does not."""
    path = _leaving(folder)
    (path.parent / "link.bin").symlink_to(folder / "weights.bin")
    return written(path.parent, external("link.bin"))


def _cut_weights(folder: Path) -> Path:
    (folder / "weights.bin").write_bytes(WEIGHT.tobytes()[:-4])
    return written(folder, external("weights.bin"))


def _unknown_key() -> onnx.ModelProto:
    """A key that onnx warns of."""
    proto = external("nowhere.bin")
    proto.graph.initializer[0].external_data[0].key = "y"
    return proto


def _nameless() -> onnx.ModelProto:
    """Ports that onnx-ir logs of."""
    proto = model()
    proto.graph.input[0].name = ""
    proto.graph.output[0].name = ""
    return proto


INVALID: Final = MappingProxyType[str, Maker](
    {
        "truncated": lambda folder: written(folder, model().SerializeToString()[:-20]),
        "empty": lambda folder: written(folder, b""),
        "text": lambda folder: written(folder, b"this is no model, it is text\n"),
        "missing": lambda folder: folder / "model.onnx",
        "a folder": lambda folder: folder,
        "cyclic": lambda folder: written(folder, _cyclic()),
        "weight contradicts graph": lambda folder: written(folder, _contradictory()),
        "weight contradicts its shape": lambda folder: written(folder, _short_weight()),
        "missing weights": lambda folder: written(folder, external("nowhere.bin")),
        "weights cut short": _cut_weights,
        "weights outside": _leaving,
        "weights at an absolute path": _absolute,
        "weights behind a link": _linked,
        "weights with an unknown key": lambda folder: written(folder, _unknown_key()),
        "ports without names": lambda folder: written(folder, _nameless()),
    }
)
"""What nothing can be made of."""


def _overridable() -> onnx.ModelProto:
    proto = model()
    proto.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [4, 3]))
    return proto


UNSUPPORTED: Final = MappingProxyType[str, Maker](
    {
        "float64": lambda folder: written(folder, model(dtype=TensorProto.DOUBLE)),
        "unknown operator": lambda folder: written(folder, model("Frobnicate")),
        "foreign operator": lambda folder: written(folder, model("MatMulNBits", domain="com.microsoft")),
        "overridable weight": lambda folder: written(folder, _overridable()),
    }
)
"""What is valid, or may be, and has no native code; `optimize` leaves it as it is."""
