import numpy as np
import onnx_ir
import pytest
from onnx import numpy_helper, parser

from redpebble.frontend.operators.conversion import Conversion
from redpebble.frontend.operators.patterns import Choice, Filled, Hole, Match, Mismatch, Number, op
from redpebble.frontend.operators.scope import ValueScope

POWERS = Hole("powers", op.Exp(op.Sub(Hole("x"), Hole("top"))))
PATTERN = op.Div(op.Mul.optional(POWERS, Number("factor")), op.Add.optional(POWERS, Number("epsilon", "a little")))


def matched(nodes: str, pattern: object = PATTERN) -> Match:
    text = f'<ir_version: 8, opset_import: ["" : 18]> g (float[n] x, float[n] y) => (float[n] z) {{ {nodes} }}'
    proto = parser.parse_model(text)
    numbers = {"two": np.array(2, np.float32), "few": np.array([1, 2], np.float32), "ones": np.ones(3, np.float32)}
    proto.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in numbers.items())
    model = onnx_ir.from_proto(proto)
    match = Match(Conversion(model.graph[-1], 18, ValueScope(model, {}, {}, trust_declarations=True)))
    assert isinstance(pattern, type(PATTERN))
    match.root(pattern)
    return match


@pytest.mark.parametrize("product", ["Mul (two, e)", "Mul (e, two)"])
def test_operands_are_met_in_either_order(product: str) -> None:
    match = matched(f"s = Sub (x, y) e = Exp (s) m = {product} i = Identity (e) z = Div (m, i)")
    assert match.value("x").name == "x"
    assert (match.number("factor", 1), match.number("epsilon", 0)) == (2, 0)
    assert {node.op_type for node in match.nodes} == {"Sub", "Exp", "Mul", "Identity"}


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (
            "s = Sub (x, y) e = Exp (s) r = Exp (s) z = Div (r, e)",
            "expected the same powers everywhere, got Exp e and Exp r",
        ),
        ("s = Add (x, y) e = Exp (s) z = Div (e, e)", "expected Sub, got Add s"),
        (
            "s = Sub (x, y) e = Exp (s) a = Add (e, few) z = Div (e, a)",
            r"expected a little, got float32\[2\] few",
        ),
        ("z = Div (x, y)", "expected Exp, got input y"),
    ],
)
def test_the_attempt_that_got_furthest_says_why(nodes: str, message: str) -> None:
    with pytest.raises(Mismatch, match=message):
        matched(nodes)


def test_an_attempt_that_fails_leaves_nothing_behind() -> None:
    other = op.Div(
        Choice({"sum": op.Add(Hole("a"), op.Exp(Hole("b"))), "times": op.Mul(Hole("b"), Hole("a"))}, "kind"),
        Hole("a"),
    )
    match = matched("m = Mul (x, y) z = Div (m, y)", other)
    assert match.get("kind", str) == "times"
    assert match.value("b").name == "x"


def test_a_constant_of_one_number_is_filled() -> None:
    match = matched("z = Div (x, ones)", op.Div(Hole("x"), Filled("fill", "ones", lambda number: number == 1)))
    assert "fill" in match.holes
