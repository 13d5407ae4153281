"""Codes of image networks as code knows them: words and a line of constants, or what a call found of all its images.

Codes are integers of eight bits that stand for values: value = scale * (code - zero).

before an image:  range of an argument -> words of its codes, a line of their zeros; of a convolution that reads it,
                  bias and multiplier of the sums
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from ...dialect.ops.constants import constant_array
from ...dialect.ops.images import Conv2dOp
from ..llvm.flow import call, loop
from ..llvm.values import BYTE, FLOAT_BYTES, Byte, Bytes, Floats, Ints, Number
from ..quantized.byte_lanes import lookup_form
from ..quantized.found_codes import BOUNDS_BYTES, FoundCodes, find_codes
from ..quantized.rounding import CodeBounds
from ..quantized.step import weight_of
from . import packing
from .image_code import ImageCode
from .lines import lines_to_floats
from .memory import padded_outputs
from .stored_codes import Stored
from .windows import OUTSIDE_BYTES


class CodeWords(NamedTuple):
    """The address of the words of `CodeBounds`, the code of 0, and the address of the line outside of all tiles."""

    bounds: Bytes
    zero: Byte
    outside: Bytes


def words_of(image: ImageCode, value: SSAValue, codes: Stored) -> CodeWords:
    """Return the words of the codes that a value is rounded to."""
    builder = image.scratch.builder
    if not codes.is_found:
        recipe = partial(packing.rounding_bounds, CodeBounds.of(codes.attribute))
        (bounds,) = image.arrays(("bounds", codes), recipe)
        return CodeWords(bounds, Byte(builder, ir.Constant(BYTE, codes.zero)), outside_of(image, codes.zero))
    bounds = _own(image, value)
    zero = bounds.cast(Ints).narrow(CodeBounds._fields.index("unsigned_zero"))
    return CodeWords(bounds, Byte(builder, zero.narrow(BYTE).value), bounds.after(BOUNDS_BYTES))


def outside_of(image: ImageCode, code: int) -> Bytes:
    """Return a line outside of all tiles that holds a code."""
    return image.arrays(("outside line", code), partial(packing.outside_row, np.uint8(code), OUTSIDE_BYTES))[0]


def to_floats(image: ImageCode, codes: Stored, lines: Bytes, there: Bytes, channels: int) -> None:
    """Emit the floats of a tile of codes; nothing where the codes lie in the place of the tile itself."""
    if lines is not there:
        call(lines_to_floats(image.code), lines, there, codes.constants, channels)


def scaled_by_range(image: ImageCode, op: Conv2dOp) -> FoundCodes:
    """Return where the bias and the multiplier of a convolution are that reads found codes."""
    place = _own(image, op)
    multiplier = place.after(FLOAT_BYTES * padded_outputs(op)).cast(Floats)
    return FoundCodes(_own(image, op.x), place.cast(Ints), multiplier)


def emit_range(image: ImageCode, op: Conv2dOp, x: Floats, count: Number) -> None:
    """Emit the search for the codes of all values that a convolution reads, at `x`."""
    found, lanes = scaled_by_range(image, op), lookup_form(image.code.target).lanes
    sums, multiplier = image.arrays((op, "sums of weights"), _sums_and_multiplier, op)
    call(find_codes(image.code, lanes), x, count, sums, multiplier, padded_outputs(op), found)
    words = words_of(image, op.x, Stored.of(op.on_codes.codes))
    with loop(count.constant(OUTSIDE_BYTES)) as place:
        words.outside[place] = words.zero


def _own(image: ImageCode, key: SSAValue | Operation) -> Bytes:
    return image.own(0).after(image.memory.found[key])


def _sums_and_multiplier(op: Operation | None) -> list[NDArray[np.generic]]:
    """Return the sums of the weights of each output, and the multiplier, padded to whole vectors."""
    assert isinstance(op, Conv2dOp)
    layer = op.on_codes
    weight, multiplier = weight_of(layer), constant_array(layer.multiplier)
    assert multiplier is not None
    sums = np.bincount(weight.columns, weight.values, weight.shape[1]).astype(np.int32)
    padding = (0, padded_outputs(op) - len(sums))
    return [np.pad(sums, padding), np.pad(multiplier.astype(np.float32), padding)]
