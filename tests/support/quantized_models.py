"""Pruned networks of linear layers, and what onnxruntime's own quantizer makes of them."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

Form = Literal["qdq", "operator"]


def pruned_network(sizes: Sequence[int], density: float, activation: str = "Relu") -> onnx.ModelProto:
    """Return layers between `sizes` neurons, x [batch, sizes[0]] to y."""
    rng = np.random.default_rng(len(sizes))
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    value, last = "x", len(sizes) - 2
    for index, (inputs, outputs) in enumerate(pairwise(sizes)):
        weight = rng.standard_normal((inputs, outputs)) * (rng.random((inputs, outputs)) < density)
        bias = rng.standard_normal(outputs) / 10
        arrays = {f"w{index}": weight / np.sqrt(inputs * density), f"b{index}": bias}
        weights += [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()]
        layer = "y" if index == last else f"h{index}"
        nodes.append(helper.make_node("Gemm", [value, *arrays], [layer], name=f"fc{index}"))
        if index < last:
            nodes.append(helper.make_node(activation, [layer], [f"a{index}"], name=f"act{index}"))
        value = f"a{index}"
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])
        for name, size in (("x", sizes[0]), ("y", sizes[-1]))
    )
    graph = helper.make_graph(nodes, "pruned", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def with_dense_end() -> onnx.ModelProto:
    """Return two sparse layers and a dense one."""
    network = pruned_network([128, 128, 128, 64], 0.1)
    last = next(one for one in network.graph.initializer if one.name == "w2")
    weight = np.random.default_rng(0).standard_normal((128, 64)).astype(np.float32) / 10
    last.CopyFrom(numpy_helper.from_array(weight, "w2"))
    return network


Feed = Mapping[str, NDArray[np.generic]]


class _Calibration(CalibrationDataReader):
    def __init__(self, feeds: Iterable[Feed]) -> None:
        self._feeds = iter(feeds)

    def get_next(self) -> Feed | None:
        return next(self._feeds, None)


def quantized(
    model: onnx.ModelProto, folder: Path, form: Form, activations: str, weights: str, *, per_channel: bool = False
) -> onnx.ModelProto:
    """Return the model quantized statically: types are `QUInt8` or `QInt8`."""
    path, target = folder / "float.onnx", folder / "quantized.onnx"
    path.write_bytes(model.SerializeToString())
    features = model.graph.input[0].type.tensor_type.shape.dim[1].dim_value
    quantize_static(
        path,
        target,
        _Calibration(
            {"x": np.random.default_rng(seed).standard_normal((16, features), dtype=np.float32)} for seed in range(3)
        ),
        quant_format=QuantFormat.QDQ if form == "qdq" else QuantFormat.QOperator,
        activation_type=QuantType[activations],
        weight_type=QuantType[weights],
        per_channel=per_channel,
    )
    return onnx.load_from_string(target.read_bytes())


def quantized_images(
    model: onnx.ModelProto, folder: Path, form: Form, activations: str, *, per_channel: bool = False
) -> onnx.ModelProto:
    """Return a model on images x quantized statically, with signed weights."""
    path, target = folder / "float.onnx", folder / "quantized.onnx"
    path.write_bytes(model.SerializeToString())
    shape = [dim.dim_value or 2 for dim in model.graph.input[0].type.tensor_type.shape.dim]
    quantize_static(
        path,
        target,
        _Calibration({"x": np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)} for seed in range(3)),
        quant_format=QuantFormat.QDQ if form == "qdq" else QuantFormat.QOperator,
        activation_type=QuantType[activations],
        weight_type=QuantType.QInt8,
        per_channel=per_channel,
    )
    return onnx.load_from_string(target.read_bytes())


def dynamically_quantized(
    model: onnx.ModelProto,
    folder: Path,
    weights: str,
    *,
    per_channel: bool = False,
    operators: list[str] | None = None,
) -> onnx.ModelProto:
    """Return the model with weights of the type, and codes of activations that each call finds; None: all operators."""
    path, target = folder / "float.onnx", folder / "quantized.onnx"
    path.write_bytes(model.SerializeToString())
    quantize_dynamic(
        path, target, weight_type=QuantType[weights], per_channel=per_channel, op_types_to_quantize=operators
    )
    return onnx.load_from_string(target.read_bytes())


def statically_quantized(
    model: onnx.ModelProto,
    feeds: Iterable[Feed],
    folder: Path,
    operators: list[str] | None,
    *,
    activations: str = "QUInt8",
    per_channel: bool = True,
    but: Sequence[str] = (),
    options: Mapping[str, bool] | None = None,
    form: Form = "qdq",
) -> onnx.ModelProto:
    """Return the model with signed weights: None stands for all operators, `but` are names of nodes that stay."""
    path, target = folder / "float.onnx", folder / "quantized.onnx"
    path.write_bytes(model.SerializeToString())
    quantize_static(
        path,
        target,
        _Calibration(feeds),
        quant_format=QuantFormat.QDQ if form == "qdq" else QuantFormat.QOperator,
        activation_type=QuantType[activations],
        weight_type=QuantType.QInt8,
        per_channel=per_channel,
        op_types_to_quantize=operators,
        nodes_to_exclude=list(but),
        extra_options=dict(options or {}),
    )
    return onnx.load_from_string(target.read_bytes())
