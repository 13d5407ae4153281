"""Layout of values between the functions of a rank, and in messages: see `feature_blocks` and `block_rows`."""

from typing import Final

from ...lowering.kernels.kernel_form import OUTPUT_PADDING
from ...lowering.llvm.call_tables import VECTOR_ROOM
from ...lowering.llvm.values import ALIGNMENT, FLOAT_BYTES

HEIGHT: Final = "pebble.height"
"""The attribute of arguments and results that lie in blocks, see `feature_blocks`."""

PACK: Final = "pack_rows"
UNPACK: Final = "unpack_rows"
"""Symbols beside the functions of a module, see `block_rows`."""

PACK_ARITY: Final = (4, 3)
"""Pointers: values, row numbers (i64), message, where the number of rows in the message goes (i64).
Sizes: row count, block count, floats from one block to the next."""

UNPACK_ARITY: Final = (3, 4)
"""Pointers: message, values, where the number of rows in the message goes (i64).
Sizes: row count, block count, floats from one block to the next, the first row of them among the values."""


def block_floats(features: int, width: int) -> int:
    """Return the floats from one block of a buffer to the next one."""
    line = ALIGNMENT // FLOAT_BYTES
    return -(-((features + OUTPUT_PADDING) * width + VECTOR_ROOM) // line) * line


def buffer_bytes(features: int, blocks: int, width: int) -> int:
    """Return the bytes of a buffer."""
    return blocks * block_floats(features, width) * FLOAT_BYTES


def flag_bytes(rows: int, blocks: int) -> int:
    """Return the bytes before the rows of a message."""
    return -(-rows * blocks // ALIGNMENT) * ALIGNMENT


def row_bytes(width: int) -> int:
    """Return the bytes of a row, in a buffer and in a message."""
    return width * FLOAT_BYTES
