"""Tensor types of the dialect, and the way between numpy arrays and attributes."""

from collections.abc import Sequence
from math import prod
from typing import Annotated, Any, Final, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    BytesAttr,
    DenseIntOrFPElementsAttr,
    Float32Type,
    IntegerType,
    NoneAttr,
    ShapedType,
    TensorType,
    f32,
    i64,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import AnyAttr, AttrConstraint, BaseAttr, ParamAttrConstraint, base
from xdsl.parser import AttrParser
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from .record import Codec, Record, written

F32Tensor = TensorType[Float32Type]
"""The type of every activation: `tensor<?x64xf32>`."""

DENSE_TENSOR: Final = cast(
    "AttrConstraint[F32Tensor]",
    ParamAttrConstraint.get(TensorType, AnyAttr(), BaseAttr(Float32Type), BaseAttr(NoneAttr)),
)
"""The type of operands and results: f32 tensors without an encoding; only a weight may be sparse."""


class SparsityAttr(Record, text="nonzeros = {nonzeros}"):
    """The encoding of a sparse tensor type: `tensor<64x32xf32, #pebble.sparsity<nonzeros = 205>>`."""

    name = "pebble.sparsity"

    nonzeros: int

    def verify(self) -> None:
        if self.nonzeros < 0:
            raise VerifyException(f"expected 0 or more nonzeros, got {self.nonzeros}")


F32_TENSOR: Final = base(F32Tensor)
"""An f32 tensor, dense or sparse."""

Shape = tuple[int, ...]
"""Sizes of the dimensions; `DYNAMIC` where only the call knows."""

DYNAMIC = DYNAMIC_INDEX


def f32_tensor(shape: Sequence[int], encoding: Attribute | None = None) -> F32Tensor:
    """Return the type of an f32 tensor of `shape`."""
    return TensorType(f32, shape, NoneAttr() if encoding is None else encoding)


def is_f32_tensor(kind: Attribute) -> TypeGuard[F32Tensor]:
    """Return whether a type is that of an f32 tensor, dense or sparse."""
    # `isa` with a type argument builds a constraint at every call, and this is asked for every value
    return isinstance(kind, TensorType) and isinstance(cast("TensorType[Attribute]", kind).element_type, Float32Type)


def shape_of(value: SSAValue) -> Shape:
    """Return the shape of a tensor value, or of edges.

    Raises:
        VerifyException: the value is no ranked tensor.
    """
    # a list is made in half the time of what `get_shape` does, and each pass asks this for every value
    if isinstance(value.type, TensorType):
        return tuple([size.data for size in cast("TensorType[Attribute]", value.type).shape.data])
    if isinstance(value.type, ShapedType):
        return value.type.get_shape()
    raise VerifyException(f"expected a ranked tensor, got {value.type}")


def rank_of(value: SSAValue) -> int:
    """Return the number of axes of a tensor value, sooner than its shape.

    Raises:
        VerifyException: the value is no ranked tensor.
    """
    if not isinstance(value.type, ShapedType):
        raise VerifyException(f"expected a ranked tensor, got {value.type}")
    return value.type.get_num_dims()


def dense_floats(array: NDArray[np.float32]) -> DenseIntOrFPElementsAttr[Float32Type]:
    """Return the attribute that holds a copy of `array`, with its shape."""
    data = BytesAttr(np.ascontiguousarray(array, dtype="<f4").tobytes())
    return DenseIntOrFPElementsAttr(TensorType(f32, array.shape), data)


def dense_indices(array: NDArray[np.int64]) -> DenseIntOrFPElementsAttr[IntegerType]:
    """Return the attribute that holds a copy of the indices in `array`, with its shape."""
    data = BytesAttr(np.ascontiguousarray(array, dtype="<i8").tobytes())
    return DenseIntOrFPElementsAttr(TensorType(i64, array.shape), data)


def floats_of(attribute: DenseIntOrFPElementsAttr[Float32Type]) -> NDArray[np.float32]:
    """Return the floats of a dense attribute in its shape: a read-only view, without a copy."""
    return np.frombuffer(attribute.data.data, dtype="<f4").reshape(attribute.get_shape())


def indices_of(attribute: DenseIntOrFPElementsAttr[IntegerType]) -> NDArray[np.int64]:
    """Return the indices of a dense attribute in its shape: a read-only view, without a copy."""
    return np.frombuffer(attribute.data.data, dtype="<i8").reshape(attribute.get_shape())


def integers(kind: IntegerType) -> Codec:
    """Return the codec of an array of rank 1 in a record: `dense<[0, 1]> : tensor<2xi64>`."""
    dtype = np.dtype(f"<i{kind.width.data // 8}")

    def parse(parser: AttrParser) -> NDArray[Any]:
        found = parser.parse_attribute()
        if not isa(found, DenseIntOrFPElementsAttr[IntegerType]):
            parser.raise_error("expected dense integers")
        if found.type.element_type != kind or len(found.get_shape()) != 1:
            parser.raise_error(f"expected integers of type {kind} and rank 1, got {found.type}")
        return np.frombuffer(found.data.data, dtype=dtype)

    def dense(array: NDArray[Any]) -> DenseIntOrFPElementsAttr[IntegerType]:
        return DenseIntOrFPElementsAttr(TensorType(kind, array.shape), BytesAttr(array.tobytes()))

    def convert(array: NDArray[Any]) -> NDArray[Any]:
        kept = np.array(array, dtype=dtype)
        kept.flags.writeable = False
        return kept

    return Codec(parse, lambda printer, array: printer.print_attribute(dense(array)), convert, lambda a: a.tobytes())


IndexArray = Annotated[NDArray[np.int64], integers(i64)]
"""Indices in a record."""


def _parse_floats(parser: AttrParser) -> NDArray[np.float32]:
    found = parser.parse_attribute()
    if not isa(found, DenseIntOrFPElementsAttr[Float32Type]) or len(found.get_shape()) != 1:
        parser.raise_error("expected dense floats of rank 1")
    return floats_of(found)


def _floats_text(array: NDArray[np.float32]) -> str:
    return f'dense<"0x{array.tobytes().hex().upper()}"> : tensor<{len(array)}xf32>' if len(array) else NO_FLOATS


def _kept_floats(array: NDArray[np.float32]) -> NDArray[np.float32]:
    kept = np.array(array, dtype="<f4")
    kept.flags.writeable = False
    return kept


NO_FLOATS: Final = "dense<> : tensor<0xf32>"

FloatArray = Annotated[
    NDArray[np.float32],
    written(_parse_floats, _floats_text, convert=_kept_floats, key=lambda array: array.tobytes()),
]
"""Floats of rank 1 in a record, in hexadecimal: they read back bit by bit."""


def broadcast_shape(left: Shape, right: Shape) -> Shape:
    """Return numpy's broadcast of two shapes; an unknown size is taken to fit the other one.

    Raises:
        VerifyException: two known sizes differ and neither is 1.
    """
    rank = max(len(left), len(right))
    padded = zip((1,) * (rank - len(left)) + left, (1,) * (rank - len(right)) + right, strict=True)
    sizes: list[int] = []
    for first, second in padded:
        if first == 1 or (first == DYNAMIC and second != 1):
            sizes.append(second)
        elif second in (1, first, DYNAMIC):
            sizes.append(first)
        else:
            raise VerifyException(f"shapes {shape_text(left)} and {shape_text(right)} do not broadcast")
    return tuple(sizes)


def shape_text(shape: Sequence[int]) -> str:
    """Return a shape as a person writes it: `?x64`."""
    return "x".join("?" if size == DYNAMIC else str(size) for size in shape) or "scalar"


def compatible(left: Shape, right: Shape) -> bool:
    """Return whether two shapes can be the same at run time."""
    return len(left) == len(right) and all(a == b or DYNAMIC in (a, b) for a, b in zip(left, right, strict=True))


def size_of(shape: Shape) -> int:
    """Return the number of values of a shape, or `DYNAMIC`."""
    return DYNAMIC if DYNAMIC in shape else prod(shape)


def verify_bias(bias: SSAValue | None, size: int) -> None:
    """Check that a bias, where there is one, has a number for each of `size` outputs.

    Raises:
        VerifyException: it has another shape.
    """
    if bias is not None and shape_of(bias) != (size,):
        raise VerifyException(f"expected bias {size}, got {shape_text(shape_of(bias))}")
