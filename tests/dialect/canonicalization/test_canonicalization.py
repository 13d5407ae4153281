import numpy as np
from hypothesis import given, settings
from xdsl.transforms.canonicalize import CanonicalizePass

from redpebble.dialect.semantics.interpreter import interpret
from tests.dialect.pebble_text import context
from tests.dialect.random_modules import Case, cases


@settings(deadline=None, max_examples=30)
@given(cases())
def test_canonicalization_changes_no_result(case: Case) -> None:
    expected = interpret(case.module, case.feeds)
    CanonicalizePass().apply(context(), case.module)
    case.module.verify()
    for before, after in zip(expected, interpret(case.module, case.feeds), strict=True):
        np.testing.assert_array_equal(after, before)


@settings(deadline=None, max_examples=30)
@given(cases())
def test_canonicalization_is_done_after_once(case: Case) -> None:
    CanonicalizePass().apply(context(), case.module)
    once = str(case.module)
    CanonicalizePass().apply(context(), case.module)
    assert str(case.module) == once
