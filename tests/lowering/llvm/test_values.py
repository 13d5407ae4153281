"""Kernels written with values: what they compute, and what they refuse."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llvmlite import ir

from redpebble.lowering.llvm.builder import Code
from redpebble.lowering.llvm.flow import (
    Blocks,
    allocated,
    branch,
    call,
    choose,
    either,
    fold,
    loop,
    select,
    updated,
    when,
)
from redpebble.lowering.llvm.values import BYTE, I32, Bytes, Floats, Ints, Longs, Number, Pointers, Shorts
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


def test_a_quotient_is_rounded_up() -> None:
    values = compiled_expressions(lambda a, b: [a.divided_up(b)])

    @given(x=st.integers(0, 2**40), y=st.integers(1, 2**20))
    def check(x: int, y: int) -> None:
        assert values(x, y) == [-(-x // y)]

    check()


def test_a_product_says_whether_it_is_too_large() -> None:
    values = compiled_expressions(lambda a, b: [a.product(b).number, a.product(b).is_too_large.number()])
    assert values(2**31, -(2**31)) == [-(2**62), 0]
    assert values(2**40, 2**40) == [0, 1]


def test_narrow_numbers_are_widened_with_their_sign_or_without() -> None:
    def expressions(a: Number, _: Number) -> list[Number]:
        low = a.narrow(BYTE)
        return [low.wide(), low.signed(), low.wide(I32).set_bits().wide(), low.unsigned("<", 3).number()]

    values = compiled_expressions(expressions)
    assert values(0x1FE, 0) == [254, -2, 7, 0]
    assert values(-1, 0) == [255, -1, 8, 0]
    assert values(2, 0) == [2, 2, 1, 1]


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

    with pytest.raises(TypeError, match=r"^expected when"):
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


def test_an_address_moves_by_elements_or_bytes_and_nothing_is_emitted_for_none() -> None:
    def define(code: Code) -> None:
        @code.kernel("kernel", exported=True)
        def _(found: Longs, index: Number) -> None:
            assert found.at(0) is found
            assert found.after(index.constant(0)) is found
            start = found.number()
            found[0] = found.at(index).number() - start
            found[1] = found.after(index).number() - start
            found[2] = found.cast(Shorts).at(3).number() - start

    found = np.zeros(3, np.int64)
    compiled(define, 1, 1)(found, 5)
    assert found.tolist() == [40, 5, 6]


def test_room_is_the_same_each_time_where_it_is_allocated_once() -> None:
    def define(code: Code) -> None:
        @code.kernel("kernel", exported=True)
        def _(found: Longs, count: Number) -> None:
            with loop(count) as index:
                found[index * 2] = allocated(found, Longs, 4, once=True).number()
                found[index * 2 + 1] = allocated(found, Longs, 4).number()

    found = np.zeros(6, np.int64)
    compiled(define, 1, 1)(found, 3)
    once, each = set(found[::2].tolist()), set(found[1::2].tolist())
    assert (len(once), len(each)) == (1, 3)
    assert not np.any(found % 64)


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


def test_blocks_go_where_they_are_told() -> None:
    def define(code: Code) -> None:
        @code.kernel("kernel", exported=True)
        def _(found: Longs, start: Number) -> None:
            # halves of even numbers, three times odd ones and 1, until there is 1 or 0; 7 stops at once
            flow = Blocks(found.builder, "head", "after")
            before = flow.enter("head")
            now, steps = flow.merged({before: (start, start.constant(0))})
            flow.switch(now, {"one": [0, 1], "stop": [7]}, "more")
            flow.at("one")
            flow.go("after")
            flow.at("stop")
            found[2] = 1
            flow.go("after")
            flow.at("more")
            following = either(now & 1 == 0, lambda: now >> 1, lambda: now * 3 + 1)
            flow.come_back((now, steps), (following, steps + 1))
            flow.go("head")
            flow.at("after")
            found[0], found[1] = now, steps

    function = compiled(define, 1, 1)
    for start, expected in {0: [0, 0, 0], 1: [1, 0, 0], 6: [1, 8, 0], 7: [7, 0, 1], 28: [7, 2, 1]}.items():
        found = np.zeros(3, np.int64)
        function(found, start)
        assert found.tolist() == expected


def test_a_switch_without_another_block_takes_one_of_its_cases() -> None:
    def define(code: Code) -> None:
        @code.kernel("kernel", exported=True)
        def _(found: Longs, number: Number) -> None:
            flow = Blocks(found.builder, "after")
            flow.switch(number, {"even": [0, 2], "odd": [1, 3]})
            ends: dict[ir.Block, Number] = {}
            for name, factor in {"odd": 10, "even": 1}.items():
                flow.at(name)
                result = number * factor + 1
                ends[flow.go("after")] = result
            flow.at("after")
            found[0] = flow.merged(ends)

    function, found = compiled(define, 1, 1), np.zeros(1, np.int64)
    for number, expected in enumerate((1, 11, 3, 31)):
        function(found, number)
        assert found[0] == expected


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


def test_parameters_may_follow_as_many_arrays_as_there_are() -> None:
    def define(code: Code) -> None:
        @code.kernel("kernel", exported=True, rest=3)
        def _(*arrays: Longs, rows: Rows, value: Number) -> None:
            for number, array in enumerate(arrays):
                rows.first[rows.apart * number] = array[0] + value

    found, arrays = np.zeros(5, np.int64), [np.array([number], np.int64) for number in (10, 20, 30)]
    compiled(define, 4, 2)(*arrays, found, 2, 7)
    assert found.tolist() == [17, 0, 27, 0, 37]
