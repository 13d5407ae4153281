"""Models from anywhere: a path, bytes, or a model in memory, all checked before anything is made of them.

Files name sizes that nobody knows, too: a name that stands for "unknown" makes no two of them equal.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
import onnx
import onnx_ir
from google.protobuf.message import DecodeError
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper
from onnx_ir.passes.common import InlinePass

from ..errors import InvalidModelError, UnsupportedModelError, first_line
from ..limits import check_made
from .axis_names import size_or_name
from .external_files import check_file, files_of, remember_files, set_folder
from .faults import reading
from .function_calls import call_tree, check_written_out
from .held_tensors import put_attributes_in_place
from .lazy_sparse_tensor import Entries, SparseTensor, check_positions
from .map_types import remember_map_types, without_map_types
from .model_checks import check_inputs, check_names, check_order, check_tensors, check_versions
from .model_file import read_file

# Sparse tensors of a file: matrices of floats stay sparse, all others become dense ones.
#
# onnx-ir holds no sparse tensors: a matrix is kept apart, an initializer without values stands in for it in the file's
# message, and gets a `SparseTensor` once onnx-ir has read that.


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


def forget_unknown_sizes(model: onnx_ir.Model) -> None:
    """Take the names from sizes that have none, and the numbers from those below 0, in place."""
    for value in _values(model):
        if value.shape is not None:
            stated = [size if isinstance(size, int) else size.value for size in value.shape]
            known = [*map(size_or_name, stated)]
            if known != stated:
                value.shape = onnx_ir.Shape(known)


def _values(model: onnx_ir.Model) -> Iterator[onnx_ir.Value]:
    for graph in model.graphs():
        yield from graph.inputs
        for node in graph:
            yield from node.outputs


Source = str | os.PathLike[str] | bytes | onnx.ModelProto | onnx_ir.Model
"""A path, the bytes of a file, or a model in memory, which is never changed."""


EXPORTERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "torch": "torch.onnx.export(module, inputs, 'model.onnx')",
        "keras": "model.export('model.onnx', format='onnx')",
        "sklearn": "skl2onnx.to_onnx(estimator, inputs)",
    }
)
"""Packages whose models are no ONNX yet, and what makes it of them."""


KNOWN_DOMAINS: Final = frozenset({"", "ai.onnx", "ai.onnx.ml", "com.microsoft"})
"""Domains whose operators runtimes have kernels for."""


def read_model(source: Source, *, any_version: bool = False) -> onnx_ir.Model:
    """Return the model as onnx-ir holds it, a copy whose nodes are sorted; weights in files stay there.

    Sparse matrices stay sparse, see `redpebble.frontend.reading.lazy_sparse_tensor`; other sparse tensors become dense
    ones. With `any_version` it may be so old, or so new, that nothing is known of what its operators mean.

    Raises:
        InvalidModelError: the source is unreadable, or the model contradicts itself.
        UnsupportedModelError: its versions are not covered.
    """
    # callers need not be typed
    if not isinstance(source, str | os.PathLike | bytes | onnx.ModelProto | onnx_ir.Model):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InvalidModelError(_no_source(source))
    with reading():
        model = _read(source, any_version=any_version)
        put_attributes_in_place(model)
    return model


def read_runnable_model(source: Source, *, any_version: bool = False) -> onnx_ir.Model:
    """Return the model as `read_model` does, one that onnxruntime may be given as it is: it writes functions out.

    Raises:
        ModelError: as `read_model`, or the functions are more than can be written out.
    """
    model = read_model(source, any_version=any_version)
    check_written_out(model)
    return model


def external_files(path: Path) -> list[str]:
    """Return the files that a model's tensors lie in, each once, relative to the model's folder.

    Raises:
        ModelError: as `read_model`.
    """
    with reading():
        return files_of(_read(path, any_version=True))


def _read(source: Source, *, any_version: bool) -> onnx_ir.Model:
    if isinstance(source, onnx_ir.Model):
        model = _from_memory(source, any_version=any_version)
    else:
        model = _from_proto(*_parsed(source), any_version=any_version)
    opsets = model.opset_imports
    if "ai.onnx" in opsets:
        # the long name of the domain whose other name is empty
        opsets[""] = opsets.pop("ai.onnx")
    forget_unknown_sizes(model)
    check_inputs(model)
    call_tree(model)
    check_order(model)
    check_tensors(model)
    return model


def _from_memory(source: onnx_ir.Model, *, any_version: bool) -> onnx_ir.Model:
    check_versions(source.ir_version, source.opset_imports, any_version=any_version)
    try:
        return source.clone()
    except (ValueError, RuntimeError) as error:
        raise InvalidModelError("the model in memory reads a value that nothing defines before it is read") from error


def _from_proto(proto: onnx.ModelProto, folder: str, linked: str, *, any_version: bool) -> onnx_ir.Model:
    if not proto.HasField("graph"):
        raise InvalidModelError("expected an ONNX model, got one without a graph")
    opsets = {entry.domain: entry.version for entry in proto.opset_import}
    check_versions(proto.ir_version, opsets, any_version=any_version)
    check_names(proto.graph)
    sparse = without_sparse_tensors(proto, folder) if holds_sparse_tensors(proto) else SparseModel(proto, {})
    proto, map_types = without_map_types(sparse.proto)
    try:
        model = onnx_ir.from_proto(proto)
    except (onnx_ir.serde.SerdeError, ValueError, TypeError, KeyError) as error:
        raise InvalidModelError(f"the model is malformed: {first_line(error)}") from error
    remember_map_types(model, map_types)
    set_folder(model, folder, linked)
    sparse.put_matrices(model, folder)
    return model


def _parsed(source: str | os.PathLike[str] | bytes | onnx.ModelProto) -> tuple[onnx.ModelProto, str, str]:
    """Return the protobuf and the folders in which its weights may lie: of its name, and of the file if that is a link.

    Both are empty where it has none.
    """
    if isinstance(source, onnx.ModelProto):
        return source, "", ""
    if isinstance(source, bytes):
        return _decoded(source, "the source"), "", ""
    path = Path(source)
    content = read_file(path)
    if not len(content):
        raise InvalidModelError(f"expected an ONNX model, got '{path}', which is empty")
    linked = str(path.resolve().parent) if path.is_symlink() else ""
    return _decoded(content, f"'{path}'"), str(path.parent.absolute()), linked


def _no_source(found: object) -> str:
    """Return what is wrong with something that is no model, and what is accepted."""
    kinds = {kind.__module__.partition(".")[0] for kind in type(found).__mro__}
    exporter = next((call for package, call in EXPORTERS.items() if package in kinds), "")
    hint = f"; {exporter} makes one of it" if exporter else ""
    got = found if found is None else type(found).__name__
    return f"expected a path, bytes, an onnx.ModelProto or an onnx_ir.Model, got {got}{hint}"


def _decoded(data: bytes, what: str) -> onnx.ModelProto:
    try:
        return onnx.ModelProto.FromString(data)
    except DecodeError as error:
        raise InvalidModelError(f"{what} is no ONNX model, or cut short") from error


def inline_functions(model: onnx_ir.Model) -> None:
    """Replace every call of a model-local function by its body, in place.

    Raises:
        InvalidModelError: functions call each other in a circle.
        UnsupportedModelError: a function needs another operator set than the model, or there are too many calls.
    """
    _inline(model, lambda _: True)


def inline_layers(model: onnx_ir.Model) -> bool:
    """Replace calls of model-local functions with linear layers in them, in place, and return whether there are any.

    Functions with attributes stay, and those of domains that runtimes know: such operators may have a kernel elsewhere,
    as our own ones have.
    """
    nodes = {key: list(function.all_nodes()) for key, function in model.functions.items()}
    having, more = set[onnx_ir.OperatorIdentifier](), {key for key in nodes if any(map(_is_layer, nodes[key]))}
    while more:
        having |= more
        more = {key for key in nodes.keys() - having if any(node.op_identifier() in more for node in nodes[key])}
    chosen = {key for key in having if not model.functions[key].attributes and key[0] not in KNOWN_DOMAINS}
    if not any(node.op_identifier() in chosen for node in model.graph.all_nodes()):
        return False
    try:
        _inline(model, lambda function: function.identifier() in chosen)
    except UnsupportedModelError:
        return False
    return True


def _is_layer(node: onnx_ir.Node) -> bool:
    return node.domain == "" and node.op_type in ("MatMul", "Gemm")


def _inline(model: onnx_ir.Model, chosen: Callable[[onnx_ir.Function], bool]) -> None:
    if not model.functions:
        return
    check_written_out(model)
    try:
        InlinePass(chosen)(model)
    except (ValueError, onnx_ir.passes.PassError) as error:
        raise UnsupportedModelError(f"a model-local function cannot be written out: {first_line(error)}") from error
