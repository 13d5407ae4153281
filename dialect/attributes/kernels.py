"""The kernel families chosen for a layer."""

from collections.abc import Mapping
from dataclasses import field, replace
from typing import Annotated, Any, Self

from typing_extensions import override
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from ..record import CODECS, Record, Text, mapping
from .latencies import Times

TABLES = ("blocks", "predicted", "measured")
"""The fields that may be missing."""


def _print_choices(printer: Printer, choices: Mapping[int, str]) -> None:
    only = len(choices) == 1
    printer.print_list(
        choices.items(),
        lambda choice: printer.print_string(choice[1] if only else f"{choice[1]} from {choice[0]}"),
    )


class KernelAttr(
    Record,
    text="{choices}, [blocks {blocks}, ][predicted {predicted}, ][measured {measured}, ]{reason}",
):
    """The kernel families that execute a layer, by the width of the batch tile, its times, and why.

    ```mlir
    #pebble.kernel<permute_lookup from 1, count_blocks from 8, blocks [count_blocks: 4], predicted [1: 6.8, 8: 16.2],
        "density 0.050, stored sparse">
    ```

    The first family is from 1. `blocks` are the numbers of blocks of inputs that families work through one after the
    other, all blocks of about equally many inputs: a family over blocks that is not named there has the fewest that
    its code can have. `predicted` are the microseconds of tiles of some widths by the cost model, `measured` those by
    the clock. All three may be missing.
    """

    name = "pebble.kernel"

    choices: Annotated[Mapping[int, str], replace(mapping(CODECS[int], CODECS[str]), print=_print_choices)]
    """The families by the width in batch columns from which each is used."""
    reason: Text
    predicted: Times = field(default_factory=dict[int, float])
    measured: Times = field(default_factory=dict[int, float])
    blocks: Mapping[str, int] = field(default_factory=dict[str, int])

    def family_at(self, width: int) -> str:
        """Return the family for tiles of `width` batch columns."""
        return self.choices[max(start for start in self.choices if start <= width)]

    def verify(self) -> None:
        widths = list(self.choices)
        if widths != sorted(widths) or widths[:1] != [1]:
            raise VerifyException(f"expected ascending widths of families that start at 1, got {widths}")
        families = list(dict.fromkeys(self.choices.values()))
        for family, count in self.blocks.items():
            if count < 1:
                raise VerifyException(f"expected 1 or more blocks of {family}, got {count}")
            if family not in families:
                raise VerifyException(f"expected blocks of the families {', '.join(families)}, got {family}")

    @classmethod
    @override
    def parse_inside(cls, parser: AttrParser) -> Self:
        # a family is any word, so the words of the tables are looked for first
        choices: dict[int, str] = {}
        tables: dict[str, Any] = {}
        while (word := parser.parse_optional_identifier()) is not None:
            if word in TABLES:
                tables[word] = cls.codecs[word].parse(parser)
            else:
                start = 1 if parser.parse_optional_keyword("from") is None else parser.parse_integer()
                if start in choices:
                    parser.raise_error(f"expected one family from width {start}")
                choices[start] = word
            parser.parse_punctuation(",")
        return cls(choices, parser.parse_str_literal(), **tables)
