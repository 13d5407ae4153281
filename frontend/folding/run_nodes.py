"""Runs nodes that depend on constants alone: in one onnxruntime session, or node by node where that fails."""

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Final, NamedTuple, Protocol, cast

import numpy as np
import onnx
import onnx_ir
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from ..limits import allowance
from .inferred_values import inferred

SMALL = 1024
"""Bytes up to which a constant is part of the model that is run; larger ones are fed, without being copied."""

MOST_STEPS: Final = 1 << 38
"""Products of folding in all: some ten seconds."""

NUMBER_BYTES: Final = 8

FROM_DATA: Final = frozenset({"Compress", "NonMaxSuppression", "NonZero", "Unique"})
"""Operators that say the size of what they yield by what they read, and yield no more than a few numbers for each."""

FROM_DATA_RANK: Final = 8

PRODUCTS: Final = frozenset({"FusedGemm", "FusedMatMul", "Gemm", "MatMul", "MatMulInteger", "QLinearMatMul"})
"""Operators that take a step for each number that they yield and each row or column of what they read."""

SLOW: Final = frozenset(
    {"AveragePool", "Conv", "ConvInteger", "ConvTranspose", "DeformConv", "DFT", "Det", "GRU", "LRN", "LSTM"}
    | {"LpPool", "MaxPool", "NonMaxSuppression", "QLinearConv", "RNN", "STFT"}
)
"""Operators that may take a step for each number that they yield and each one that they read."""

SHAPE_KEEPING: Final = frozenset(
    ("com.microsoft", name)
    for name in ("BiasGelu", "DequantizeLinear", "FastGelu", "Gelu", "QuantizeLinear", "QuickGelu")
)
"""Operators that ONNX does not know, whose result has the shape of their first input."""

Arrays = Mapping[onnx_ir.Value, NDArray[np.generic]]


def evaluate(model: onnx_ir.Model, nodes: Sequence[onnx_ir.Node], wanted: Sequence[onnx_ir.Value]) -> Arrays:
    """Return the numbers of the values of `wanted`; those that nothing here can compute are missing.

    So are those that would take more memory, or more time, than the constants they are made of allow.
    """
    leaves = [value.const_value for value in _leaves(nodes) if value.const_value is not None]
    budget = _Budget(allowance(sum(tensor.nbytes for tensor in leaves)))
    # onnxruntime and the reference raise what they like
    try:
        part = _Part(model, nodes, wanted, {})
        if budget.after(part) is not None:
            return _run(part, by_onnxruntime=True)
    except Exception:
        pass
    return _one_by_one(model, nodes, wanted, budget)


def _one_by_one(
    model: onnx_ir.Model, nodes: Sequence[onnx_ir.Node], wanted: Sequence[onnx_ir.Value], budget: "_Budget"
) -> Arrays:
    known: dict[onnx_ir.Value, NDArray[np.generic]] = {}
    for node in nodes:
        if any(v is not None and v.const_value is None and v not in known for v in node.inputs):
            continue
        part = _Part(model, [node], [value for value in node.outputs if value.name], known)
        left = budget.after(part)
        if left is None:
            continue
        budget = left
        for by_onnxruntime in (True, False):
            try:
                known.update(_run(part, by_onnxruntime=by_onnxruntime))
                break
            except Exception:
                continue
    return {value: known[value] for value in wanted if value in known}


class _Budget(NamedTuple):
    """Budget that is left: bytes, and steps of operators that take more than one for each number."""

    byte_count: int
    steps: int = MOST_STEPS

    def after(self, part: "_Part") -> "_Budget | None":
        """Return what is left once a part was run, None where it would be too much, or nothing says how much."""
        shapes = part.shapes()
        byte_count, steps = self
        for node in part.nodes:
            made = [value.name for value in node.outputs if value.name]
            read = [shapes[value.name] for value in node.inputs if value is not None and value.name in shapes]
            read_count, made_count = sum(map(prod, read)), sum(prod(shapes.get(name, ())) for name in made)
            if any(name not in shapes for name in made):
                if node.op_type not in FROM_DATA:
                    return None
                made_count = FROM_DATA_RANK * read_count
            byte_count -= NUMBER_BYTES * made_count
            if node.op_type in PRODUCTS:
                steps -= made_count * max(read[0], default=1)
            elif node.op_type in SLOW:
                steps -= made_count * read_count
            elif node.op_type == "Einsum":
                steps -= prod(map(prod, read))
        return _Budget(byte_count, steps) if min(byte_count, steps) >= 0 else None


class _Part:
    """Some nodes of a model as a model of their own, whose large constants are inputs."""

    def __init__(
        self,
        model: onnx_ir.Model,
        nodes: Sequence[onnx_ir.Node],
        wanted: Sequence[onnx_ir.Value],
        known: Arrays,
    ) -> None:
        self.wanted, self.nodes = wanted, nodes
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

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Return the shapes of what the part reads, and of what it computes as far as they are known before it runs."""
        graph = inferred(self.model).graph
        shapes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
        for info in (*graph.input, *graph.value_info, *graph.output):
            dims = info.type.tensor_type.shape.dim
            if info.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
                shapes[info.name] = tuple(dim.dim_value for dim in dims)
        for node in self.nodes:
            first = node.inputs[0] if node.inputs and (node.domain, node.op_type) in SHAPE_KEEPING else None
            if first is not None and first.name in shapes:
                shapes |= {value.name: shapes[first.name] for value in node.outputs if value.name}
        return shapes


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
