"""The tables by which the operator library knows a network: all of 64-bit words, some of them addresses.

`Header` stands first; the tables it points to follow. Every size of a call is the value of an expression
(numerator, denominator, a power for each symbol); the values of the first ones are the network's table of sizes.
"""

from enum import IntEnum
from typing import Final


class Header(IntEnum):
    """Words of a network's header."""

    Inputs = 0
    Outputs = 1
    Symbols = 2
    """Sizes that the inputs' shapes give."""
    Expressions = 3
    Equals = 4
    """Pairs of expressions that must be equal."""
    FirstEqual = 5
    Steps = 6
    Temporaries = 7
    Areas = 8
    """Of memory for temporaries, each with a size of its own."""
    ScratchBytes = 9
    """For one worker; a multiple of 64."""
    MostRank = 10
    InputShapes = 11
    """For each input its rank, then a size for each axis, or -1 - symbol."""
    OutputShapes = 12
    """For each output its rank, then an expression for each axis."""
    ExpressionTable = 13
    StepTable = 14
    """For each step the words of `Step`."""
    TemporaryTable = 15
    """For each temporary its area, and where it lies there, in bytes for one unit of the area."""
    AreaTable = 16
    """For each area the expression of its units, and the bytes of one."""
    Constants = 17
    OutputPlaces = 18
    """For each output which one of the node it is."""


HEADER_WORDS: Final = 19


class Step(IntEnum):
    """Words of a step."""

    Function = 0
    Rows = 1
    """The expression of its rows, or -1 where it is one piece of work."""
    TileRows = 2
    """Threads begin at multiples of it."""
    Shared = 3
    """The function with which threads do rows together, or null."""
    Widths = 4
    """How many widths its tiles have; 0 where it is not tiled."""
    AloneRows = 5
    """Up to so many rows one thread is done before others have begun."""
    WidthTable = 6
    """For each width, the widest first, the words of `Width`."""


class Width(IntEnum):
    """Words of a tile width."""

    Columns = 0
    LeastRows = 1
    """A tile is made while so many rows are left."""
    Alone = 2
    """Estimated nanoseconds of a tile for one thread."""
    Together = 3
    """The same for all threads together."""


WIDTH_WORDS: Final = 4

START_NS: Final = 4000
"""What it takes onnxruntime's threads to begin and to be done."""
STEP_WORDS: Final = 7
TEMPORARY_WORDS: Final = 2
AREA_WORDS: Final = 2

FORMAT: Final = 1
"""Of the attributes of a node, and so of what the library expects of it."""

DIGEST_BYTES: Final = 64
"""A digest as text: hexadecimal digits."""

LIBRARY_TABLE: Final = "library_table"
"""Symbol of: the number of operators, then for each its name, its number of variants, and their table."""

OPERATOR_WORDS: Final = 3
LEVELS: Final = ("generic", "avx2", "avx512")
"""What a CPU can do, the least first."""

VARIANT_WORDS: Final = DIGEST_BYTES // 8 + len(LEVELS)
"""Of a variant of an operator: the digest, then for each level a header or null."""

HOST_VARIABLE: Final = "redpebble_host"
"""Exported: two words, the functions that make and drop a network in this process; null without such a host."""

LEVEL_VARIABLE: Final = "redpebble_level_limit"
"""Exported: the highest level that is used, whatever the CPU can do."""
