"""Arithmetic on vectors of floats, emitted as LLVM IR that becomes instructions on every target, never calls.

What a few of the operations are in registers, with their instructions on AVX-512:

    splat(s)            s s s s ...                          vbroadcastss
    fma(a, b, c)        a0 b0 + c0, a1 b1 + c1, ...          vfmadd231ps
    max(x, bound)       x0 where not bound0 > x0, ...        vmaxps, whose second operand wins for a NaN
    permuted(l, h, i)   (l ++ h)[i0 & 31], ...               vpermi2ps
    store_chosen(x, m)  memory lane j = xj where mj          vmovups under a mask
    horizontal_sum(x)   halves added: 16 -> 8 -> 4 -> 2 -> 1  vextractf32x8, vaddps
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from ctypes import c_float
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from llvmlite import ir

from ..cpu_target import CpuTarget
from .intrinsics import call_intrinsic
from .values import FLOAT, FLOAT_BYTES, Float, Floats, Number, Pointer, Truth, unwrapped

Operand: TypeAlias = ir.Value | Float | float
"""A vector value, or a number that stands for a vector of it."""

INT = ir.IntType(32)


def int_constants(numbers: Iterable[int]) -> ir.Constant:
    """Return a vector of 32-bit integers, a number a lane, such as the places that a shuffle takes."""
    return _int_constants(tuple(numbers))


# kernels name few constants, and those thousands of times: each is written once
@lru_cache(4096)
def _int_constants(numbers: tuple[int, ...]) -> ir.Constant:
    return ir.Constant(ir.VectorType(INT, len(numbers)), list(numbers))


@lru_cache(4096)
def _float_constants(digits: str, width: int) -> ir.Constant:
    """Return a vector of the number of these digits: as keys, 0.0 and -0.0 would be equal, and no NaN to itself."""
    return ir.Constant(ir.VectorType(FLOAT, width), float.fromhex(digits))


def broadcast(builder: ir.IRBuilder, value: ir.Value, width: int) -> ir.Value:
    """Return a vector with a value in every lane."""
    undefined = ir.Constant(ir.VectorType(value.type, width), ir.Undefined)
    first = builder.insert_element(undefined, value, ir.Constant(INT, 0))
    return builder.shuffle_vector(first, undefined, int_constants([0] * width))


@dataclass(frozen=True)
class Arithmetic(ABC):
    """Sums of products in registers: `width` lanes of 32 bits, at the place of `builder`.

    A lane is a float, or the place of some numbers that an instruction multiplies and adds at once.
    """

    builder: ir.IRBuilder
    width: int

    @property
    @abstractmethod
    def vector(self) -> ir.VectorType:
        """The type of a vector of sums."""

    @property
    def size(self) -> int:
        """The bytes of a vector."""
        return FLOAT_BYTES * self.width

    def splat(self, value: Operand) -> ir.Value:
        """Return a vector with a value in every lane; a vector is returned as it is."""
        if isinstance(value, Float):
            value = value.value
        assert isinstance(value, ir.Value)
        return value if isinstance(value.type, ir.VectorType) else broadcast(self.builder, value, self.width)

    @abstractmethod
    def multiplied(self, total: ir.Value, vector: ir.Value, factor: ir.Value) -> ir.Value:
        """Return total + vector * factor."""

    def load(self, pointer: Pointer[Any], align: int = 4) -> ir.Value:
        """Return the vector at `pointer`, whose address is a multiple of `align` bytes."""
        return pointer.load(self.vector, align)

    def store(self, value: Operand, pointer: Pointer[Any], align: int = 4) -> None:
        """Write a vector to `pointer`, whose address is a multiple of `align` bytes."""
        pointer.store(self.splat(value), align)

    def vectors(self, pointer: Pointer[Any], count: int) -> Iterator[ir.Value]:
        """Load vectors that lie one after the other from a multiple of their size on, each when it is asked for."""
        for index in range(count):
            yield self.load(pointer.at(self.width * index), self.size)

    def put(self, pointer: Pointer[Any], values: Iterable[Operand]) -> None:
        """Write vectors one after the other from a multiple of their size on."""
        for index, value in enumerate(values):
            self.store(value, pointer.at(self.width * index), self.size)

    def add_products(self, sums: Sequence[ir.Value], factor: Operand, vectors: Iterable[ir.Value]) -> list[ir.Value]:
        """Return sums[v] + factor * vectors[v]."""
        every = self.splat(factor)
        return [self.multiplied(total, vector, every) for vector, total in zip(vectors, sums, strict=True)]

    def add_outer(
        self, sums: Sequence[ir.Value], factors: Iterable[Operand], vectors: Sequence[ir.Value]
    ) -> list[ir.Value]:
        """Return sums[r][v] + factors[r] * vectors[v]; the sums of the first factor come first."""
        count, following = len(vectors), list[ir.Value]()
        for row, factor in enumerate(factors):
            following += self.add_products(sums[row * count : (row + 1) * count], factor, vectors)
        return following


@dataclass(frozen=True)
class Lanes(Arithmetic):
    """The operations on vectors of `width` floats (a power of two) at the place of `builder`.

    Comparisons give vectors of i1. Integer vectors have 32-bit lanes, as many as the floats whose bits they are.
    """

    target: CpuTarget

    @property
    def vector(self) -> ir.VectorType:
        """The type of a vector of floats."""
        return ir.VectorType(FLOAT, self.width)

    @property
    def int_vector(self) -> ir.VectorType:
        """The type of a vector of 32-bit integers."""
        return ir.VectorType(INT, self.width)

    def splat(self, value: Operand) -> ir.Value:
        """Return a vector with `value`, a number or an f32 value, in every lane; a vector is returned as it is."""
        if isinstance(value, ir.Value | Float):
            return super().splat(value)
        # c_float rounds to f32, beyond its range to infinity, where llvmlite would refuse
        return _float_constants(c_float(value).value.hex(), self.width)

    def multiplied(self, total: ir.Value, vector: ir.Value, factor: ir.Value) -> ir.Value:
        """Return total + vector * factor, rounded as `fma` does."""
        return self.fma(factor, vector, total)

    def store_past_caches(self, value: ir.Value, pointer: Floats) -> None:
        """Write a vector that is a line, at the address of one, without reading the line first or keeping it."""
        store = self.builder.store(value, pointer.value, align=self.size)
        store.set_metadata("nontemporal", self.builder.module.add_metadata([ir.Constant(INT, 1)]))

    def finish_past_caches(self) -> None:
        """Let other threads see what was written past the caches before what is written next; AVX-512 only."""
        call_intrinsic(self.builder, "llvm.x86.sse.sfence", ir.VoidType(), [])

    def permuted(self, low: ir.Value, high: ir.Value, indices: ir.Value) -> ir.Value:
        """Return in each lane the value of two vectors of 16 that the last 5 bits of its index say; AVX-512 only."""
        name = "llvm.x86.avx512.vpermi2var.ps.512"
        return call_intrinsic(self.builder, name, self.vector, [low, indices, high])

    def load_chosen(self, pointer: Floats, chosen: ir.Value) -> ir.Value:
        """Return the floats from `pointer` on in the lanes that are chosen, 0 in others; nothing else is read."""
        operands = [pointer.value, ir.Constant(INT, 4), chosen, self.splat(0.0)]
        return call_intrinsic(self.builder, f"llvm.masked.load.v{self.width}f32.p0", self.vector, operands)

    def store_chosen(self, value: ir.Value, pointer: Floats, chosen: ir.Value) -> None:
        """Write the lanes that are chosen, a vector of i1, to their places from `pointer` on."""
        operands = [value, pointer.value, ir.Constant(INT, 4), chosen]
        call_intrinsic(self.builder, f"llvm.masked.store.v{self.width}f32.p0", ir.VoidType(), operands)

    def below(self, count: Number, first: int = 0) -> ir.Value:
        """Return where the number of a lane, the lowest one being `first`, is below `count`."""
        numbers = int_constants(range(first, first + self.width))
        return self.builder.icmp_signed("<", numbers, self.splat_int(count.narrow(INT)))

    def splat_int(self, value: Number) -> ir.Value:
        """Return a 32-bit integer in every lane."""
        return broadcast(self.builder, value.value, self.width)

    def add(self, left: Operand, right: Operand) -> ir.Value:
        """Return left + right."""
        return self.builder.fadd(self.splat(left), self.splat(right))

    def sub(self, left: Operand, right: Operand) -> ir.Value:
        """Return left - right."""
        return self.builder.fsub(self.splat(left), self.splat(right))

    def mul(self, left: Operand, right: Operand) -> ir.Value:
        """Return left * right."""
        return self.builder.fmul(self.splat(left), self.splat(right))

    def div(self, left: Operand, right: Operand) -> ir.Value:
        """Return left / right, rounded once (never an approximate reciprocal)."""
        return self.builder.fdiv(self.splat(left), self.splat(right))

    def neg(self, x: Operand) -> ir.Value:
        """Return -x, that is x with the other sign bit."""
        return self.builder.fneg(self.splat(x))

    def fma(self, left: Operand, right: Operand, addend: Operand) -> ir.Value:
        """Return left * right + addend, rounded once where the target can, else twice."""
        if not self.target.has_fma:
            return self.add(self.mul(left, right), addend)
        return self._intrinsic("fma", left, right, addend)

    def polynomial(self, x: ir.Value, coefficients: Sequence[float]) -> ir.Value:
        """Return c0 + c1 x + c2 x^2 + ... by Horner's rule."""
        *rest, last = coefficients
        result = self.splat(last)
        for coefficient in reversed(rest):
            result = self.fma(result, x, coefficient)
        return result

    def sqrt(self, x: Operand) -> ir.Value:
        """Return the square root, rounded once; NaN for negative numbers."""
        return self._intrinsic("sqrt", x)

    def abs(self, x: Operand) -> ir.Value:
        """Return x without its sign bit."""
        return self._intrinsic("fabs", x)

    def copysign(self, magnitude: Operand, sign: Operand) -> ir.Value:
        """Return the first operand with the second one's sign bit."""
        return self._intrinsic("copysign", magnitude, sign)

    def max(self, x: Operand, bound: Operand) -> ir.Value:
        """Return the larger one. A NaN in `x` is kept (so relu(NaN) is NaN), one in `bound` is not."""
        value, limit = self.splat(x), self.splat(bound)
        return self.builder.select(self.builder.fcmp_ordered(">", limit, value), limit, value)

    def min(self, x: Operand, bound: Operand) -> ir.Value:
        """Return the smaller one. A NaN in `x` is kept, one in `bound` is not."""
        value, limit = self.splat(x), self.splat(bound)
        return self.builder.select(self.builder.fcmp_ordered("<", limit, value), limit, value)

    def compare(self, operator: str, left: Operand, right: Operand) -> ir.Value:
        """Return where `left operator right` holds (<, <=, >, >=, ==, !=); it never holds for a NaN."""
        return self.builder.fcmp_ordered(operator, self.splat(left), self.splat(right))

    def is_nan(self, x: Operand) -> ir.Value:
        """Return where `x` is NaN."""
        return self.builder.fcmp_unordered("uno", self.splat(x), self.splat(x))

    def select(self, condition: ir.Value | Truth, then: Operand, otherwise: Operand) -> ir.Value:
        """Return `then` in the lanes where `condition` holds, `otherwise` in the others."""
        return self.builder.select(unwrapped(condition), self.splat(then), self.splat(otherwise))

    def ints(self, value: int) -> ir.Constant:
        """Return an integer vector with `value` in every lane."""
        return int_constants([value] * self.width)

    def bits(self, x: Operand) -> ir.Value:
        """Return the bits of floats as integers."""
        return self.builder.bitcast(self.splat(x), self.int_vector)

    def from_bits(self, bits: ir.Value) -> ir.Value:
        """Return the floats that have these bits."""
        return self.builder.bitcast(bits, self.vector)

    def to_float(self, integers: ir.Value) -> ir.Value:
        """Return signed integers as floats."""
        return self.builder.sitofp(integers, self.vector)

    def horizontal_sum(self, x: ir.Value) -> ir.Value:
        """Return the sum of all lanes, an f32 value; halves are added to each other."""
        while True:
            halves = self._halves(x)
            if halves is None:
                return self.builder.extract_element(x, ir.Constant(INT, 0))
            x = self.builder.fadd(*halves)

    def horizontal_max(self, x: ir.Value) -> ir.Value:
        """Return the largest of all lanes, an f32 value; NaN when a lane is NaN."""
        while True:
            halves = self._halves(x)
            if halves is None:
                return self.builder.extract_element(x, ir.Constant(INT, 0))
            lower, upper = halves
            larger = self.max(lower, upper)
            x = self.builder.select(self.is_nan(upper), upper, larger)

    def _halves(self, x: ir.Value) -> tuple[ir.Value, ir.Value] | None:
        """Return the lower and the upper half of a vector's lanes, nothing for a single lane."""
        assert isinstance(x.type, ir.VectorType)
        half = len(x.type) // 2
        if half == 0:
            return None
        lower = self.builder.shuffle_vector(x, x, int_constants(range(half)))
        return lower, self.builder.shuffle_vector(x, x, int_constants(range(half, 2 * half)))

    def _intrinsic(self, name: str, *operands: Operand) -> ir.Value:
        """Return the result of one of LLVM's intrinsics, whose type is that of its operands."""
        vectors = [self.splat(operand) for operand in operands]
        return call_intrinsic(self.builder, f"llvm.{name}.v{self.width}f32", self.vector, vectors)
