"""Kernels written with values: what they compute, and what they refuse."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llvmlite import ir

from redpebble.lowering.llvm.builder import Code
from redpebble.lowering.llvm.flow import allocated, branch, call, choose, either, fold, loop, select, updated, when
from redpebble.lowering.llvm.values import Bytes, Floats, Ints, Longs, Number, Pointers, Shorts
from redpebble.runtime.jit import emit_object, host_target, load_object


def compiled(define: Callable[[Code], object], pointers: int, numbers: int) -> Callable[..., None]:
    """The function `kernel` of a module; arrays are passed by their addresses."""
    code = Code(host_target(), ir.Module("values"))
    define(code)
    native = load_object(emit_object(str(code.module), host_target()), {"kernel": (pointers, numbers)})
    return lambda *given: native.functions["kernel"](
        *(one.ctypes.data if isinstance(one, np.ndarray) else one for one in given)
    )


Expressions = Callable[[Number, Number], list[Number]]


def compiled_expressions(expressions: Expressions) -> Callable[[int, int], list[int]]:
    """What computes expressions of two numbers."""
    counts: list[int] = []

    def define(code: Code) -> None:
        @code.kernel("kernel", exported=True)
        def _(found: Longs, left: Number, right: Number) -> None:
            made = expressions(left, right)
            counts.append(len(made))
            for index, value in enumerate(made):
                found[index] = value

    function = compiled(define, 1, 2)

    def values(x: int, y: int) -> list[int]:
        found = np.zeros(counts[0], np.int64)
        function(found, x, y)
        return found.tolist()

    return values


small = st.integers(-(2**31), 2**31)


def test_arithmetic_is_that_of_numbers() -> None:
    values = compiled_expressions(
        lambda a, b: [a + b, a - b, a * 3, 7 + a, 7 - a, 5 * b, -a, a.smaller(b), a.larger(b)]
    )

    @given(x=small, y=small)
    def check(x: int, y: int) -> None:
        assert values(x, y) == [x + y, x - y, x * 3, 7 + x, 7 - x, 5 * y, -x, min(x, y), max(x, y)]

    check()


def test_quotients_and_bits_are_those_of_numbers_that_are_not_negative() -> None:
    values = compiled_expressions(
        lambda a, b: [a // b, a % b, a.quotient(b), a.remainder(b), a & b, a | b, a >> 3, a << 3]
    )

    @given(x=st.integers(0, 2**40), y=st.integers(1, 2**20))
    def check(x: int, y: int) -> None:
        assert values(x, y) == [x // y, x % y, x // y, x % y, x & y, x | y, x >> 3, x << 3]

    check()


def test_a_quotient_with_a_sign_is_rounded_towards_zero() -> None:
    values = compiled_expressions(lambda a, b: [a.quotient(b), a.remainder(b), (a - 1).quotient(b)])
    assert values(-7, 2) == [-3, -1, -4]


def test_comparisons_mind_the_sign() -> None:
    values = compiled_expressions(
        lambda a, b: [one.number() for one in (a < b, a <= b, a > b, a >= b, a == b, a != b, ~(a < b))]
    )

    @given(x=small, y=small)
    def check(x: int, y: int) -> None:
        assert values(x, y) == [x < y, x <= y, x > y, x >= y, x == y, x != y, x >= y]

    check()


def test_a_condition_is_neither_true_nor_false_while_code_is_made() -> None:
    def define(code: Code) -> None:
        @code.kernel("kernel")
        def _(x: Number) -> None:
            bool(x == 0)

    with pytest.raises(TypeError, match=r"^a condition of generated code has no value yet: expected when"):
        compiled(define, 0, 1)


def test_elements_of_every_kind_are_read_and_written() -> None:
    def define(code: Code) -> None:
        @code.kernel("kernel", exported=True)
        def _(longs: Longs, ints: Ints, shorts: Shorts, octets: Bytes, floats: Floats, tables: Pointers) -> None:
            # numbers without a sign are wider where they are read; of those that are written the lowest bits are kept
            longs[0] = ints[1] + shorts[1] + octets[1]
            ints[0] = longs.constant(-1).narrow(ir.IntType(32))
            shorts[0] = 7
            octets[0] = octets.narrow(2)
            floats[1] = floats.at(1)[-1]
            tables[0].cast(Longs)[1] = tables.at(1)[0].number() - tables[0].number()

    longs, ints = np.zeros(2, np.int64), np.array([0, 2**32 - 1], np.uint32)
    shorts, octets = np.array([0, 2**16 - 1], np.uint16), np.array([0, 255, 3], np.uint8)
    floats = np.array([1.5, 0], np.float32)
    tables = np.array([longs.ctypes.data, longs.ctypes.data + 24], np.int64)
    compiled(define, 6, 0)(longs, ints, shorts, octets, floats, tables)
    assert longs.tolist() == [2**32 - 1 + 2**16 - 1 + 255, 24]
    assert (ints[0], shorts[0], octets[0], floats[1]) == (2**32 - 1, 7, 3, 1.5)


class Pair(NamedTuple):
    total: Number
    steps: list[Number]


def test_a_fold_carries_whatever_it_is_given() -> None:
    def define(code: Code) -> None:
        @code.kernel("kernel", exported=True)
        def _(found: Longs, count: Number) -> None:
            def step(index: Number, now: Pair) -> Pair:
                return Pair(now.total + index, [now.steps[1], now.steps[0] + 1])

            after = fold(count, Pair(count.constant(0), [count.constant(5), count.constant(9)]), step, start=1)
            for index, value in enumerate((after.total, *after.steps)):
                found[index] = value

    function = compiled(define, 1, 1)
    for count in range(-2, 9):
        found = np.zeros(3, np.int64)
        function(found, count)
        total, steps = 0, [5, 9]
        for index in range(1, count):
            total, steps = total + index, [steps[1], steps[0] + 1]
        assert found.tolist() == [total, *steps]


def test_branches_and_choices() -> None:
    def define(code: Code) -> None:
        @code.kernel("kernel", exported=True)
        def _(found: Longs, x: Number) -> None:
            found[0] = select(x > 1, 10, x)
            found[1] = either(x > 1, lambda: x * 2, lambda: x - 1)
            found[2] = updated(x > 1, x, lambda: x + 100)
            branch(x > 1, lambda: found.__setitem__(3, 1), lambda: found.__setitem__(3, 2))
            choose(x, [("low", [0, 1], lambda: found.__setitem__(4, 1)), ("two", [2], lambda: found.__setitem__(4, 2))])
            with when(x == 3):
                found[5] = 3
            with loop(x, 2) as index:
                found[6] = found[6] + index

    function = compiled(define, 1, 1)
    for x in range(-1, 5):
        found = np.zeros(7, np.int64)
        function(found, x)
        big, cases = x > 1, {0: 1, 1: 1, 2: 2}
        expected = [10 if big else x, x * 2 if big else x - 1, x + 100 if big else x, 1 if big else 2]
        assert found.tolist() == [*expected, cases.get(x, 0), 3 if x == 3 else 0, sum(range(0, x, 2))]


class Rows(NamedTuple):
    first: Longs
    apart: Number


def test_a_named_tuple_stands_for_arguments_in_signatures_and_calls() -> None:
    def define(code: Code) -> None:
        @code.kernel("inner")
        def inner(rows: Rows, value: Number) -> None:
            room = allocated(value, Longs, 2, times=value.constant(1))
            room[1] = value
            rows.first[rows.apart] = room[1]

        @code.kernel("kernel", exported=True)
        def _(rows: Rows, value: Number) -> None:
            call(inner, rows, value + 1)
            call(inner, rows._replace(apart=value.constant(0)), 7)

    found = np.zeros(3, np.int64)
    compiled(define, 1, 2)(found, 2, 40)
    assert found.tolist() == [7, 0, 41]
