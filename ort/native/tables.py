"""The table of a library's operators, which leads to the tables of their networks (`lowering/calls/table.py`)."""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

OPERATOR_COUNT: Final = 64
"""Operators of the library for this process: enough for most models, and onnxruntime takes 2 ms a session for them.

256 take 14 ms, 1024 take 120 ms.
"""

CODES_COUNT: Final = 16
"""Operators beside them whose results are codes."""

DIGEST_BYTES: Final = 64
"""Length of a digest as text: hexadecimal digits."""

LIBRARY_TABLE: Final = "library_table"
"""Symbol of the table: the number of operators, then for each its name, its number of variants, their table, and the
number of the element type of its results in onnxruntime."""

WEIGHTS_TABLE: Final = "weights_table"
"""Symbol of the table of weights that are unpacked before a network runs: their number, then the address of each and
that of the room it is unpacked into."""

OPERATOR_WORDS: Final = 4
LEVELS: Final[Mapping[str, tuple[str, ...]]] = {
    "x86_64": ("generic", "avx2", "avxvnni", "avx512", "avx512vnni", "zen4"),
    "aarch64": ("generic", "dotprod", "i8mm"),
}
"""Levels of CPU features by architecture: code of a later one is faster where a CPU runs both."""


def variant_words(architecture: str) -> int:
    """Return the words of a variant of an operator: its digest, then for each level a header or null."""
    return DIGEST_BYTES // 8 + len(LEVELS[architecture])


HOST_VARIABLE: Final = "redpebble_host"
"""Exported: the words of `HostWord`; null without a host in this process."""


class HostWord(IntEnum):
    """Words of a host in a library: its functions, and one that is called when the host has returned."""

    Make = 0
    Drop = 1
    Run = 2
    """Runs a network of which there is no native code."""
    Behind = 3
    """A function of the interpreter that tells it of an interrupt, or null; called once, and null again."""


LEVEL_VARIABLE: Final = "redpebble_level_limit"
"""Exported: the last level that is used, whatever the CPU can do."""
