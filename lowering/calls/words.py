"""Functions on memory of 64-bit words: structs, words that threads share, calls by name and by address.

    frame.header.steps        a word that is an address, then one that is a number: loads, each time they are written
    split.rows = rows         a store
    team.waiting.add(1)       an atomic addition to a word that threads share
    Split.rows                the number of the word in its struct, for hosts that fill tables in Python

A function that can fail returns a status, null where all is well; whoever gets one that is not null passes it on.
"""

import inspect
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, Generic, Self, TypeVar, overload

from llvmlite import ir

from ..llvm.builder import Parameters
from ..llvm.flow import Blocks, when
from ..llvm.values import I64, NULL, POINTER, VOID, Argument, Index, Longs, Number, Truth, Value, i64, operands


class FunctionAt(ir.Value):
    """The function behind an address, as llvmlite wants what is called."""

    def __init__(self, address: ir.Value, function_type: ir.FunctionType) -> None:
        self.address = address
        self.function_type = function_type
        self.type = POINTER

    def get_reference(self) -> str:
        """Return how instructions mention it."""
        return self.address.get_reference()


class AddressOf(ir.Value):
    """A function as a value; llvmlite would give it the typed pointer of old."""

    def __init__(self, function: ir.Function) -> None:
        self.function = function
        self.type = POINTER

    def get_reference(self) -> str:
        """Return how instructions mention it."""
        return self.function.get_reference()


class Words(Longs):
    """The address of words, each a number or an address; or of anything else that a host hands on."""

    __slots__ = ()

    def __setitem__(self, index: Index, value: Argument) -> None:
        (stored,) = operands([value])
        self.builder.store(stored, self.at(index).value)

    def to(self, index: Index = 0) -> "Words":
        """Return a word as an address."""
        return Words(self.builder, self.builder.load(self.at(index).value, typ=POINTER))

    def is_null(self) -> Truth:
        """Return whether this address is null."""
        return Truth(self.builder, self.builder.icmp_unsigned("==", self.value, NULL))

    def is_set(self) -> Truth:
        """Return whether this address is not null."""
        return Truth(self.builder, self.builder.icmp_unsigned("!=", self.value, NULL))

    def is_same(self, other: "Words") -> Truth:
        """Return whether another address is this one."""
        return Truth(self.builder, self.builder.icmp_unsigned("==", self.value, other.value))

    def current(self, ordering: str = "acquire") -> Number:
        """Return the word here, which other threads write; what they wrote before it is seen as well."""
        return Number(self.builder, self.builder.load_atomic(self.value, ordering, 8, typ=I64))

    def current_address(self) -> "Words":
        """Return the address here, which other threads write; what they wrote before it is seen as well."""
        return Words(self.builder, self.builder.load_atomic(self.value, "acquire", 8, typ=POINTER))

    def add(self, number: Number | int, ordering: str = "acq_rel") -> Number:
        """Add to the word here, which other threads write; return what it was."""
        return self._changed("add", number, ordering)

    def swap(self, value: Value | int, ordering: str = "acq_rel") -> Number:
        """Write the word here, which other threads read; return what it was."""
        return self._changed("xchg", value, ordering)

    def set_bits(self, bits: int, ordering: str = "acq_rel") -> None:
        """Set bits of the word here, which other threads write."""
        self._changed("or", bits, ordering)

    def keep_bits(self, bits: int, ordering: str = "acq_rel") -> None:
        """Clear all other bits of the word here, which other threads write."""
        self._changed("and", bits, ordering)

    def _changed(self, operation: str, value: Value | int, ordering: str) -> Number:
        (operand,) = operands([value])
        return Number(self.builder, self.builder.atomic_rmw(operation, self.value, operand, ordering))

    def replace(self, old: Number | int, new: Number | int) -> Truth:
        """Write the word here, which other threads write, if it is `old`; return whether it was."""
        expected, wanted = operands([old, new])
        outcome = self.builder.cmpxchg(self.value, expected, wanted, "acq_rel", "acquire")
        return Truth(self.builder, self.builder.extract_value(outcome, 1))

    def call(self, *arguments: Argument) -> None:
        """Call the function at this address, which returns nothing."""
        self._called(VOID, arguments)

    def number_of(self, *arguments: Argument) -> Number:
        """Call the function at this address; return its number."""
        return Number(self.builder, self._called(I64, arguments))

    def address_of(self, *arguments: Argument) -> "Words":
        """Call the function at this address; return its address, which may be a status."""
        return Words(self.builder, self._called(POINTER, arguments))

    def _called(self, returns: ir.Type, arguments: Sequence[Argument]) -> ir.Value:
        values = operands(arguments)
        kind = ir.FunctionType(returns, [value.type for value in values])
        return self.builder.call(FunctionAt(self.value, kind), values)

    def pass_on(self) -> None:
        """Return this status where it is not null."""
        with rarely(self.is_set()):
            self.builder.ret(self.value)


V = TypeVar("V", bound=Value)
W = TypeVar("W", bound=Words)


class Field(Generic[V]):
    """A word of a struct, the next one unless its number is told: its value in an instance, its number in the class."""

    def __init__(self, kind: type[V], at: int | None = None) -> None:
        self._kind = kind
        self._at = at
        self.index = 0

    def __set_name__(self, owner: "type[Struct]", name: str) -> None:
        self.index = owner.word_count if self._at is None else self._at
        owner.word_count = self.index + 1

    @overload
    def __get__(self, instance: None, owner: "type[Struct]") -> int: ...
    @overload
    def __get__(self, instance: "Struct", owner: "type[Struct]") -> V: ...
    def __get__(self, instance: "Struct | None", owner: "type[Struct]") -> V | int:
        return self.index if instance is None else self._read(instance)

    def _read(self, struct: "Struct") -> V:
        place = struct.at(self.index).value
        return self._kind(struct.builder, struct.builder.load(place, typ=self._kind.argument_type))

    def __set__(self, instance: "Struct", value: Argument) -> None:
        instance[self.index] = value


class Shared(Field[Words]):
    """A word that threads share: its address in an instance."""

    def __init__(self, at: int | None = None) -> None:
        super().__init__(Words, at)

    def _read(self, struct: "Struct") -> Words:
        return struct.at(self.index).cast(Words)


def number(at: int | None = None) -> Field[Number]:
    """Declare a word that is a number."""
    return Field(Number, at)


def address(kind: type[W], at: int | None = None) -> Field[W]:
    """Declare a word that is an address."""
    return Field(kind, at)


class Struct(Words):
    """The address of words that have names; those of a derived struct follow."""

    __slots__ = ()

    word_count: ClassVar[int] = 0

    def row(self, index: Index) -> Self:
        """Return one of a table of such structs that begins here."""
        return self.at(index * self.word_count)


@contextmanager
def rarely(condition: Truth) -> Generator[None]:
    """Emit what is done where a condition holds, which it seldom does."""
    with when(condition, likely=False):
        yield


@dataclass
class WordCode:
    """A module under construction, its functions by name, and the builder of the one that is on its way."""

    module: ir.Module
    functions: dict[str, ir.Function] = field(default_factory=dict[str, ir.Function])
    builder: ir.IRBuilder = field(default_factory=ir.IRBuilder)

    def function(
        self, name: str | None = None, *, exported: bool = False, returns: ir.Type | None = None, pointers: int = 0
    ) -> Callable[[Callable[..., Argument | None]], None]:
        """Return a decorator that emits a function under its name, its parameters and its result being of their kinds.

        A result that is no value of those kinds is of the type `returns`; `*arguments` are as many `pointers`.
        """

        def define(body: Callable[..., Argument | None]) -> None:
            parameters, result = Parameters.of(body, pointers), inspect.signature(body).return_annotation
            kind = returns or (VOID if result is None else result.argument_type)
            known = name or body.__name__
            function = ir.Function(self.module, ir.FunctionType(kind, parameters.types), known)
            function.linkage = "external" if exported else "internal"
            function.attributes.add("nounwind")
            self.functions[known] = function
            self.builder = ir.IRBuilder(function.append_basic_block("entry"))
            self._end(parameters.call(body, self.builder, function.args))

        return define

    def _end(self, result: Argument | None) -> None:
        assert self.builder.block is not None
        if result is not None:
            self.leave(result)
        elif not self.builder.block.is_terminated:
            self.builder.ret_void()

    def leave(self, result: Argument | None = None) -> None:
        """Return from the function, with a result where it has one."""
        if result is None:
            self.builder.ret_void()
        else:
            self.builder.ret(*operands([result]))

    def declare(self, name: str, returns: ir.Type, arguments: Sequence[ir.Type]) -> None:
        """Declare a function of another module, such as the C library."""
        self.functions[name] = ir.Function(self.module, ir.FunctionType(returns, arguments), name)

    def call(self, name: str, *arguments: Argument) -> ir.Value:
        """Call a function of the module."""
        return self.builder.call(self.functions[name], operands(arguments))

    def number(self, name: str, *arguments: Argument) -> Number:
        """Call a function of the module; return its number, as wide as it is."""
        return Number(self.builder, self.call(name, *arguments))

    def address(self, name: str, *arguments: Argument) -> Words:
        """Call a function of the module; return its address, which may be a status."""
        return Words(self.builder, self.call(name, *arguments))

    def address_of(self, name: str) -> Words:
        """Return the address of a function of the module."""
        return Words(self.builder, AddressOf(self.functions[name]))

    @property
    def null(self) -> Words:
        """The address of nothing, and the status where all is well."""
        return Words(self.builder, NULL)

    def constant(self, number: int) -> Number:
        """Return a number that is known."""
        return Number(self.builder, i64(number))

    def words(self, count: int = 1) -> Words:
        """Return room on the stack, the same each time the place is passed."""
        with self.builder.goto_entry_block():
            return Words(self.builder, self.builder.alloca(POINTER, count))

    def fresh_words(self, count: Number) -> Words:
        """Return new room on the stack, of a size that only the call knows."""
        return Words(self.builder, self.builder.alloca(POINTER, count.value))

    def wait_until(
        self, is_true: Callable[[], Truth], patience: Number | int | None = None, *, before: int = 0
    ) -> None:
        """Emit a wait until a condition holds, or for no more than `patience` looks, after so many before."""
        looks = self.words()
        looks[0] = before
        flow = Blocks(self.builder, "look", "again", "done")
        flow.enter("look")
        holds = is_true()
        if patience is not None:
            holds |= looks[0] >= patience
        flow.branch(holds, "done", "again")
        flow.at("again")
        self.call("relax", looks[0])
        looks[0] += 1
        flow.go("look")
        flow.at("done")
