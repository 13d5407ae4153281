"""Tables of codes: elementwise work that reads the codes of one value alone is a look-up of each byte.

line      c0 c1 ... c63                        the codes of 64 positions
table     t0 ... t127, t128 ... t255           two registers for each half of all codes
halves    t[c & 127], t[128 + (c & 127)]       vpermi2b for each half
chosen    by the highest bit of each code      a blend
"""

from collections.abc import Sequence

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from ...dialect.attributes.activations import CODES, OF_FEW_INSTRUCTIONS
from ...dialect.ops.elementwise import ActivateOp, rounds_to_codes
from ...dialect.semantics.interpreter import evaluate
from ...kernels.tile_widths import PIXELS
from ..cpu_target import CpuTarget
from ..llvm.builder import Code
from ..llvm.flow import loop
from ..llvm.intrinsics import call_intrinsic
from ..llvm.values import Bytes, Number
from ..quantized.byte_lanes import LOOK_UP_IN_PAIRS
from .lines import LINE, load_line
from .stored_codes import Stored


def table_gains(chain: Sequence[Operation], target: CpuTarget) -> bool:
    """Return whether a look-up is faster than the work: always where an instruction does it, or where that is long."""
    long = [op for op in chain if isinstance(op, ActivateOp) and not rounds_to_codes(op)]
    is_long = any(op.activation.kind not in OF_FEW_INSTRUCTIONS for op in long)
    return "avx512vbmi" in target.extensions or is_long


def table_of(chain: Sequence[Operation], source: tuple[SSAValue, Stored], target: Stored) -> bytes:
    """Return the code that a chain makes of each code of the value that it reads."""
    value, codes = source
    steps = np.arange(CODES, dtype=np.float32) - np.float32(codes.zero)
    known: dict[SSAValue, NDArray[np.float32]] = {value: steps * np.float32(codes.scale)}
    for op in chain:
        (result,) = evaluate(op, [known[operand] for operand in op.operands], np.float32)
        known[op.results[0]] = result.astype(np.float32)
    multiples = known[chain[-1].results[0]] / np.float32(target.scale)
    return (target.attribute.steps(multiples) + np.float32(target.zero)).astype(np.uint8).tobytes()


def packed_table(codes: bytes, _: Operation | None) -> list[NDArray[np.generic]]:
    """Return a table as the array that code reads."""
    return [np.frombuffer(codes, np.uint8)]


def looking_up(code: Code) -> ir.Function:
    """Return `void (x, table, y, channels)`: the bytes of a table for the codes of a tile."""

    @code.kernel("look_up_codes")
    def kernel(x: Bytes, table: Bytes, y: Bytes, channels: Number) -> None:
        if "avx512vbmi" not in code.target.extensions:
            with loop(channels * PIXELS) as place:
                y[place] = table.narrow(x[place])
            return
        parts = [load_line(table.at(start)) for start in range(0, CODES, PIXELS)]
        half = ir.Constant(LINE, [CODES // 2] * PIXELS)
        with loop(channels) as channel:
            row = channel * PIXELS
            line = load_line(x.at(row))
            low, high = (
                call_intrinsic(x.builder, LOOK_UP_IN_PAIRS, LINE, [parts[first], line, parts[first + 1]])
                for first in (0, 2)
            )
            chosen = x.builder.select(x.builder.icmp_unsigned("<", line, half), low, high)
            y.at(row).store(chosen, PIXELS)

    return kernel
