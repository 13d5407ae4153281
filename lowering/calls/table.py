"""The tables of 64-bit words by which a host knows a network, and those of a call; some words are addresses.

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
    """Number of sizes that the inputs' shapes give."""
    Expressions = 3
    Equals = 4
    """Number of pairs of expressions that must be equal."""
    FirstEqual = 5
    Steps = 6
    Temporaries = 7
    Areas = 8
    """Number of areas of memory for temporaries, each with a size of its own."""
    ScratchBytes = 9
    """Bytes for one thread; a multiple of 64."""
    MostRank = 10
    InputShapes = 11
    """Inputs: for each its rank, then a size for each axis, or -1 - symbol."""
    OutputShapes = 12
    """Outputs: for each its rank, then an expression for each axis."""
    ExpressionTable = 13
    StepTable = 14
    """Steps: for each the words of `Step`."""
    TemporaryTable = 15
    """Temporaries: for each its area, and its offset there, in bytes for one unit of the area."""
    AreaTable = 16
    """Areas: for each the expression of its units, and the bytes of one."""
    Constants = 17
    OutputNumbers = 18
    """Results: for each output which one of the node it is."""
    StartNs = 19
    """Nanoseconds that the host's threads take to begin and to be done."""
    ChunkRows = 20
    """Most rows of a chunk that a thread takes at once, unless one tile has more."""
    InputNumbers = 21
    """For each input which one of the node it is."""
    InputTypes = 22
    """For each input the number of its element type in ONNX."""
    Leasts = 23
    """Number of pairs behind the equal ones: a size, and the least that it may be."""
    OutputTypes = 24
    """For each output the number of its element type in ONNX."""


class Step(IntEnum):
    """Words of a step."""

    Function = 0
    Rows = 1
    """Expression of its rows, or -1 where it is one piece of work."""
    SameFrom = 2
    """Columns from which on all tiles make the same bits of a row."""
    Shared = 3
    """Function with which threads do rows together, or null."""
    Widths = 4
    """Number of widths of its tiles; 0 where it is not tiled."""
    SerialRows = 5
    """Rows up to which one thread does the step, whatever the estimates."""
    WidthTable = 6
    """Address of its widths: for each, the widest first, the words of `Width`."""
    MayFail = 7
    """1 where the function leaves the words of `Failure` in its scratch area; it is one piece of work."""


class Failure(IntEnum):
    """Words in which a step says what is wrong with an input."""

    Problem = 0
    """0 where nothing is."""
    Left = 1
    Right = 2


class Width(IntEnum):
    """Words of a tile width."""

    Columns = 0
    LeastRows = 1
    """Rows from which such a tile is made."""
    SerialNs = 2
    """Estimated nanoseconds of a tile for one thread."""
    SharedNs = 3
    """Estimated nanoseconds of a tile for all threads together."""


class Frame(IntEnum):
    """Words of a call that every host has; a host's own words follow."""

    Header = 0
    Symbols = 1
    """Values of the sizes that the inputs' shapes give."""
    Values = 2
    """Values of the expressions."""
    Buffers = 3
    """Addresses of inputs, outputs, temporaries."""
    Splits = 4
    """Splits: for each step the words of `Split`."""
    Scratch = 5
    """Scratch memory, an area for each thread."""
    Threads = 6
    """Most threads that may work on a step."""


class Split(IntEnum):
    """Words that say how the rows of a step are given to threads in a call."""

    Rows = 0
    """Rows of the step, 0 where it is one piece of work."""
    Workers = 1
    """Threads that can work on it, one at least."""
    ChunkRows = 2
    """Rows that a thread takes at once; 0 where all do the same tiles together."""


class Problem(IntEnum):
    """Errors in the sizes of a call, and in numbers of nodes."""

    TooLarge = 1
    NoMultiple = 2
    """The left size is no multiple of the right one."""
    Unequal = 3
    NoNode = 4
    """The left number is none of as many nodes as the right one says, from the front or from the back."""
    TooManyEdges = 5
    TooSmall = 6
    """The left size is below the right number."""
    """More edges, or nodes, than 32 bits number."""


TEMPORARY_WORDS: Final = 2
AREA_WORDS: Final = 2
