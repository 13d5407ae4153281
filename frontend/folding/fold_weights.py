"""Weight-only subgraphs become weights: `Mul(weight, mask)` is run once, whatever the operators and the size.

before: `w = Mul(weight, mask)  y = MatMul(x, w)`    after: `y = MatMul(x, w)` with an initializer `w`
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from math import prod
from typing import Final, NamedTuple, Protocol, cast

import numpy as np
import onnx
import onnx_ir
from numpy.typing import NDArray

from ..limits import WIDEST, allowance
from ..reading.lazy_sparse_tensor import SparseTensor
from .dequantized_constants import stays_quantized
from .fold_sparse_weights import sparse_matrices
from .inferred_values import inferred
from .integer_weights import nodes_that_make_bytes
from .known_constants import initializer_of, is_constant

# Runs nodes that depend on constants alone: in one onnxruntime session, or node by node where that fails.


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
        from onnx.reference import ReferenceEvaluator

        results = cast("_Runner", ReferenceEvaluator(part.model)).run(names, part.feeds)
    pairs = zip(part.wanted, results, strict=True)
    return {value: array for value, array in pairs if isinstance(array, np.ndarray) and array.dtype.kind in "biuf"}


RANDOM: Final = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
DOMAINS: Final = frozenset({"", "com.microsoft"})
SLACK = 1024
"""Bytes by which folding may enlarge the file without being called growth."""


def fold_constants(model: onnx_ir.Model, *, keep_foreign: bool, kept: Set[str]) -> frozenset[str]:
    """Replace, in place, what depends on constants alone by initializers; nodes that yield a value of `kept` stay.

    `keep_foreign` says that nodes may stay as they are: then quantized weights and graph outputs do.
    Returns the names of the new initializers that are larger than all they were made from.
    """
    _lift_constants(model.graph)
    nodes = _foldable(model, keep_foreign=keep_foreign, kept=kept)
    sparse = sparse_matrices(nodes)
    stays = nodes_that_make_bytes(model.graph, sparse, model.ir_version)
    nodes = [node for node in nodes if node not in stays]
    if not nodes:
        return frozenset()
    chosen = set(nodes)
    frontier = [value for node in nodes for value in node.outputs if _is_read_outside(value, chosen)]
    tensors = _folded(model, nodes, frontier, sparse)
    grown = frozenset(value.name or "" for value, tensor in tensors.items() if _grows(value, tensor, model.ir_version))
    for value, tensor in tensors.items():
        _replace(model.graph, value, tensor)
    _drop_unused(model.graph, nodes)
    return grown


def _folded(
    model: onnx_ir.Model,
    nodes: Sequence[onnx_ir.Node],
    frontier: Sequence[onnx_ir.Value],
    sparse: Mapping[onnx_ir.Value, SparseTensor],
) -> dict[onnx_ir.Value, onnx_ir.TensorProtocol]:
    """Return what values of the frontier hold; matrices that are put together from entries stay `sparse`."""
    found: dict[onnx_ir.Value, onnx_ir.TensorProtocol] = {
        value: sparse[value]
        for value in frontier
        if value in sparse and not value.is_graph_output() and max(sparse[value].shape.numpy()) <= WIDEST
    }
    dense = [value for value in frontier if value not in found]
    needed = _cones(model.graph, {value.name or "" for value in dense})
    if dense:
        arrays = evaluate(model, [node for node in nodes if node in needed], dense)
        found |= {value: onnx_ir.tensor(array, name=value.name) for value, array in arrays.items()}
    return found


def _lift_constants(graph: onnx_ir.Graph) -> None:
    """Turn Constant nodes into initializers."""
    for node in list(graph):
        tensor = _constant_tensor(node) if (node.domain, node.op_type) == ("", "Constant") else None
        if tensor is not None and not node.outputs[0].is_graph_output():
            _replace(graph, node.outputs[0], tensor)
            graph.remove(node, safe=True)


def _constant_tensor(node: onnx_ir.Node) -> onnx_ir.TensorProtocol | None:
    """Return what a Constant node holds, or None for strings and references."""
    name = node.outputs[0].name
    for key, attribute in node.attributes.items():
        if attribute.is_ref():
            return None
        match key:
            case "value":
                tensor = attribute.as_tensor()
                return None if tensor.dtype == onnx_ir.DataType.STRING else tensor
            case "value_float":
                return onnx_ir.tensor(np.array(attribute.as_float(), np.float32), name=name)
            case "value_floats":
                return onnx_ir.tensor(np.array(attribute.as_floats(), np.float32), name=name)
            case "value_int":
                return onnx_ir.tensor(np.array(attribute.as_int(), np.int64), name=name)
            case "value_ints":
                return onnx_ir.tensor(np.array(attribute.as_ints(), np.int64), name=name)
            case _:
                continue
    return None


def _foldable(model: onnx_ir.Model, *, keep_foreign: bool, kept: Set[str]) -> list[onnx_ir.Node]:
    """Return, in order, the nodes that always yield the same."""
    constant = {value for value in model.graph.initializers.values() if is_constant(value, model.ir_version)}
    stays = _cones(model.graph, kept)
    nodes: list[onnx_ir.Node] = []
    for node in model.graph:
        if node in stays or not _is_deterministic(node) or node.op_identifier() in model.functions:
            continue
        if keep_foreign and any(output.is_graph_output() for output in node.outputs):
            continue
        if node.op_type == "DequantizeLinear" and (_feeds_quantized(node) or (keep_foreign and stays_quantized(node))):
            continue
        if all(value is None or value in constant for value in node.inputs):
            nodes.append(node)
            constant.update(node.outputs)
    folded = set(nodes)
    return [node for node in nodes if not _spreads(node, folded)]


def _feeds_quantized(node: onnx_ir.Node) -> bool:
    """Return whether all that read a dequantized constant read another dequantized value, too: layers of integers."""
    readers = [use.node for output in node.outputs for use in output.uses()]
    return bool(readers) and all(
        reader.inputs[0] is not None
        and (producer := reader.inputs[0].producer()) is not None
        and producer.op_type == "DequantizeLinear"
        and (reader.op_type in ("Gemm", "MatMul") or (reader.op_type == "Conv" and _is_by_outputs(reader, producer)))
        for reader in readers
    )


def _is_by_outputs(conv: onnx_ir.Node, source: onnx_ir.Node) -> bool:
    """Return whether a convolution is one on codes: of one scale for its inputs, and of one, or one an output, else.

    Of a weight that is still to be folded the outputs may not be known.
    """
    weight = None if conv.inputs[1] is None else conv.inputs[1].producer()
    if weight is None or weight.op_type != "DequantizeLinear":
        return False
    outputs = None if weight.inputs[0] is None or weight.inputs[0].shape is None else weight.inputs[0].shape[0]
    sizes = [value.shape.numpy() for value in weight.inputs[1:] if value is not None and value.shape is not None]
    axis = weight.attributes.get("axis")
    by_outputs = axis is not None and axis.as_int() == 0
    return all(
        value is None or value.shape is None or prod(value.shape.numpy()) == 1 for value in source.inputs[1:]
    ) and all(prod(size) == 1 or (by_outputs and len(size) == 1 and outputs in (None, size[0])) for size in sizes)


def _is_deterministic(node: onnx_ir.Node) -> bool:
    if node.domain not in DOMAINS or node.op_type in RANDOM:
        return False
    if node.op_type == "Dropout" and len(node.inputs) > 2:
        return False
    graphs = (onnx_ir.AttributeType.GRAPH, onnx_ir.AttributeType.GRAPHS)
    return not any(attribute.type in graphs for attribute in node.attributes.values())


def _spreads(node: onnx_ir.Node, folded: Set[onnx_ir.Node]) -> bool:
    """Return whether a node repeats what edges or nodes have for each feature: those that read it do without that."""
    if (node.domain, node.op_type) != ("", "Expand"):
        return False
    uses = [*node.outputs[0].uses()]
    spread = (("ScatterElements", 1), ("Div", 1))
    return bool(uses) and all((use.node.op_type, use.idx) in spread and use.node not in folded for use in uses)


def _cones(graph: onnx_ir.Graph, names: Set[str]) -> set[onnx_ir.Node]:
    """Return the nodes that the named values are computed by, directly or not."""
    pending = [node for node in graph if any(output.name in names for output in node.outputs)]
    found: set[onnx_ir.Node] = set()
    while pending:
        node = pending.pop()
        if node not in found:
            found.add(node)
            pending.extend(node.predecessors())
    return found


def _is_read_outside(value: onnx_ir.Value, nodes: Set[onnx_ir.Node]) -> bool:
    return value.is_graph_output() or any(use.node not in nodes for use in value.uses())


def _grows(value: onnx_ir.Value, tensor: onnx_ir.TensorProtocol, ir_version: int) -> bool:
    """Return whether the tensor, with its zeros, is larger than all the initializers it was computed from."""
    pending, seen, total = [value.producer()], set[onnx_ir.Node](), 0
    leaves: dict[onnx_ir.Value, int] = {}
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        for operand in filter(None, node.inputs):
            if is_constant(operand, ir_version) and operand.const_value is not None:
                leaves[operand] = operand.const_value.nbytes
            pending.append(operand.producer())
    total = sum(leaves.values())
    return tensor.nbytes > total + SLACK


def _replace(graph: onnx_ir.Graph, value: onnx_ir.Value, tensor: onnx_ir.TensorProtocol) -> None:
    """Let an initializer take the place and the name of a node's output."""
    initializer = initializer_of(value.name or "", tensor)
    value.replace_all_uses_with(initializer, replace_graph_outputs=True)
    value.name = None
    graph.register_initializer(initializer)


def _drop_unused(graph: onnx_ir.Graph, nodes: Sequence[onnx_ir.Node]) -> None:
    """Remove those of `nodes` that nothing reads any more, and the initializers that only they read."""
    read = _initializers_of(nodes)
    for node in reversed(nodes):
        if not any(output.uses() or output.is_graph_output() for output in node.outputs):
            graph.remove(node, safe=True)
    for value in read:
        if not value.uses() and not value.is_graph_output() and not value.is_graph_input():
            graph.initializers.pop(value.name or "", None)


def _initializers_of(nodes: Iterable[onnx_ir.Node]) -> Mapping[onnx_ir.Value, None]:
    return {value: None for node in nodes for value in node.inputs if value is not None and value.is_initializer()}
