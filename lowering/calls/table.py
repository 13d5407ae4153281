"""The tables of 64-bit words by which a host knows a network, and those of a call; some words are addresses.

`Header` stands first; the tables it points to follow. Every size of a call is the value of an expression
(numerator, denominator, a power for each symbol); the values of the first ones are the network's table of sizes.
"""

from enum import IntEnum

from .words import Struct, Words, address, number


class Width(Struct):
    """Words of a tile width."""

    columns = number()
    least_rows = number()
    """Rows from which such a tile is made."""
    serial_ns = number()
    """Estimated nanoseconds of a tile for one thread."""
    shared_ns = number()
    """Estimated nanoseconds of a tile for all threads together."""


class Step(Struct):
    """Words of a step."""

    function = address(Words)
    rows = number()
    """Expression of its rows, or -1 where it is one piece of work."""
    same_from = number()
    """Columns from which on all tiles make the same bits of a row."""
    shared = address(Words)
    """Function with which threads do rows together, or null."""
    widths = number()
    """Number of widths of its tiles; 0 where it is not tiled."""
    serial_rows = number()
    """Rows up to which one thread does the step, whatever the estimates."""
    width_table = address(Width)
    """Address of its widths: for each, the widest first, the words of `Width`."""
    may_fail = number()
    """1 where the function leaves the words of `Failure` in its scratch area; it is one piece of work."""


class Area(Struct):
    """Words of an area of memory for temporaries."""

    expression = number()
    """The expression of its units."""
    unit_bytes = number()


class Place(Struct):
    """Words of a temporary."""

    area = number()
    offset = number()
    """Bytes in the area for one unit of it."""


class Scratch(Struct):
    """Words of scratch memory of a thread that depends on a size: the most of all is there beside `scratch_bytes`."""

    whole_bytes = number()
    expression = number()
    unit_bytes = number()


class Window(Struct):
    """Words of a size that the call computes: (symbol + added) / step rounded down, not below `fewest`."""

    symbol = number()
    added = number()
    step = number()
    fewest = number()


class Header(Struct):
    """Words of a network's header."""

    inputs = number()
    outputs = number()
    symbols = number()
    """Number of sizes that the inputs' shapes give, together with the sizes that are computed from these."""
    expressions = number()
    equals = number()
    """Number of pairs of expressions that must be equal."""
    first_equal = number()
    steps = number()
    temporaries = number()
    areas = number()
    """Number of areas of memory for temporaries, each with a size of its own."""
    scratch_bytes = number()
    """Bytes for one thread; a multiple of 64."""
    most_rank = number()
    input_shapes = address(Words)
    """Inputs: for each its rank, then a size for each axis, or -1 - symbol."""
    output_shapes = address(Words)
    """Outputs: for each its rank, then an expression for each axis."""
    expression_table = address(Words)
    step_table = address(Step)
    temporary_table = address(Place)
    area_table = address(Area)
    constants = address(Words)
    output_numbers = address(Words)
    """Results: for each output which one of the node it is."""
    start_ns = number()
    """Nanoseconds that the host's threads take to begin and to be done."""
    input_numbers = address(Words)
    """For each input which one of the node it is."""
    input_types = address(Words)
    """For each input the number of its element type in ONNX."""
    leasts = number()
    """Number of pairs behind the equal ones: a size, and the least that it may be."""
    output_types = address(Words)
    """For each output the number of its element type in ONNX."""
    windows = number()
    """Number of `Window` words: the last symbols, of which the host does not give the values."""
    window_table = address(Window)
    scratches = number()
    """Number of `Scratch` words."""
    scratch_table = address(Scratch)


class Split(Struct):
    """Words that say how the rows of a step are given to threads in a call."""

    rows = number()
    """Rows of the step, 0 where it is one piece of work."""
    workers = number()
    """Threads that can work on it, one at least."""
    unit_rows = number()
    """Rows of which each thread takes some at once."""
    alone = number()
    """The first rows, which are done in units by one thread each; all do the same tiles of the others together."""


class Frame(Struct):
    """Words of a call that every host has; a host's own words follow."""

    header = address(Header)
    symbols = address(Words)
    """Values of the sizes that the inputs' shapes give."""
    values = address(Words)
    """Values of the expressions."""
    buffers = address(Words)
    """Addresses of inputs, outputs, temporaries."""
    splits = address(Split)
    """Splits: for each step the words of `Split`."""
    scratch = address(Words)
    """Scratch memory, an area for each thread."""
    threads = number()
    """Most threads that may work on a step."""
    scratch_bytes = number()
    """Bytes of scratch memory of a thread in this call; a multiple of 64."""


class Failure(Struct):
    """Words in which a step says what is wrong with an input."""

    problem = number()
    """0 where nothing is."""
    left = number()
    right = number()


class Problem(IntEnum):
    """Errors in the sizes of a call, and in numbers of nodes."""

    TooLarge = 1
    NoMultiple = 2
    """The left size is no multiple of the right one."""
    Unequal = 3
    NoNode = 4
    """The left number is none of as many nodes as the right one says, from the front or from the back."""
    TooManyEdges = 5
    """More edges, or nodes, than 32 bits number."""
    TooSmall = 6
    """The left size is below the right number."""
