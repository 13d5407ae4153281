"""The elementwise functions of one variable: their names and their parameters, once for every layer of the compiler."""

from collections.abc import Sequence
from math import isnan
from types import MappingProxyType
from typing import Final

from xdsl.dialects.builtin import ArrayAttr, FloatAttr, StringAttr, f64
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

ACTIVATION_PARAMETERS: Final = MappingProxyType(
    {
        "abs": (),
        "celu": ("alpha",),
        "clip": ("min", "max"),
        "elu": ("alpha",),
        "erf": (),
        "exp": (),
        "gelu": (),
        "gelu_tanh": (),
        "hard_sigmoid": ("alpha", "beta"),
        "hard_swish": (),
        "leaky_relu": ("alpha",),
        "log": (),
        "mish": (),
        "neg": (),
        "reciprocal": (),
        "relu": (),
        "selu": ("alpha", "gamma"),
        "sigmoid": (),
        "silu": ("alpha",),
        "softplus": (),
        "sqrt": (),
        "square": (),
        "tanh": (),
    }
)
"""Kind of activation -> the names of its parameters, in the order in which they are printed.

`silu` is x * sigmoid(alpha * x); `gelu` is the exact form with erf, `gelu_tanh` the approximation with tanh.
`clip` holds -inf and inf where a bound is missing; min wins nowhere: min > max gives max, as in ONNX."""


@irdl_attr_definition
class ActivationAttr(ParametrizedAttribute):
    """An elementwise function and its parameters: `#pebble.activation<leaky_relu(0.01)>`."""

    name = "pebble.activation"

    kind: StringAttr
    arguments: ArrayAttr[FloatAttr]

    @staticmethod
    def of(kind: str, *parameters: float) -> "ActivationAttr":
        """Return the activation `kind` with its parameters in the order of `ACTIVATION_PARAMETERS`."""
        return ActivationAttr(StringAttr(kind), ArrayAttr([FloatAttr(value, f64) for value in parameters]))

    @property
    def values(self) -> tuple[float, ...]:
        """The parameters as Python floats."""
        return tuple(parameter.value.data for parameter in self.arguments)

    def verify(self) -> None:
        expected = ACTIVATION_PARAMETERS.get(self.kind.data)
        if expected is None:
            known = ", ".join(sorted(ACTIVATION_PARAMETERS))
            raise VerifyException(f"unknown activation {self.kind.data!r}, accepted are {known}")
        if len(self.arguments) != len(expected):
            raise VerifyException(
                f"activation {self.kind.data} has {len(self.arguments)} parameters, expected {len(expected)}"
            )

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            kind = parser.parse_identifier()
            values = parser.parse_optional_comma_separated_list(parser.Delimiter.PAREN, lambda: _parse_float(parser))
        return (StringAttr(kind), ArrayAttr([FloatAttr(value, f64) for value in values or ()]))

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.kind.data)
            if self.arguments.data:
                printer.print_string("(" + ", ".join(_float_text(value) for value in self.values) + ")")


def _parse_float(parser: AttrParser) -> float:
    """Parse a decimal number, or the words inf, -inf and nan that MLIR's grammar lacks."""
    negative = parser.parse_optional_punctuation("-") is not None
    for word in ("inf", "nan"):
        if parser.parse_optional_keyword(word) is not None:
            return -float(word) if negative else float(word)
    value = float(parser.parse_number(allow_boolean=False))
    return -value if negative else value


def _float_text(value: float) -> str:
    """Return the shortest text that reads back as the same double, always with a dot."""
    if isnan(value):
        return "nan"
    text = repr(value)
    mantissa, exponent, power = text.partition("e")
    return f"{mantissa}.0e{power}" if exponent and "." not in mantissa else text
