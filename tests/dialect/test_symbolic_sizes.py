from fractions import Fraction

import pytest
from xdsl.utils.exceptions import VerifyException

from redpebble.dialect.symbolic_sizes import Size, parts_of_sum, sum_of

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
