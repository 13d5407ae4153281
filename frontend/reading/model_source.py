"""Models from anywhere: a path, bytes, or a model in memory, all checked before anything is made of them.

Files name sizes that nobody knows, too: a name that stands for "unknown" makes no two of them equal.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import onnx
import onnx_ir
from google.protobuf.message import DecodeError
from onnx_ir.passes.common import InlinePass

from ..errors import InvalidModelError, UnsupportedModelError, first_line
from .external_files import files_of, set_folder
from .faults import reading
from .function_calls import call_tree, check_written_out
from .held_tensors import put_attributes_in_place
from .map_types import remember_map_types, without_map_types
from .model_checks import check_inputs, check_names, check_order, check_tensors, check_versions
from .model_file import read_file
from .sparse_initializers import SparseModel, holds_sparse_tensors, without_sparse_tensors

NO_NAMES: Final = frozenset({"", "?", "-1", "None", "none"})
"""Names of dimensions that exporters write where they know no size: Paddle's `?`, as often as there are such sizes."""


def forget_unknown_sizes(model: onnx_ir.Model) -> None:
    """Take the names from sizes that have none, and the numbers from those below 0, in place."""
    for value in _values(model):
        if value.shape is not None and any(map(_is_unknown, value.shape)):
            value.shape = onnx_ir.Shape([None if _is_unknown(size) else size for size in value.shape])


def _is_unknown(size: int | onnx_ir.SymbolicDim) -> bool:
    return size < 0 if isinstance(size, int) else size.value in NO_NAMES


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
