"""The attribute that says what structure was found in a sparse weight, one fact each."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from xdsl.dialects.builtin import ArrayAttr, IntAttr, StringAttr
from xdsl.ir import Attribute, ParametrizedAttribute
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

SENTENCES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "n_of_m": "each output reads {kept} of every {of} inputs",
        "shuffled_n_of_m": "each output reads {kept} of every {of} inputs, which are no neighbours",
        "blocks": "blocks of outputs by inputs, {outputs} by {inputs}",
        "groups": "groups of {outputs} outputs read {percent} % of the inputs that any of them reads",
        "dead": "{inputs} inputs are read by no output, {outputs} outputs read nothing",
        "alike": "{inputs} inputs have the readers of another one, {outputs} outputs have the inputs of another one",
        "components": "{count} parts without connections between them, the largest has {percent} % of the connections",
        "band": "a band of {after} to either side in another order, of {before} in this one",
        "circulant": "output n reads inputs n - {start} - k * {stride}, k below {radix}, modulo {period}",
        "exchange": "output n reads inputs n and n xor {stride}",
    }
)
"""Kind of fact -> what it says of its numbers."""

COUNTING: Final = frozenset({"alike", "dead"})
"""Kinds that count inputs, and then outputs."""


@irdl_attr_definition
class FactAttr(ParametrizedAttribute):
    """A fact about the connections of a weight, whatever their values are.

    ```mlir
    #pebble.fact<n_of_m, kept = 2, of = 4>
    ```
    """

    name = "pebble.fact"

    kind: StringAttr
    names: ArrayAttr[StringAttr]
    numbers: ArrayAttr[IntAttr]

    @staticmethod
    def of(kind: str, **numbers: int) -> "FactAttr":
        """Return the fact `kind` with its numbers."""
        names = ArrayAttr([StringAttr(name) for name in numbers])
        return FactAttr(StringAttr(kind), names, ArrayAttr([IntAttr(number) for number in numbers.values()]))

    @property
    def by_name(self) -> dict[str, int]:
        """The numbers by their names."""
        return {name.data: number.data for name, number in zip(self.names, self.numbers, strict=True)}

    @property
    def sentence(self) -> str:
        """The fact in words; what none of a layer is goes unsaid."""
        clauses = SENTENCES[self.kind.data].split(", ") if self.kind.data in COUNTING else [SENTENCES[self.kind.data]]
        said = [clause for clause in clauses if any(self.by_name[name] for name in _names(clause))]
        return ", ".join(said or clauses).format(**self.by_name)

    def verify(self) -> None:
        if self.kind.data not in SENTENCES:
            raise VerifyException(f"unknown fact {self.kind.data!r}, accepted are {', '.join(SENTENCES)}")
        names = [name.data for name in self.names]
        wanted = _names(SENTENCES[self.kind.data])
        if sorted(names) != sorted(wanted) or len(self.numbers) != len(names):
            raise VerifyException(f"fact {self.kind.data} of {', '.join(names)}, expected {', '.join(wanted)}")
        if any(number.data < 0 for number in self.numbers):
            raise VerifyException(f"fact {self.kind.data} with a negative number")

    @classmethod
    def parse_parameters(cls, parser: AttrParser) -> Sequence[Attribute]:
        names: list[StringAttr] = []
        numbers: list[IntAttr] = []
        with parser.in_angle_brackets():
            kind = StringAttr(parser.parse_identifier())
            while parser.parse_optional_punctuation(",") is not None:
                names.append(StringAttr(parser.parse_identifier()))
                parser.parse_punctuation("=")
                numbers.append(IntAttr(parser.parse_integer(allow_boolean=False)))
        return (kind, ArrayAttr(names), ArrayAttr(numbers))

    def print_parameters(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            numbers = [f"{name} = {number}" for name, number in self.by_name.items()]
            printer.print_string(", ".join([self.kind.data, *numbers]))


def _names(sentence: str) -> list[str]:
    """Return the names of the numbers of a sentence."""
    return [part.split("}")[0] for part in sentence.split("{")[1:]]
