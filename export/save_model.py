"""A model as a file: complete or not there at all; large weights in a file of their own, where they were before."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import onnx
import onnx_ir as ir

from ..dialect.ops.foreign import MAP_TYPES
from ..foundation.atomic_files import replacing_files
from ..frontend.reading.model_file import PROTOBUF_LIMIT

EXTERNAL_DATA_KEY = "redpebble.external_data"


def has_external_weights(model: ir.Model) -> bool:
    """Return whether weights of `model` lie in a data file, or did in the model that it was made from."""
    values = (value for graph in model.graphs() for value in graph.initializers.values())
    return EXTERNAL_DATA_KEY in model.graph.meta or any(
        isinstance(value.const_value, ir.ExternalTensor) for value in values
    )


def remember_external_weights(model: ir.Model) -> None:
    """Note on `model`, where no file will show it, that its weights belong into a data file."""
    model.graph.meta[EXTERNAL_DATA_KEY] = True


EXTERNAL_FROM = 1024
"""Bytes from which a weight goes to the data file, when there is one."""

STRUCTURE = 2**26
"""Bytes that are left for nodes and names when deciding whether weights fit into the model's own file."""


def save_model(model: ir.Model, path: str | os.PathLike[str], *, external_data: bool | None = None) -> None:
    """Write `model` to `path`, and its large weights to `<path>.data` when `external_data` is true.

    None decides by the model: weights go to a data file when some were in one before, or when they do not fit into a
    protobuf message. Files appear under their names only when they are complete; `model` stays as it is.

    Raises:
        OSError: the file cannot be written, or external weights cannot be read.
        ValueError: weights of more than 2 GB without a data file, or a name that does not end in .onnx.
    """
    target = Path(path)
    if target.is_dir():
        raise OSError(f"cannot write {target}: it is a folder")
    if target.suffix != ".onnx":
        raise ValueError(f"expected a file to write that ends in .onnx, got {target}")
    external = _needs_data_file(model) if external_data is None else external_data
    size = _weight_bytes(model)
    if not external and size > PROTOBUF_LIMIT - STRUCTURE:
        raise ValueError(
            f"cannot write {target}: expected at most 2 GB of weights without external data, got {size} bytes"
        )
    try:
        with replacing_files(target) as folder:
            _write(model.clone(), folder / target.name, external=external)
    except OSError as error:
        raise OSError(f"cannot write {target}: {error.strerror or str(error).splitlines()[0]}") from error


def model_bytes(model: ir.Model) -> bytes | None:
    """Return a model with all its weights as one message of protobuf, None where it is larger than such may be."""
    if _weight_bytes(model) > PROTOBUF_LIMIT - STRUCTURE:
        return None
    # to copy a model of many nodes takes as long as to write it
    whole = _in_memory(model.clone()) if has_external_weights(model) else model
    kept = [(value, value.type, value.shape) for value in _said_twice(whole)]
    _say_once(whole)
    try:
        proto = ir.to_proto(whole)
    finally:
        for value, kind, shape in kept:
            value.type, value.shape = kind, shape
    if MAP_TYPES in model.graph.meta:
        _restore_map_types(proto, cast("Mapping[str, bytes]", model.graph.meta[MAP_TYPES]))
    return proto.SerializeToString()


def _in_memory(model: ir.Model) -> ir.Model:
    """Load the weights of a model, which may be changed on the way, from its data files."""
    for graph in model.graphs():
        for value in graph.initializers.values():
            held = value.const_value
            if isinstance(held, ir.ExternalTensor):
                # loading closes the file, which somebody may still read an array of
                old: Any = held
                value.const_value = ir.ExternalTensor(
                    *(old.location, old.offset, old.length, old.dtype),
                    shape=old.shape,
                    name=old.name,
                    base_dir=old.base_dir,
                )
    return ir.external_data.load_to_model(model)


def _write(model: ir.Model, path: Path, *, external: bool) -> None:
    """Write a model that may be changed on the way, with its data file beside it."""
    _say_once(model)
    written = model if external else _in_memory(model)
    data = f"{path.name}.data" if external else None
    # onnx-ir leaves the parameter of PathLike open, which is all that is unknown here.
    ir.save(written, path, external_data=data, size_threshold_bytes=EXTERNAL_FROM)  # pyright: ignore[reportUnknownMemberType]
    if MAP_TYPES in model.graph.meta:
        proto = onnx.ModelProto.FromString(path.read_bytes())
        _restore_map_types(proto, cast("Mapping[str, bytes]", model.graph.meta[MAP_TYPES]))
        path.write_bytes(proto.SerializeToString())
    if data is not None and (beside := path.with_name(data)).exists():
        # onnx-ir makes the data file readable for its owner alone; it is as public as the model
        beside.chmod(path.stat().st_mode & 0o777)


def _say_once(model: ir.Model) -> None:
    """Take types and shapes from initializers, which say them themselves; value infos would say them again."""
    for value in _said_twice(model):
        value.type = value.shape = None


def _said_twice(model: ir.Model) -> list[ir.Value]:
    values = (value for graph in model.graphs() for value in graph.initializers.values())
    return [value for value in values if not (value.is_graph_input() or value.metadata_props or value.doc_string)]


def _restore_map_types(proto: onnx.ModelProto, types: Mapping[str, bytes]) -> None:
    """Give values in a written model the types that onnx-ir does not hold."""
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info):
        if value.name in types:
            value.type.ParseFromString(types[value.name])


def _needs_data_file(model: ir.Model) -> bool:
    return has_external_weights(model) or _weight_bytes(model) > PROTOBUF_LIMIT - STRUCTURE


def _weight_bytes(model: ir.Model) -> int:
    values = (value for graph in model.graphs() for value in graph.initializers.values())
    return sum(value.const_value.nbytes for value in values if value.const_value is not None)
