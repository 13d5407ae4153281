from fractions import Fraction

import pytest
from xdsl.utils.exceptions import VerifyException

from redpebble.dialect.symbolic_sizes import Size, computed_of, parts_of_sum, row_of, sum_of, windows_of

PAST, OWN = Size.symbol("past"), Size.symbol("own [1]")


def test_multiples_of_one_product_have_a_sum_that_is_one() -> None:
    assert sum_of([PAST * Size.known(2), PAST]) == PAST * Size.known(3)
    assert sum_of([Size.known(2), Size.known(5)]) == Size.known(7)


def test_other_sums_are_a_symbol_that_says_what_was_added() -> None:
    half = Size(Fraction(1, 2), (("past", 1),))
    total = sum_of([half, OWN, Size.known(3)])
    assert str(total * total) == "(1/2*past + own [1] + 3)^2"
    assert parts_of_sum(total.powers[0][0]) == (half, OWN, Size.known(3))
    assert (total * PAST).evaluate({"past": 4, "own [1]": 6}) == 44
    assert str(sum_of([total, PAST])) == "(3/2*past + own [1] + 3)"
    assert sum_of([total * PAST, PAST]).evaluate({"past": 4, "own [1]": 6}) == 48
    assert (PAST / total).evaluate({"past": 0, "own [1]": 0}) == 0


def test_equal_sums_are_equal_sizes() -> None:
    assert sum_of([PAST, OWN]) / sum_of([PAST, OWN]) == Size.known(1)


def test_a_sum_whose_name_grows_without_end_is_refused() -> None:
    def grow(size: Size) -> None:
        grow(sum_of([size * PAST, OWN]))

    with pytest.raises(VerifyException, match="expected a single size, got a sum of 2"):
        grow(OWN)


def test_what_a_model_calls_a_size_is_no_sum() -> None:
    name = sum_of([PAST, OWN]).powers[0][0]
    assert Size.symbol(name).evaluate({name: 3, "past": 1, "own [1]": 1}) == 3
    assert parts_of_sum("past + own") == ()


@pytest.mark.parametrize("name", ["sum of ", "sum of parts", "sum of [1]", 'sum of [["1"]]', 'sum of [["1/0", []]]'])
def test_names_that_only_look_like_sums_are_none(name: str) -> None:
    assert parts_of_sum(name) == ()
    assert str(Size.symbol(name)) == name


def test_windows_of_windows_are_larger_ones_and_have_one_name() -> None:
    length = Size.symbol("length")
    halves = windows_of(length, 1, 2)
    for size in range(40):
        both = windows_of(halves, -2, 3).evaluate({"length": size})
        assert both == max(0, (halves.evaluate({"length": size}) - 2) // 3)
    assert windows_of(windows_of(length, -2, 1), 2, 1) == length
    assert windows_of(halves, 0, 2) == windows_of(length, 1, 4)
    assert windows_of(Size.known(7), 1, 2) == Size.known(4)
    assert row_of(windows_of(halves, -2, 3)) == length
    assert str(halves) == "((length + 1) / 2)"


def test_windows_of_which_there_is_one_at_least_are_counted_by_themselves() -> None:
    length = Size.symbol("length")
    pooled = windows_of(windows_of(length, 0, 2, 1), 1, 1)
    assert [pooled.evaluate({"length": size}) for size in (1, 2, 3, 4)] == [2, 2, 2, 3]
    assert computed_of(pooled.powers[0][0]) == [windows_of(length, 0, 2, 1).powers[0][0], pooled.powers[0][0]]


def test_windows_are_of_a_size_of_an_input() -> None:
    with pytest.raises(VerifyException, match=r"expected a row whose length is a size of an input, got 2\*length"):
        windows_of(Size.known(2) * Size.symbol("length"), 0, 2)
