from collections.abc import Iterable, Sequence

from .module import Module
from .types import FunctionType, Type
from .values import Block, Function, MDValue, NamedValue, Value

class Instruction(NamedValue):
    parent: Block
    opname: str
    operands: Sequence[Value]
    flags: list[str]
    metadata: dict[str, MDValue]
    def __init__(
        self,
        parent: Block,
        typ: Type,
        opname: str,
        operands: Sequence[Value],
        name: str = "",
        flags: Sequence[str] = (),
    ) -> None: ...
    @property
    def function(self) -> Function: ...
    @property
    def module(self) -> Module: ...
    def descr(self, buf: list[str]) -> None: ...
    def set_metadata(self, name: str, node: MDValue) -> None: ...
    def replace_usage(self, old: Value, new: Value) -> None: ...

class CallInstr(Instruction):
    tail: str | bool
    fastmath: set[str]
    attributes: set[str]
    @property
    def callee(self) -> Function | InlineAsm: ...
    @property
    def args(self) -> Sequence[Value]: ...

class Terminator(Instruction): ...

class PredictableInstr(Instruction):
    def set_weights(self, weights: Iterable[int]) -> None: ...

class Ret(Terminator):
    @property
    def return_value(self) -> Value | None: ...

class Branch(Terminator): ...
class ConditionalBranch(PredictableInstr, Terminator): ...

class SwitchInstr(PredictableInstr, Terminator):
    default: Block
    cases: list[tuple[Value, Block]]
    def add_case(self, val: Value | int, block: Block) -> None: ...

class Unreachable(Instruction): ...
class SelectInstr(Instruction): ...
class ICMPInstr(Instruction): ...
class FCMPInstr(Instruction): ...
class CastInstr(Instruction): ...

class LoadInstr(Instruction):
    align: int | None
    def __init__(self, parent: Block, ptr: Value, name: str = "", typ: Type | None = None) -> None: ...

class StoreInstr(Instruction):
    align: int | None
    def __init__(self, parent: Block, val: Value, ptr: Value) -> None: ...

class LoadAtomicInstr(Instruction):
    ordering: str
    align: int

class StoreAtomicInstr(Instruction):
    ordering: str
    align: int

class AllocaInstr(Instruction):
    allocated_type: Type
    align: int | None

class GEPInstr(Instruction):
    source_etype: Type
    pointer: Value
    indices: Sequence[Value]
    inbounds: bool

class PhiInstr(Instruction):
    incomings: list[tuple[Value, Block]]
    def add_incoming(self, value: Value, block: Block) -> None: ...

class ExtractElement(Instruction): ...
class InsertElement(Instruction): ...
class ShuffleVector(Instruction): ...
class ExtractValue(Instruction): ...
class InsertValue(Instruction): ...

class InlineAsm:
    type: Type
    function_type: FunctionType
    asm: str
    constraint: str
    side_effect: bool
    def __init__(self, ftype: FunctionType, asm: str, constraint: str, side_effect: bool = False) -> None: ...

class AtomicRMW(Instruction):
    operation: str
    ordering: str

class CmpXchg(Instruction):
    ordering: str

class Fence(Instruction):
    ordering: str
