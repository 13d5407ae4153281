"""The attribute that says what structure was found in a sparse weight, one fact each."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, Final

from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from ..record import CODECS, Record, mapping

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


def _parse_numbers(parser: AttrParser) -> dict[str, int]:
    numbers: dict[str, int] = {}
    while parser.parse_optional_punctuation(",") is not None:
        if (word := parser.parse_identifier()) in numbers:
            parser.raise_error(f"expected {word} once")
        parser.parse_punctuation("=")
        numbers[word] = parser.parse_integer(allow_boolean=False)
    return numbers


def _print_numbers(printer: Printer, numbers: Mapping[str, int]) -> None:
    printer.print_string("".join(f", {name} = {number}" for name, number in numbers.items()))


NUMBERS: Final = replace(mapping(CODECS[str], CODECS[int]), parse=_parse_numbers, print=_print_numbers)


class FactAttr(Record, text="{kind}{numbers}"):
    """A fact about the connections of a weight, whatever their values are.

    ```mlir
    #pebble.fact<n_of_m, kept = 2, of = 4>
    ```
    """

    name = "pebble.fact"

    kind: str
    numbers: Annotated[Mapping[str, int], NUMBERS]

    @staticmethod
    def of(kind: str, **numbers: int) -> "FactAttr":
        """Return the fact `kind` with its numbers."""
        return FactAttr(kind, numbers)

    @property
    def sentence(self) -> str:
        """The fact in words; what none of a layer is goes unsaid."""
        clauses = SENTENCES[self.kind].split(", ") if self.kind in COUNTING else [SENTENCES[self.kind]]
        said = [clause for clause in clauses if any(self.numbers[name] for name in _names(clause))]
        return ", ".join(said or clauses).format(**self.numbers)

    def verify(self) -> None:
        if self.kind not in SENTENCES:
            raise VerifyException(f"expected a fact of {', '.join(SENTENCES)}, got {self.kind!r}")
        wanted = _names(SENTENCES[self.kind])
        if sorted(self.numbers) != sorted(wanted):
            raise VerifyException(f"expected fact {self.kind} of {', '.join(wanted)}, got {', '.join(self.numbers)}")
        if any(number < 0 for number in self.numbers.values()):
            raise VerifyException(f"fact {self.kind} with a negative number")


def _names(sentence: str) -> list[str]:
    """Return the names of the numbers of a sentence."""
    return [part.split("}")[0] for part in sentence.split("{")[1:]]
