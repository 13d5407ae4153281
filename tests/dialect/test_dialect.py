import pytest
from xdsl.dialects.test import TestType as OtherType
from xdsl.ir import Block, Operation
from xdsl.utils.exceptions import ParseError, VerifyException

from redpebble.dialect.pebble import Pebble
from redpebble.dialect.tensors import shape_of
from tests.dialect.pebble_text import parse, parse_attribute

OPS = list(Pebble.operations)


@pytest.mark.parametrize("op", OPS, ids=[op.name for op in OPS])
def test_an_op_shows_an_example_of_itself(op: type[Operation]) -> None:
    text = op.__doc__ or ""
    assert op.name in text.partition("```mlir")[2]


def test_a_value_that_is_no_tensor_has_no_shape() -> None:
    (value,) = Block(arg_types=[OtherType("x")]).args
    with pytest.raises(VerifyException, match=r'^expected a ranked tensor, got !test.type<"x">$'):
        shape_of(value)


def test_a_constant_of_integers_is_refused() -> None:
    with pytest.raises(ParseError, match=r"expected dense f32 elements"):
        parse("%0 = pebble.constant dense<1> : tensor<2xi64>")


def test_an_attribute_that_breaks_its_rule_is_refused_while_parsing() -> None:
    with pytest.raises(VerifyException, match=r"^expected 0 or more nonzeros, got -1$"):
        parse_attribute("#pebble.sparsity<nonzeros = -1>")
