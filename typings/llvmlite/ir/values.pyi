from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

from .instructions import Instruction, Terminator
from .module import Module
from .types import FunctionType, Type

Undefined: object

class Value:
    type: Type
    def get_reference(self) -> str: ...

class Constant(Value):
    constant: object
    def __init__(self, typ: Type, constant: object) -> None: ...
    @classmethod
    def literal_array(cls, elems: Sequence[Constant]) -> Constant: ...
    @classmethod
    def literal_struct(cls, elems: Sequence[Constant], packed: bool = False) -> Constant: ...
    def add(self, other: Constant) -> Constant: ...
    def sub(self, other: Constant) -> Constant: ...
    def trunc(self, typ: Type) -> Constant: ...
    def bitcast(self, typ: Type) -> Constant: ...
    def ptrtoint(self, typ: Type) -> Constant: ...
    def inttoptr(self, typ: Type) -> Constant: ...
    def gep(self, indices: Sequence[Constant]) -> Constant: ...

class NamedValue(Value):
    name_prefix: ClassVar[str]
    name: str
    @property
    def function_type(self) -> FunctionType: ...

class MDValue(NamedValue):
    operands: tuple[Value | None, ...]

class GlobalValue(NamedValue):
    parent: Module
    linkage: str
    storage_class: str
    section: str
    metadata: dict[str, MDValue]
    def set_metadata(self, name: str, node: MDValue) -> None: ...

class GlobalVariable(GlobalValue):
    value_type: Type
    initializer: Constant | None
    unnamed_addr: bool
    global_constant: bool
    addrspace: int
    align: int | None
    def __init__(self, module: Module, typ: Type, name: str, addrspace: int = 0) -> None: ...
    def gep(self, indices: Sequence[Constant]) -> Constant: ...
    def bitcast(self, typ: Type) -> Constant: ...

class AttributeSet:
    def __init__(self, args: str | Iterable[str] = ()) -> None: ...
    def __contains__(self, name: str) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def add(self, name: str) -> None: ...

class FunctionAttributes(AttributeSet):
    alignstack: int
    personality: GlobalValue | None

class ArgumentAttributes(AttributeSet):
    align: int
    dereferenceable: int
    dereferenceable_or_null: int

class Argument(NamedValue):
    parent: Function
    attributes: ArgumentAttributes
    def add_attribute(self, attr: str) -> None: ...

class ReturnValue(Argument): ...

class Function(GlobalValue):
    ftype: FunctionType
    blocks: list[Block]
    attributes: FunctionAttributes
    args: tuple[Argument, ...]
    return_value: ReturnValue
    calling_convention: str
    def __init__(self, module: Module, ftype: FunctionType, name: str) -> None: ...
    @property
    def module(self) -> Module: ...
    @property
    def entry_basic_block(self) -> Block: ...
    @property
    def basic_blocks(self) -> list[Block]: ...
    @property
    def is_declaration(self) -> bool: ...
    def append_basic_block(self, name: str = "") -> Block: ...
    def insert_basic_block(self, before: int, name: str = "") -> Block: ...

class Block(NamedValue):
    parent: Function
    instructions: list[Instruction]
    terminator: Terminator | None
    @property
    def is_terminated(self) -> bool: ...
    @property
    def function(self) -> Function: ...
    @property
    def module(self) -> Module: ...
