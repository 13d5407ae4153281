"""Numbers of which operations in float32 make given results."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from redpebble.foundation.rounded_inverses import dividend_of, factors_of

NUMBERS = st.floats(0.0625, 64, width=32)


@given(st.lists(NUMBERS, min_size=1, max_size=8), NUMBERS)
def test_factors_of_products_make_the_same_products(factors: list[float], factor: float) -> None:
    products = np.array(factors, np.float32) * np.float32(factor)
    found = factors_of(products, factor)
    assert found is not None
    assert np.array_equal(found * np.float32(factor), products)


def test_products_that_no_factor_makes_have_none() -> None:
    # floats above 1 lie as far apart as those above 1.5, so that their products by 1.5 leave some of these out
    near = np.float32(1) + np.arange(64, dtype=np.float32) * np.float32(2**-23)
    product = np.nextafter(np.float32(1.5), np.float32(2))
    assert product not in near * np.float32(1.5)
    assert factors_of(np.array([product]), 1.5) is None


@given(st.lists(NUMBERS, min_size=1, max_size=8), NUMBERS)
def test_dividends_of_quotients_make_the_same_quotients(dividends: list[float], divisor: float) -> None:
    quotients = np.array(dividends, np.float32) / np.float32(divisor)
    found = dividend_of(quotients, divisor)
    assert found is not None
    assert np.array_equal(found / np.float32(divisor), quotients)
