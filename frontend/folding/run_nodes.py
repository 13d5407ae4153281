"""Runs nodes that depend on constants alone: in one onnxruntime session, or node by node where that fails."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol, cast

import numpy as np
import onnx
import onnx_ir
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

SMALL = 1024
"""Bytes up to which a constant is part of the model that is run; larger ones are fed, without being copied."""

Arrays = Mapping[onnx_ir.Value, NDArray[np.generic]]


def evaluate(model: onnx_ir.Model, nodes: Sequence[onnx_ir.Node], wanted: Sequence[onnx_ir.Value]) -> Arrays:
    """Return the numbers of the values of `wanted`; those that nothing here can compute are missing."""
    # onnxruntime and the reference raise what they like
    try:
        return _run(_Part(model, nodes, wanted, {}), by_onnxruntime=True)
    except Exception:
        return _one_by_one(model, nodes, wanted)


def _one_by_one(model: onnx_ir.Model, nodes: Sequence[onnx_ir.Node], wanted: Sequence[onnx_ir.Value]) -> Arrays:
    known: dict[onnx_ir.Value, NDArray[np.generic]] = {}
    for node in nodes:
        if any(v is not None and v.const_value is None and v not in known for v in node.inputs):
            continue
        part = _Part(model, [node], [value for value in node.outputs if value.name], known)
        for by_onnxruntime in (True, False):
            try:
                known.update(_run(part, by_onnxruntime=by_onnxruntime))
                break
            except Exception:
                continue
    return {value: known[value] for value in wanted if value in known}


class _Part:
    """Some nodes of a model as a model of their own, whose large constants are inputs."""

    def __init__(
        self,
        model: onnx_ir.Model,
        nodes: Sequence[onnx_ir.Node],
        wanted: Sequence[onnx_ir.Value],
        known: Arrays,
    ) -> None:
        self.wanted = wanted
        self.feeds: dict[str, NDArray[np.generic]] = {}
        small: list[onnx.TensorProto] = []
        inputs: list[onnx.ValueInfoProto] = []
        for value in _leaves(nodes):
            name, tensor = value.name or "", value.const_value
            if value in known:
                tensor = onnx_ir.tensor(known[value], name=name)
            if tensor is None:
                raise ValueError(f"{name} is no constant")
            if tensor.nbytes <= SMALL or not _is_native(tensor.dtype):
                proto = onnx.TensorProto()
                onnx_ir.serde.serialize_tensor_into(proto, tensor)
                proto.name = name
                small.append(proto)
            else:
                self.feeds[name] = tensor.numpy()
                inputs.append(onnx.helper.make_tensor_value_info(name, int(tensor.dtype), tensor.shape.numpy()))
        outputs = [onnx.ValueInfoProto(name=value.name or "") for value in wanted]
        graph = onnx.helper.make_graph([onnx_ir.to_proto(node) for node in nodes], "part", inputs, outputs, small)
        opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in model.opset_imports.items()]
        self.model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=max(8, model.ir_version))


def _leaves(nodes: Sequence[onnx_ir.Node]) -> Iterable[onnx_ir.Value]:
    """Return what the nodes read and do not compute themselves."""
    computed = {value for node in nodes for value in node.outputs}
    return dict.fromkeys(v for node in nodes for v in node.inputs if v is not None and v not in computed)


def _is_native(dtype: onnx_ir.DataType) -> bool:
    """Return whether numpy has the element type, so that it can be fed."""
    return np.dtype(dtype.numpy()).isbuiltin == 1 and dtype != onnx_ir.DataType.STRING


class _Runner(Protocol):
    """Anything that runs a model."""

    def run(
        self, output_names: Sequence[str], feed: Mapping[str, NDArray[np.generic]], /
    ) -> Sequence[NDArray[np.generic] | list[object]]:
        """Return the outputs of these names."""
        ...


def _run(part: _Part, *, by_onnxruntime: bool) -> Arrays:
    names = [value.name or "" for value in part.wanted]
    if by_onnxruntime:
        # takes long to load, and once it is loaded a forked child hangs or aborts when its interpreter ends
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(part.model.SerializeToString(), options, ["CPUExecutionProvider"])
        results = cast("_Runner", session).run(names, part.feeds)
    else:
        results = cast("_Runner", ReferenceEvaluator(part.model)).run(names, part.feeds)
    pairs = zip(part.wanted, results, strict=True)
    return {value: array for value, array in pairs if isinstance(array, np.ndarray) and array.dtype.kind in "biuf"}
