"""ONNX types and shapes as types of the dialect, and as sizes with names."""

from collections.abc import Callable, Iterable

import onnx_ir
from xdsl.ir import Attribute

from ...dialect.ops.foreign import ForeignType
from ...dialect.symbolic_sizes import Size, SymbolicShape
from ...dialect.tensors import f32_tensor
from ..folding.known_sizes import extent_of


def element_name(dtype: onnx_ir.DataType | None) -> str:
    """Return the element type in ONNX's words: `float`, `int64`."""
    return "unknown" if dtype is None else dtype.name.lower()


def describe(kind: onnx_ir.TypeProtocol | None) -> str:
    """Return the type in ONNX's words: `tensor(float)`, `seq(tensor(int64))`; empty when it is unknown."""
    match kind:
        case None:
            return ""
        case onnx_ir.SequenceType():
            return f"seq({describe(kind.elem_type)})"
        case onnx_ir.OptionalType():
            return f"optional({describe(kind.elem_type)})"
        case onnx_ir.SparseTensorType():
            return f"sparse_tensor({element_name(kind.dtype)})"
        case onnx_ir.TensorType():
            return f"tensor({element_name(kind.dtype)})"
        case _:
            return str(kind).lower()


def pebble_type(kind: onnx_ir.TypeProtocol | None, sizes: SymbolicShape | None) -> Attribute:
    """Return an f32 tensor type where element type and rank allow it, else the opaque type that says what it is."""
    if isinstance(kind, onnx_ir.TensorType) and kind.dtype == onnx_ir.DataType.FLOAT and sizes is not None:
        return f32_tensor([extent_of(size) for size in sizes])
    return ForeignType(describe(kind))


def dimension_names(shape: onnx_ir.Shape) -> list[str]:
    """Return a word for each axis: its number, its name, or nothing."""
    return [str(dim) if isinstance(dim, int) else dim.value or "" for dim in shape]


def named_sizes(words: Iterable[str], fresh: Callable[[], Size]) -> SymbolicShape:
    """Return the sizes that `dimension_names` words, with a `fresh` size for each that has no name."""
    return tuple(
        Size.known(int(word)) if word.isdecimal() else Size.symbol(word) if word else fresh() for word in words
    )
