"""Values of kernels: numbers, conditions and addresses that know their builder, so that arithmetic reads as written.

    inputs[at] * width + first     a load of 32 bits, widened; a product; a sum, all of 64 bits
    bias[row]                      the float at a place
    y[row] = value                 a store
    x.at(place), x.after(size)     addresses some elements, or bytes, on
    left < right, index == 0       conditions, for `when`, `select` and `either` of `flow`

What has been computed is an `ir.Value` inside; vectors and single floats are used as these, by way of `Lanes`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Generic, NoReturn, Self, TypeVar, cast

from llvmlite import ir

from .intrinsics import intrinsic


class BfloatType(ir.Type):
    """The type of a bfloat16, which llvmlite lacks."""

    def __str__(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BfloatType)

    def __hash__(self) -> int:
        return hash(BfloatType)


POINTER = ir.PointerType()
I1 = ir.IntType(1)
BYTE = ir.IntType(8)
I16 = ir.IntType(16)
I32 = ir.IntType(32)
I64 = ir.IntType(64)
FLOAT = ir.FloatType()
BFLOAT = BfloatType()
VOID = ir.VoidType()
NULL = ir.Constant(POINTER, None)

FLOAT_BYTES = 4
ADDRESS_BYTES = 8
ALIGNMENT = 64
"""Bytes to which every buffer and packed array is aligned: a cache line, and a vector of the widest target."""


def i64(value: int) -> ir.Constant:
    """Return a 64-bit constant."""
    return ir.Constant(I64, value)


class Value:
    """A value of LLVM, and the builder that goes on behind it."""

    __slots__ = ("builder", "value")

    argument_type: ClassVar[ir.Type]
    """The type as an argument of a kernel."""

    def __init__(self, builder: ir.IRBuilder, value: ir.Value) -> None:
        self.builder = builder
        self.value = value

    def constant(self, number: int) -> "Number":
        """Return a constant of 64 bits, for where a value is wanted that knows its builder."""
        return Number(self.builder, i64(number))


class Truth(Value):
    """A condition of the running code, which nothing is known of here."""

    __slots__ = ()

    argument_type = I1

    def __and__(self, other: "Truth") -> "Truth":
        return Truth(self.builder, self.builder.and_(self.value, other.value))

    def __or__(self, other: "Truth") -> "Truth":
        return Truth(self.builder, self.builder.or_(self.value, other.value))

    def __invert__(self) -> "Truth":
        return Truth(self.builder, self.builder.not_(self.value))

    def number(self, width: ir.IntType = I64) -> "Number":
        """Return 1 where it holds, 0 where it does not."""
        return Number(self.builder, self.builder.zext(self.value, width))

    def __bool__(self) -> NoReturn:
        raise TypeError("expected when(..), select(..) or either(..) of a condition of generated code, got bool(..)")


class Number(Value):
    """An integer of 64 bits, or of fewer where it is narrow; one of Python is a constant of the same width.

    Division and remainder are those of numbers that are not negative; comparisons mind the sign.
    """

    __slots__ = ()

    argument_type = I64

    def constant(self, number: int) -> "Number":
        """Return a constant of the same width."""
        return Number(self.builder, self._operand(number))

    def _operand(self, other: "Number | int") -> ir.Value:
        return ir.Constant(self.value.type, other) if isinstance(other, int) else other.value

    def __add__(self, other: "Number | int") -> "Number":
        return Number(self.builder, self.builder.add(self.value, self._operand(other)))

    def __radd__(self, other: int) -> "Number":
        return Number(self.builder, self.builder.add(self._operand(other), self.value))

    def __sub__(self, other: "Number | int") -> "Number":
        return Number(self.builder, self.builder.sub(self.value, self._operand(other)))

    def __rsub__(self, other: int) -> "Number":
        return Number(self.builder, self.builder.sub(self._operand(other), self.value))

    def __neg__(self) -> "Number":
        return Number(self.builder, self.builder.neg(self.value))

    def __mul__(self, other: "Number | int") -> "Number":
        return Number(self.builder, self.builder.mul(self.value, self._operand(other)))

    def __rmul__(self, other: int) -> "Number":
        return Number(self.builder, self.builder.mul(self._operand(other), self.value))

    def __floordiv__(self, other: "Number | int") -> "Number":
        return Number(self.builder, self.builder.udiv(self.value, self._operand(other)))

    def divided_up(self, other: "Number | int") -> "Number":
        """Return the quotient rounded up."""
        return (self + other - 1) // other

    def __mod__(self, other: "Number | int") -> "Number":
        return Number(self.builder, self.builder.urem(self.value, self._operand(other)))

    def product(self, other: "Number | int") -> "Product":
        """Return a product that may be too large for 64 bits."""
        return Product(self.builder, self.builder.smul_with_overflow(self.value, self._operand(other)))

    def quotient(self, other: "Number | int") -> "Number":
        """Return self / other rounded towards zero, both with their signs."""
        return Number(self.builder, self.builder.sdiv(self.value, self._operand(other)))

    def remainder(self, other: "Number | int") -> "Number":
        """Return what `quotient` leaves over."""
        return Number(self.builder, self.builder.srem(self.value, self._operand(other)))

    def __lshift__(self, bits: "Number | int") -> "Number":
        return Number(self.builder, self.builder.shl(self.value, self._operand(bits)))

    def __rlshift__(self, other: int) -> "Number":
        return Number(self.builder, self.builder.shl(self._operand(other), self.value))

    def __rshift__(self, bits: "Number | int") -> "Number":
        return Number(self.builder, self.builder.lshr(self.value, self._operand(bits)))

    def __and__(self, other: "Number | int") -> "Number":
        return Number(self.builder, self.builder.and_(self.value, self._operand(other)))

    def __invert__(self) -> "Number":
        return Number(self.builder, self.builder.not_(self.value))

    def __or__(self, other: "Number | int") -> "Number":
        return Number(self.builder, self.builder.or_(self.value, self._operand(other)))

    def __lt__(self, other: "Number | int") -> Truth:
        return self._compared("<", other)

    def __le__(self, other: "Number | int") -> Truth:
        return self._compared("<=", other)

    def __gt__(self, other: "Number | int") -> Truth:
        return self._compared(">", other)

    def __ge__(self, other: "Number | int") -> Truth:
        return self._compared(">=", other)

    def __eq__(self, other: "Number | int") -> Truth:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._compared("==", other)

    def __ne__(self, other: "Number | int") -> Truth:  # pyright: ignore[reportIncompatibleMethodOverride]
        return self._compared("!=", other)

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def _compared(self, operator: str, other: "Number | int") -> Truth:
        return Truth(self.builder, self.builder.icmp_signed(operator, self.value, self._operand(other)))

    def unsigned(self, operator: str, other: "Number | int") -> Truth:
        """Return how both compare as numbers without a sign."""
        return Truth(self.builder, self.builder.icmp_unsigned(operator, self.value, self._operand(other)))

    def wide(self, width: ir.IntType = I64) -> "Number":
        """Return a narrow number that is not negative in 64 bits, or fewer."""
        return Number(self.builder, self.builder.zext(self.value, width))

    def signed(self, width: ir.IntType = I64) -> "Number":
        """Return a narrow number with its sign in 64 bits, or fewer."""
        return Number(self.builder, self.builder.sext(self.value, width))

    def set_bits(self) -> "Number":
        """Return the number of bits that are 1."""
        return Number(self.builder, self.builder.ctpop(self.value))

    def narrow(self, width: ir.IntType) -> "Number":
        """Return the lowest bits."""
        return Number(self.builder, self.builder.trunc(self.value, width))

    def smaller(self, other: "Number | int") -> "Number":
        """Return the smaller one of two numbers."""
        return self._chosen("<", other)

    def larger(self, other: "Number | int") -> "Number":
        """Return the larger one of two numbers."""
        return self._chosen(">", other)

    def _chosen(self, operator: str, other: "Number | int") -> "Number":
        operand = self._operand(other)
        holds = self.builder.icmp_signed(operator, self.value, operand)
        return Number(self.builder, self.builder.select(holds, self.value, operand))


class Byte(Number):
    """A number of 8 bits, as an argument."""

    __slots__ = ()

    argument_type = BYTE


class Int(Number):
    """A number of 32 bits, as an argument."""

    __slots__ = ()

    argument_type = I32


class Float(Value):
    """A float, as an argument."""

    __slots__ = ()

    argument_type = FLOAT


class Product(Value):
    """A product of two numbers with their signs."""

    __slots__ = ()

    @property
    def number(self) -> Number:
        """Its lowest bits."""
        return Number(self.builder, self.builder.extract_value(self.value, 0))

    @property
    def is_too_large(self) -> Truth:
        """Whether there are more."""
        return Truth(self.builder, self.builder.extract_value(self.value, 1))


Item = TypeVar("Item")
P = TypeVar("P", bound="Pointer[Any]")

Index = Number | int


class Pointer(Value, ABC, Generic[Item]):
    """The address of elements of one kind in memory."""

    __slots__ = ()

    argument_type = POINTER

    element: ClassVar[ir.Type]

    def at(self, index: Index) -> Self:
        """Return the address of an element; nothing is emitted for the first one."""
        return self._moved(index, self.element)

    def after(self, offset: Index) -> Self:
        """Return the address some bytes on."""
        return self._moved(offset, BYTE)

    def _moved(self, index: Index, unit: ir.Type) -> Self:
        steps = i64(index) if isinstance(index, int) else index.value
        if isinstance(steps, ir.Constant) and steps.constant == 0:
            return self
        return type(self)(self.builder, self.builder.gep(self.value, [steps], source_etype=unit))

    def number(self) -> Number:
        """Return the address as a number."""
        return Number(self.builder, self.builder.ptrtoint(self.value, I64))

    def cast(self, kind: type[P]) -> P:
        """Return the same address, of elements of another kind."""
        return kind(self.builder, self.value)

    def __getitem__(self, index: Index) -> Item:
        return self._item(self.builder.load(self.at(index).value, typ=self.element))

    @abstractmethod
    def _item(self, loaded: ir.Value) -> Item:
        """Return an element that has been loaded."""

    def load(self, kind: ir.Type, align: int) -> ir.Value:
        """Return what is at the address, such as a vector; `align` is a number of bytes that divides the address."""
        return self.builder.load(self.value, typ=kind, align=align)

    def store(self, value: ir.Value, align: int) -> None:
        """Write a value, such as a vector, to the address."""
        self.builder.store(value, self.value, align=align)

    def fetch(self, lines: int) -> None:
        """Emit the fetching of cache lines into the first level; the address may be anything."""
        fetch = intrinsic(self.builder, "llvm.prefetch.p0", VOID, [POINTER, I32, I32, I32])
        to_read, keep_near, data = (ir.Constant(I32, value) for value in (0, 3, 1))
        for line in range(lines):
            self.builder.call(fetch, [self.after(ALIGNMENT * line).value, to_read, keep_near, data])


class Floats(Pointer[ir.Value]):
    """The address of floats of 32 bits; one that is read is an `ir.Value`, for `Lanes.splat`."""

    __slots__ = ()

    element = FLOAT

    def _item(self, loaded: ir.Value) -> ir.Value:
        return loaded

    def __setitem__(self, index: Index, value: ir.Value) -> None:
        self.builder.store(value, self.at(index).value)


class Integers(Pointer[Number]):
    """The address of integers; those that are narrow and without a sign are widened where they are read."""

    __slots__ = ()

    def _item(self, loaded: ir.Value) -> Number:
        return Number(self.builder, loaded).wide()

    def narrow(self, index: Index) -> Number:
        """Return an element as narrow as it is."""
        return Number(self.builder, self.builder.load(self.at(index).value, typ=self.element))

    def __setitem__(self, index: Index, value: Number | int) -> None:
        stored = ir.Constant(self.element, value) if isinstance(value, int) else value.value
        self.builder.store(stored, self.at(index).value)


class Bytes(Integers):
    """The address of bytes, or of memory of any kind."""

    __slots__ = ()

    element = BYTE


class Shorts(Integers):
    """The address of 16-bit numbers without a sign."""

    __slots__ = ()

    element = I16


class Ints(Integers):
    """The address of 32-bit numbers without a sign."""

    __slots__ = ()

    element = I32


class Longs(Integers):
    """The address of 64-bit numbers."""

    __slots__ = ()

    element = I64

    def _item(self, loaded: ir.Value) -> Number:
        return Number(self.builder, loaded)


class Pointers(Pointer[Bytes]):
    """The address of addresses."""

    __slots__ = ()

    element = POINTER

    def _item(self, loaded: ir.Value) -> Bytes:
        return Bytes(self.builder, loaded)

    def __setitem__(self, index: Index, address: Pointer[Any]) -> None:
        self.builder.store(address.value, self.at(index).value)


def unwrapped(value: Value | ir.Value) -> ir.Value:
    """Return LLVM's value."""
    return value.value if isinstance(value, Value) else value


Argument = Value | ir.Value | int | Sequence["Argument"]
"""An argument of a call, or a named tuple that stands for some; integers have 64 bits."""


def leaves(state: object) -> list[ir.Value]:
    """Return LLVM's values in a value, or in a tuple or list of such."""
    if isinstance(state, Value):
        return [state.value]
    if isinstance(state, ir.Value):
        return [state]
    return [leaf for part in cast("Sequence[object]", state) for leaf in leaves(part)]


def operands(arguments: Iterable[Argument]) -> list[ir.Value]:
    """Return arguments of a call as LLVM's values."""
    values: list[ir.Value] = []
    for argument in arguments:
        if isinstance(argument, int):
            values.append(i64(argument))
        elif isinstance(argument, Value | ir.Value):
            values.append(unwrapped(argument))
        else:
            values += operands(argument)
    return values
