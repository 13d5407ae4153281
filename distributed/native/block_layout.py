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

PACK_CODES: Final = "pack_rows_of_codes"
UNPACK_CODES: Final = "unpack_rows_of_codes"
"""The same for values of a byte each."""

PACK_ARITY: Final = (4, 4)
"""Pointers: values, row numbers (i64), message, where the number of rows in the message goes (i64).
Sizes: row count, block count, bytes from one block to the next, the byte of which rows that are left out consist."""

UNPACK_ARITY: Final = (3, 5)
"""Pointers: message, values, where the number of rows in the message goes (i64).
Sizes: row count, block count, bytes from one block to the next, the byte of rows that were left out, the first row
among the values."""


def block_bytes(features: int, width: int, value_bytes: int = FLOAT_BYTES) -> int:
    """Return the bytes from one block of a buffer to the next one."""
    used = row_bytes(features + OUTPUT_PADDING, value_bytes) * width + VECTOR_ROOM * FLOAT_BYTES
    return -(-used // ALIGNMENT) * ALIGNMENT


def buffer_bytes(features: int, blocks: int, width: int, value_bytes: int = FLOAT_BYTES) -> int:
    """Return the bytes of a buffer."""
    return blocks * block_bytes(features, width, value_bytes)


def flag_bytes(rows: int, blocks: int) -> int:
    """Return the bytes before the rows of a message."""
    return -(-rows * blocks // ALIGNMENT) * ALIGNMENT


def row_bytes(width: int, value_bytes: int = FLOAT_BYTES) -> int:
    """Return the bytes of a row, in a buffer and in a message."""
    return width * value_bytes
