"""Checks of a model before it is read: versions, names, order, and the tensors and files behind its weights."""

import graphlib
from collections.abc import Iterator, Mapping
from typing import Final

import onnx
import onnx_ir

from ..errors import InvalidModelError, UnsupportedModelError, first_line
from .external_files import check_file
from .held_tensors import held_tensors
from .lazy_sparse_tensor import SparseTensor

OLDEST_OPSET: Final = 7

REVIEWED_OPSET: Final = 28
"""The newest opset whose operators were compared with their converters: what a later one changes is not known here."""


def check_versions(ir_version: int, opsets: Mapping[str, int], *, any_version: bool) -> None:
    """Check the IR version and the version of the operator set ai.onnx; `any_version` covers all that there are.

    Raises:
        InvalidModelError: one is missing.
        UnsupportedModelError: one is not covered.
    """
    if ir_version <= 0:
        raise InvalidModelError(f"expected IR version 3 to {onnx.IR_VERSION}, got {ir_version}")
    if any_version:
        return
    if not 3 <= ir_version <= onnx.IR_VERSION:
        raise UnsupportedModelError(f"expected IR version 3 to {onnx.IR_VERSION}, got {ir_version}")
    newest = min(REVIEWED_OPSET, onnx.defs.onnx_opset_version())
    opset = opsets.get("", opsets.get("ai.onnx"))
    if opset is not None and not OLDEST_OPSET <= opset <= newest:
        raise UnsupportedModelError(f"expected opset {OLDEST_OPSET} to {newest}, got {opset}")


def check_names(graph: onnx.GraphProto) -> None:
    """Check that every value is defined once, and defined at all where it is used; subgraphs see what is around them.

    Raises:
        InvalidModelError: names the value and the node.
    """
    _check_names(graph, set())


def _check_names(graph: onnx.GraphProto, visible: set[str]) -> None:
    """Check a graph around which the names in `visible` are defined; they are the same afterwards."""
    defined: set[str] = set()
    dense, sparse = (one.name for one in graph.initializer), (one.values.name for one in graph.sparse_initializer)
    for name in (*dense, *sparse):
        if name in defined:
            raise InvalidModelError(f"initializer {name!r} is defined twice")
        defined.add(name)
    defined |= {value.name for value in graph.input}
    for index, node in enumerate(graph.node):
        for name in filter(None, node.output):
            if name in defined:
                raise InvalidModelError(f"{_label(node, index)} defines {name!r}, which is defined before")
            defined.add(name)
    own = defined - visible
    visible |= own
    for index, node in enumerate(graph.node):
        for name in filter(None, node.input):
            if name not in visible:
                raise InvalidModelError(f"{_label(node, index)} reads {name!r}, which nothing defines")
        for subgraph in _subgraphs(node):
            _check_names(subgraph, visible)
    for value in graph.output:
        if value.name not in visible:
            raise InvalidModelError(f"output {value.name!r} is defined by nothing")
    visible -= own


def check_inputs(model: onnx_ir.Model) -> None:
    """Check that inputs have names, each its own.

    Raises:
        InvalidModelError: one has not.
    """
    names: set[str] = set()
    for index, value in enumerate(model.graph.inputs):
        if not value.name:
            raise InvalidModelError(f"input {index} has no name")
        if value.name in names:
            raise InvalidModelError(f"input {value.name!r} is defined twice")
        names.add(value.name)


def _label(node: onnx.NodeProto, index: int) -> str:
    return f"node {node.name!r}" if node.name else f"node {index}"


def _subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def check_order(model: onnx_ir.Model) -> None:
    """Sort the nodes so that each comes after what it reads.

    Raises:
        InvalidModelError: names the nodes of a cycle.
    """
    try:
        model.graph.sort()
    except ValueError as error:
        raise InvalidModelError(f"the graph is cyclic: {_cycle(model.graph)}") from error


def _cycle(graph: onnx_ir.Graph) -> str:
    labels = {node: f"node {node.name!r}" if node.name else f"node {index}" for index, node in enumerate(graph)}
    try:
        graphlib.TopologicalSorter({node: [*node.predecessors()] for node in graph}).prepare()
    except graphlib.CycleError as error:
        return " reads ".join(labels.get(node, "a subgraph") for node in reversed(error.args[1]))
    return "through a subgraph"


def check_tensors(model: onnx_ir.Model) -> None:
    """Check that every tensor has the values it promises, inside the model's folder when they lie in a file.

    Raises:
        InvalidModelError: names the tensor.
    """
    for name, tensor in held_tensors(model):
        _check_tensor(name, tensor)
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                _check_declaration(value, value.const_value)


def _check_tensor(name: str, tensor: onnx_ir.TensorProtocol) -> None:
    for part in (tensor, *(tensor.parts if isinstance(tensor, SparseTensor) else ())):
        if isinstance(part, onnx_ir.ExternalTensor):
            check_file(name, part)
    if isinstance(tensor, SparseTensor):
        tensor.entries()
        return
    if tensor.dtype == onnx_ir.DataType.UNDEFINED:
        raise InvalidModelError(f"tensor {name}: no element type")
    if any(not isinstance(size, int) or size < 0 for size in tensor.shape):
        raise InvalidModelError(f"tensor {name}: expected sizes from 0 on, got shape {tensor.shape}")
    if tensor.dtype == onnx_ir.DataType.STRING:
        return
    try:
        tensor.numpy()
    except (ValueError, TypeError, OSError) as error:
        raise InvalidModelError(f"tensor {name}: {first_line(error)}") from error


def _check_declaration(value: onnx_ir.Value, tensor: onnx_ir.TensorProtocol) -> None:
    """Check an initializer against what the graph says of the value."""
    if value.dtype is not None and value.dtype != tensor.dtype:
        raise InvalidModelError(f"initializer {value.name} is {tensor.dtype.name}, the graph says {value.dtype.name}")
    if value.shape is None:
        return
    pairs = zip(value.shape, tensor.shape, strict=False)
    if len(value.shape) != len(tensor.shape) or any(isinstance(a, int) and a != b for a, b in pairs):
        raise InvalidModelError(f"initializer {value.name} has shape {tensor.shape}, the graph says {value.shape}")
