from collections.abc import Iterator, Sequence
from typing import ClassVar

from .values import Constant

class Type:
    is_pointer: ClassVar[bool]
    null: ClassVar[str]
    def as_pointer(self, addrspace: int = 0) -> PointerType: ...
    def __call__(self, value: object) -> Constant: ...

class PointerType(Type):
    addrspace: int
    is_opaque: ClassVar[bool]
    def __init__(self, pointee: Type | None = None, addrspace: int = 0) -> None: ...
    @property
    def intrinsic_name(self) -> str: ...

class VoidType(Type): ...
class MetaDataType(Type): ...

class FunctionType(Type):
    return_type: Type
    args: tuple[Type, ...]
    var_arg: bool
    def __init__(self, return_type: Type, args: Sequence[Type], var_arg: bool = False) -> None: ...

class IntType(Type):
    width: int
    def __init__(self, bits: int) -> None: ...
    @property
    def intrinsic_name(self) -> str: ...

class HalfType(Type):
    intrinsic_name: ClassVar[str]

class FloatType(Type):
    intrinsic_name: ClassVar[str]

class DoubleType(Type):
    intrinsic_name: ClassVar[str]

class VectorType(Type):
    element: Type
    count: int
    def __init__(self, element: Type, count: int) -> None: ...
    def __len__(self) -> int: ...

class Aggregate(Type): ...

class ArrayType(Aggregate):
    element: Type
    count: int
    def __init__(self, element: Type, count: int) -> None: ...
    def __len__(self) -> int: ...

class LiteralStructType(Aggregate):
    elements: tuple[Type, ...]
    packed: bool
    def __init__(self, elems: Sequence[Type], packed: bool = False) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Type]: ...
