"""Sparse tensors of a file: matrices of floats stay sparse, all others become dense ones.

onnx-ir holds no sparse tensors: a matrix is kept apart, an initializer without values stands in for it in the file's
message, and gets a `SparseTensor` once onnx-ir has read that.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import onnx
import onnx_ir
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from ..errors import InvalidModelError, first_line
from ..limits import check_made
from .external_files import check_file, remember_files
from .lazy_sparse_tensor import Entries, SparseTensor, check_positions


class SparseModel(NamedTuple):
    """A message without sparse tensors, and the matrices that its initializers of these names stand in for."""

    proto: onnx.ModelProto
    matrices: Mapping[str, onnx.SparseTensorProto]
    files: Sequence[str] = ()
    """The names of files in which parts of other sparse tensors lie."""

    def put_matrices(self, model: onnx_ir.Model, folder: str) -> None:
        """Give the initializers of the model that was read their matrices; files of theirs lie in `folder`."""
        remember_files(model, self.files)
        for name, proto in self.matrices.items():
            tensor = _matrix(name, proto, folder)
            value = model.graph.initializers[name]
            value.const_value, value.type, value.shape = tensor, onnx_ir.TensorType(tensor.dtype), tensor.shape


def holds_sparse_tensors(model: onnx.ModelProto) -> bool:
    """Return whether a graph or function of the model holds a sparse initializer or a sparse constant."""
    graphs_hold = any(graph.sparse_initializer for graph in _graphs(model))
    return graphs_hold or any(_is_sparse(entry) for node in _nodes(model) for entry in node.attribute)


def without_sparse_tensors(model: onnx.ModelProto, folder: str) -> SparseModel:
    """Return a copy of the model in which no tensor is sparse; matrices of floats of the main graph are kept apart.

    Values and indices that lie in files are looked for in `folder`.

    Raises:
        InvalidModelError: indices and values of a tensor that becomes dense do not fit each other or the shape, or lie
            in a file that is not there.
    """
    matrices = _matrices(model.graph)
    files: list[str] = []
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for node in [node for node in copy.graph.node if node.output and node.output[0] in matrices]:
        copy.graph.node.remove(node)
    for graph in _graphs(copy):
        own = matrices if graph is copy.graph else {}
        others = (one for one in graph.sparse_initializer if one.values.name not in own)
        graph.initializer.extend(_dense(one, folder, files) for one in others)
        graph.initializer.extend(numpy_helper.from_array(np.zeros(0, np.float32), name) for name in own)
        del graph.sparse_initializer[:]
    for node in _nodes(copy):
        for attribute in node.attribute:
            if node.op_type == "Constant" and _is_sparse(attribute):
                dense = _dense(attribute.sparse_tensor, folder, files)
                attribute.CopyFrom(onnx.helper.make_attribute("value", dense))
    return SparseModel(copy, matrices, files)


def _matrices(graph: onnx.GraphProto) -> dict[str, onnx.SparseTensorProto]:
    """Return the matrices of floats among sparse initializers and sparse constants, by name."""
    found = {one.values.name: one for one in graph.sparse_initializer}
    outputs = {value.name for value in graph.output}
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and _is_sparse(attribute) and node.output[0] not in outputs:
                found[node.output[0]] = attribute.sparse_tensor
    return {name: one for name, one in found.items() if _is_matrix(one)}


def _is_matrix(sparse: onnx.SparseTensorProto) -> bool:
    kinds = (sparse.values.data_type, sparse.indices.data_type)
    return kinds == (TensorProto.FLOAT, TensorProto.INT64) and len(sparse.dims) == 2


def _matrix(name: str, sparse: onnx.SparseTensorProto, folder: str) -> SparseTensor:
    """Return the matrix, whose values and indices stay in the file that they lie in."""
    # onnx-ir leaves the parameter of PathLike open, which is all that is unknown here
    read = onnx_ir.serde.deserialize_tensor  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    values, indices = read(sparse.values, folder), read(sparse.indices, folder)
    shape = tuple(sparse.dims)

    def entries() -> Entries:
        return Entries.of(_positions(indices.numpy(), shape), values.numpy(), shape)

    return SparseTensor(name, shape, entries, (values, indices))


def _positions(indices: NDArray[np.int64], shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return flat indices, from such or from one tuple of coordinates for each value.

    Raises:
        ValueError: they are neither.
    """
    if indices.dtype.kind not in "iu" or indices.ndim not in (1, 2):
        raise ValueError(f"expected lists of integers as indices, got {indices.dtype} {list(indices.shape)}")
    return np.asarray(np.ravel_multi_index(tuple(indices.T), shape)) if indices.ndim == 2 else indices


def _is_sparse(attribute: onnx.AttributeProto) -> bool:
    return attribute.type == onnx.AttributeProto.SPARSE_TENSOR


def _dense(sparse: onnx.SparseTensorProto, folder: str, files: list[str]) -> onnx.TensorProto:
    """Return the tensor with its zeros; the files in which its parts lie are added to `files`."""
    name, shape = sparse.values.name, tuple(sparse.dims)
    read = onnx_ir.serde.deserialize_tensor  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    try:
        parts = [read(part, folder) for part in (sparse.values, sparse.indices)]
        files += [check_file(name, part) for part in parts if isinstance(part, onnx_ir.ExternalTensor)]
        values, indices = (part.numpy() for part in parts)
        positions = _positions(indices, shape)
        check_positions(positions, len(values), shape)
        check_made(name, shape, values.itemsize, values.nbytes)
        dense = np.zeros(shape, dtype=values.dtype)
    except (ValueError, TypeError, OSError) as error:
        raise InvalidModelError(f"sparse tensor {name}: {first_line(error)}") from error
    dense.reshape(-1)[positions] = values
    return onnx_ir.serde.serialize_tensor(onnx_ir.Tensor(dense, dtype=parts[0].dtype, name=name))


def _graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """Yield the main graph and every graph inside of a node."""
    yield model.graph
    for node in _nodes(model):
        for attribute in node.attribute:
            yield from _subgraphs(attribute)


def _nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Yield every node, also those of functions and of graphs inside of nodes."""
    pending = [*model.graph.node, *(node for function in model.functions for node in function.node)]
    while pending:
        node = pending.pop()
        yield node
        pending.extend(inner for attribute in node.attribute for graph in _subgraphs(attribute) for inner in graph.node)


def _subgraphs(attribute: onnx.AttributeProto) -> list[onnx.GraphProto]:
    return [*([attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else []), *attribute.graphs]
