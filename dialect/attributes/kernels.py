"""Attributes of the `pebble` dialect: activations, sparsity, and what the passes decided."""

from collections.abc import Mapping, Sequence
from math import isnan
from typing import ClassVar

from xdsl.dialects.builtin import ArrayAttr, FloatAttr, IntAttr, StringAttr, f64
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from redpebble.dialect.attributes.activations import ACTIVATION_PARAMETERS
from redpebble.dialect.attributes.input_blocks import InputBlocksAttr
from redpebble.dialect.attributes.latencies import TimesAttr


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


@irdl_attr_definition
class SparsityAttr(ParametrizedAttribute):
    """The encoding of a sparse tensor type: `tensor<64x32xf32, #pebble.sparsity<csc, nonzeros = 205>>`.

    `csc` holds, for every column (output neuron) in turn, the rows (input neurons) of its connections, ascending.
    """

    name = "pebble.sparsity"
    FORMATS: ClassVar = ("csc",)

    format: StringAttr
    nonzeros: IntAttr

    @staticmethod
    def of(format_name: str, nonzeros: int) -> "SparsityAttr":
        """Return the encoding `format_name` with `nonzeros` stored values."""
        return SparsityAttr(StringAttr(format_name), IntAttr(nonzeros))

    def verify(self) -> None:
        if self.format.data not in self.FORMATS:
            raise VerifyException(f"unknown sparse format {self.format.data!r}, accepted are {', '.join(self.FORMATS)}")
        if self.nonzeros.data < 0:
            raise VerifyException(f"{self.nonzeros.data} nonzeros, expected none or more")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            format_name = parser.parse_identifier()
            parser.parse_punctuation(",")
            parser.parse_keyword("nonzeros")
            parser.parse_punctuation("=")
            nonzeros = parser.parse_integer()
        return (StringAttr(format_name), IntAttr(nonzeros))

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(f"{self.format.data}, nonzeros = {self.nonzeros.data}")


@irdl_attr_definition
class KernelAttr(ParametrizedAttribute):
    """The kernel families that execute a layer, by the width of the batch tile, its times, and why.

    ```mlir
    #pebble.kernel<permute_lookup from 1, count_blocks from 8, blocks [count_blocks: 4], predicted [1: 6.8, 8: 16.2],
        "density 0.050, stored sparse">
    ```

    The first family is from 1. `blocks` are the numbers of blocks of inputs that families work through one after the
    other: a family over blocks that is not named there has the fewest that its code can have. `predicted` are the
    microseconds of tiles of some widths by the cost model, `measured` those by the clock. All three may be missing.
    """

    name = "pebble.kernel"

    families: ArrayAttr[StringAttr]
    widths: ArrayAttr[IntAttr]
    blocks: InputBlocksAttr
    predicted: TimesAttr
    measured: TimesAttr
    reason: StringAttr

    @staticmethod
    def of(
        family: str | Mapping[int, str],
        reason: str,
        predicted: Mapping[int, float] | None = None,
        measured: Mapping[int, float] | None = None,
    ) -> "KernelAttr":
        """Return the choice of one family, or of families by the width from which they are used, with its reason."""
        choices = {1: family} if isinstance(family, str) else family
        return KernelAttr(
            ArrayAttr([StringAttr(name) for name in choices.values()]),
            ArrayAttr([IntAttr(width) for width in choices]),
            InputBlocksAttr.of({}),
            TimesAttr.of(predicted or {}),
            TimesAttr.of(measured or {}),
            StringAttr(reason),
        )

    def with_blocks(self, blocks: Mapping[str, int]) -> "KernelAttr":
        """Return the same choice with numbers of blocks of inputs by family."""
        return KernelAttr(
            self.families, self.widths, InputBlocksAttr.of(blocks), self.predicted, self.measured, self.reason
        )

    @property
    def choices(self) -> dict[int, str]:
        """The families by the width in batch columns from which each is used."""
        widths = (width.data for width in self.widths)
        return {width: family.data for width, family in zip(widths, self.families, strict=True)}

    def family_at(self, width: int) -> str:
        """Return the family for tiles of `width` batch columns."""
        return self.choices[max(start for start in self.choices if start <= width)]

    def verify(self) -> None:
        widths = [width.data for width in self.widths]
        if len(widths) != len(self.families) or widths != sorted(set(widths)) or widths[:1] != [1]:
            raise VerifyException(f"families from widths {widths}, expected ascending ones that start at 1")
        families = list(dict.fromkeys(self.choices.values()))
        for family in self.blocks.by_family:
            if family not in families:
                raise VerifyException(f"blocks of {family}, accepted are the families {', '.join(families)}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        families: list[StringAttr] = []
        widths: list[IntAttr] = []
        times = {"predicted": TimesAttr.of({}), "measured": TimesAttr.of({})}
        blocks = InputBlocksAttr.of({})
        with parser.in_angle_brackets():
            while (word := parser.parse_optional_identifier()) is not None:
                if word in times:
                    times[word] = TimesAttr.parse_times(parser)
                elif word == "blocks":
                    blocks = InputBlocksAttr.parse_blocks(parser)
                else:
                    families.append(StringAttr(word))
                    from_width = parser.parse_optional_keyword("from") is not None
                    widths.append(IntAttr(parser.parse_integer() if from_width else 1))
                parser.parse_punctuation(",")
            reason = parser.parse_str_literal()
        decided = (ArrayAttr(families), ArrayAttr(widths), blocks)
        return (*decided, times["predicted"], times["measured"], StringAttr(reason))

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            only = len(self.families) == 1
            for width, family in self.choices.items():
                printer.print_string(f"{family}, " if only else f"{family} from {width}, ")
            if self.blocks.by_family:
                printer.print_string(f"blocks {self.blocks.text}, ")
            for word, times in (("predicted", self.predicted), ("measured", self.measured)):
                if times.by_width:
                    printer.print_string(f"{word} {times.text}, ")
            printer.print_string_literal(self.reason.data)


@irdl_attr_definition
class LayoutAttr(ParametrizedAttribute):
    """How the values of a batch tile lie in memory: `#pebble.layout<feature_major>`.

    `feature_major` keeps one row of batch columns for each neuron, so that a vector holds one neuron of many samples.
    """

    name = "pebble.layout"
    ORDERS: ClassVar = ("feature_major",)

    order: StringAttr

    @staticmethod
    def of(order: str) -> "LayoutAttr":
        """Return the layout named `order`."""
        return LayoutAttr(StringAttr(order))

    def verify(self) -> None:
        if self.order.data not in self.ORDERS:
            raise VerifyException(f"unknown layout {self.order.data!r}, accepted are {', '.join(self.ORDERS)}")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        with parser.in_angle_brackets():
            return (StringAttr(parser.parse_identifier()),)

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.order.data)
