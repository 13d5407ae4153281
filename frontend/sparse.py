"""Sparse tensors of ONNX as dense ones: what comes after reads `initializer` and `value` only."""

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import numpy_helper

from redpebble.frontend.errors import InvalidModelError, first_line


def holds_sparse_tensors(model: onnx.ModelProto) -> bool:
    """Return whether a graph or function of the model holds a sparse initializer or a sparse constant."""
    graphs_hold = any(graph.sparse_initializer for graph in _graphs(model))
    return graphs_hold or any(_is_sparse(entry) for node in _nodes(model) for entry in node.attribute)


def densify(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy of the model in which every sparse tensor is an ordinary one of the same name.

    Raises:
        InvalidModelError: indices and values do not fit each other or the shape.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for graph in _graphs(copy):
        for tensor in graph.sparse_initializer:
            graph.initializer.append(_dense(tensor))
        del graph.sparse_initializer[:]
    for node in _nodes(copy):
        for attribute in node.attribute:
            if node.op_type == "Constant" and _is_sparse(attribute):
                dense = _dense(attribute.sparse_tensor)
                attribute.CopyFrom(onnx.helper.make_attribute("value", dense))
    return copy


def _is_sparse(attribute: onnx.AttributeProto) -> bool:
    return attribute.type == onnx.AttributeProto.SPARSE_TENSOR


def _dense(sparse: onnx.SparseTensorProto) -> onnx.TensorProto:
    """Return the tensor with its zeros; indices are flat, or one coordinate tuple for each value."""
    name = sparse.values.name
    shape = tuple(sparse.dims)
    try:
        values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
        if indices.ndim == 2:
            indices = np.asarray(np.ravel_multi_index(tuple(indices.T), shape))
        if len(indices) and not 0 <= indices.min() <= indices.max() < np.prod(shape):
            raise InvalidModelError(f"sparse tensor {name}: an index outside of shape {list(shape)}")
        if len(indices) != len(values):
            raise InvalidModelError(f"sparse tensor {name}: {len(values)} values and {len(indices)} indices")
    except (ValueError, TypeError, OSError) as error:
        raise InvalidModelError(f"sparse tensor {name}: {first_line(error)}") from error
    dense = np.zeros(shape, dtype=values.dtype)
    dense.reshape(-1)[indices] = values
    return numpy_helper.from_array(dense, name)


def _graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """Yield the main graph and every graph inside of a node."""
    yield model.graph
    for node in _nodes(model):
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.GRAPH:
                yield attribute.g
            yield from attribute.graphs


def _nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield every node, also those of functions and of graphs inside of nodes."""
    pending = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while pending:
        node = pending.pop()
        yield node
        for attribute in node.attribute:
            pending.extend(attribute.g.node)
            pending.extend(inner for graph in attribute.graphs for inner in graph.node)
