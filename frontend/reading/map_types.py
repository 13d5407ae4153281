"""Types that onnx-ir does not hold: maps, which classifiers of ai.onnx.ml yield. They are put aside, and kept."""

import onnx
import onnx_ir

from ...dialect.ops.foreign import MAP_TYPES


def without_map_types(model: onnx.ModelProto) -> tuple[onnx.ModelProto, dict[str, bytes]]:
    """Return the model with maps among its values left untyped, and the types of these by name.

    The model is copied where that changes it.
    """
    types = {value.name: value.type.SerializeToString() for value in _values(model.graph) if has_map(value.type)}
    if not types:
        return model, types
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for value in _values(copy.graph):
        if value.name in types:
            value.ClearField("type")
    return copy, types


def remember_map_types(model: onnx_ir.Model, types: dict[str, bytes]) -> None:
    """Note on `model`, for whoever writes it to a file, which types were put aside."""
    if types:
        model.graph.meta[MAP_TYPES] = types


def _values(graph: onnx.GraphProto) -> list[onnx.ValueInfoProto]:
    return [*graph.input, *graph.output, *graph.value_info]


def has_map(kind: onnx.TypeProto) -> bool:
    """Return whether a type is a map, or holds one."""
    match kind.WhichOneof("value"):
        case "map_type":
            return True
        case "sequence_type":
            return has_map(kind.sequence_type.elem_type)
        case "optional_type":
            return has_map(kind.optional_type.elem_type)
        case _:
            return False
