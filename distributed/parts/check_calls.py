"""Whether the calls of a part fit its functions: no function reads or writes rows behind the end of a buffer.

It needs the module, and so is done where that is compiled; what is kept of it on disk was looked at.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from xdsl.dialects.builtin import ModuleOp

from ...lowering.tiles.tile_memory import features_of
from ..errors import PartError
from ..native.feature_blocks import heights_of, tiles_of
from .part_file import Part
from .steps import Call


class Operand(NamedTuple):
    """Operand of a function: so many features, in a buffer of `height` features, or row-major where that is 0."""

    features: int
    height: int


def check_calls(part: Part, module: ModuleOp) -> None:
    """Check the operands of all calls against the functions of the module.

    Raises:
        PartError: names the step and the operand.
    """
    functions = dict(_functions(module))
    for number, step in enumerate(part.steps):
        if not isinstance(step, Call):
            continue
        expected = functions.get(step.function)
        if expected is None:
            raise PartError(f"the part is damaged: step {number} calls {step.function!r}, which is not there")
        if len(expected) != len(step.operands):
            raise PartError(
                f"the part is damaged: step {number} has {len(step.operands)} operands, expected {len(expected)}"
            )
        for operand, (features, height) in zip(step.operands, expected, strict=True):
            buffer = part.buffers[operand.buffer]
            # a row-major buffer is read from its first feature on, and all of it
            first, whole = (operand.row, height) if height else (0, features)
            fits = buffer.features == whole and first + features <= whole and (height > 0) == (buffer.port < 0)
            if not fits or (not height and operand.row):
                rows = f"rows {operand.row} to {operand.row + features} of buffer {operand.buffer}"
                raise PartError(
                    f"the part is damaged: step {number} takes {rows}, which has {buffer.features}, expected {whole}"
                )


def _functions(module: ModuleOp) -> Iterator[tuple[str, Sequence[Operand]]]:
    """Yield the name of each function, and its arguments and results."""
    for func, tile in tiles_of(module):
        heights = heights_of(func, tile)
        pairs = zip((*tile.body.block.args, *tile.yielded), heights, strict=True)
        yield func.sym_name.data, [Operand(features_of(value), height) for value, height in pairs]
