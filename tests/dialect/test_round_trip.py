import pytest
from hypothesis import given, settings

from tests.dialect.pebble_text import parse, text_of
from tests.dialect.random_modules import NEUTRAL, ORDINARY, Case, cases


@pytest.mark.slow
@settings(deadline=None, max_examples=30)
@given(cases())
def test_a_module_reads_back_as_it_was_printed(case: Case) -> None:
    case.module.verify()
    text = text_of(case.module)
    read = parse(text)
    assert read.is_structurally_equivalent(case.module)
    assert text_of(read) == text


# xDSL itself does not read back the infinities and NaN of a dense attribute, which is what the generic form prints
@settings(deadline=None, max_examples=30)
@given(cases(numbers=NEUTRAL[:1] + ORDINARY))
def test_a_module_reads_back_from_the_generic_form(case: Case) -> None:
    read = parse(text_of(case.module, generic=True))
    assert read.is_structurally_equivalent(case.module)
    assert text_of(read) == text_of(case.module)
