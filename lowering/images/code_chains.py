"""Elementwise work of image networks that ends with codes: chains of ops, whose values in between are in registers.

Codes are integers of eight bits that stand for values: value = scale * (code - zero).

A chain that reads the codes of one value alone may be a look-up of each byte:

line      c0 c1 ... c63                        the codes of 64 positions
table     t0 ... t127, t128 ... t255           two registers for each half of all codes
halves    t[c & 127], t[128 + (c & 127)]       vpermi2b for each half
chosen    by the highest bit of each code      a blend
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from ...dialect.attributes.activations import CODES, OF_FEW_INSTRUCTIONS
from ...dialect.attributes.codes import codes_in
from ...dialect.ops.elementwise import ActivateOp, BinaryOp, ConvertOp, rounds_to_codes
from ...dialect.ops.images import Spread
from ...dialect.semantics.interpreter import evaluate
from ...kernels.tile_widths import PIXELS
from ..cpu_target import CpuTarget
from ..kernels.elementwise import ARITHMETIC
from ..kernels.kernel_form import activated, activation_key
from ..llvm.builder import Code
from ..llvm.flow import call, loop
from ..llvm.intrinsics import call_intrinsic
from ..llvm.register_parts import joined
from ..llvm.values import BYTE, I32, Bytes, Float, Floats, Int, Number
from ..quantized.byte_lanes import LOOK_UP_IN_PAIRS, looked_up
from ..quantized.rounding import Rounding
from .found_codes import words_of
from .image_code import ImageCode, spreads_in_network
from .lines import LINE, CodeValues, load_line, quarters_of
from .stored_codes import Stored


def emit_chain(image: ImageCode, chain: Sequence[Operation]) -> None:
    """Emit elementwise work that ends with codes, tile by tile; intermediate values stay in registers."""
    stored, result = image.memory.stored.codes, chain[-1].results[0]
    source, channels = image.memory.stored.source_of(chain), image.memory.views[result].channels
    if source is not None and table_gains(chain, image.code.target):
        codes = table_of(chain, (source, stored[source]), stored[result])
        (table,) = image.arrays(("table of codes", codes), partial(packed_table, codes))

        def look_up(number: Number, there: Bytes) -> None:
            call(looking_up(image.code), image.operand(source, "tile", number), table, there, channels)

        image.each_tile(result, look_up)
        return
    spreads = spreads_in_network(chain[0]) if isinstance(chain[0], BinaryOp) else ("tile",)
    operands = [
        _Operand(image, value, spread, stored.get(value))
        for value, spread in zip(chain[0].operands, spreads, strict=True)
    ]
    function = _chain_code(image.code, chain, [one.kind for one in operands])
    bounds = words_of(image, result, stored[result]).bounds

    def tile(number: Number, there: Bytes) -> None:
        call(function, there, bounds, channels, [one.argument(number) for one in operands])

    image.each_tile(result, tile)


class _Argument(NamedTuple):
    """An operand as an argument: its address, and the scale and the zero of codes."""

    address: Bytes
    scale: Float
    zero: Int


@dataclass(frozen=True)
class _Operand:
    """An operand of elementwise work, stored as `codes`, or as floats where there are none."""

    image: ImageCode
    value: SSAValue
    spread: Spread
    codes: Stored | None

    @property
    def kind(self) -> str:
        """The way in which a chain reads it."""
        return self.spread if self.codes is None else "codes" if self.spread == "tile" else "first_code"

    def argument(self, number: Number) -> _Argument:
        """Return the operand for a tile."""
        builder, codes = number.builder, Stored(1.0, 0) if self.codes is None else self.codes
        scale, zero = codes.constants
        return _Argument(self.image.operand(self.value, self.spread, number), Float(builder, scale), Int(builder, zero))


def _chain_code(code: Code, chain: Sequence[Operation], kinds: Sequence[str]) -> ir.Function:
    """Return `void (y, bounds, channels, operands...)` for a tile."""
    first = chain[0]
    activations = [op.activation for op in chain[:-1] if isinstance(op, ActivateOp)]
    words = "_".join([first.name, *kinds, *map(activation_key, activations)])

    @code.kernel(f"chain_{words}", rest=len(kinds))
    def kernel(y: Bytes, bounds: Bytes, channels: Number, *operands: _Argument) -> None:
        lanes = code.lanes(y)
        rounding = Rounding.read(lanes, bounds)
        coded = [CodeValues(lanes, lanes.splat(one.scale), lanes.splat_int(one.zero)) for one in operands]
        with loop(channels) as channel:
            row, parts = channel * PIXELS, list[ir.Value]()
            for start in range(0, PIXELS, lanes.width):
                where = _Where(channel, row, row + start)
                read = [
                    _read(kind, operand.address, values, where)
                    for kind, operand, values in zip(kinds, operands, coded, strict=True)
                ]
                value = ARITHMETIC[first.name](lanes, *read) if isinstance(first, BinaryOp) else read[0]
                for activation in activations:
                    (value,) = activated(lanes, activation, [value])
                parts.append(rounding.code(rounding.quotient(value)))
            y.at(row).store(joined(lanes.builder, parts), PIXELS)

    return kernel


class _Where(NamedTuple):
    """A channel of a tile, the position of its row, and a position in that."""

    channel: Number
    row: Number
    place: Number


def _read(kind: str, operand: Bytes, values: CodeValues, where: _Where) -> ir.Value:
    lanes, floats = values.lanes, operand.cast(Floats)
    match kind:
        case "codes":
            return values.of_bytes(operand.at(where.place).load(ir.VectorType(BYTE, lanes.width), 1))
        case "first_code":
            return values.of_words(lanes.splat_int(operand.narrow(where.row).wide(I32)))
        case "tile":
            return lanes.load(floats.at(where.place), lanes.size)
        case "per_feature":
            return lanes.splat(floats[where.channel])
        case "first_column":
            return lanes.splat(floats[where.row])
        case _:
            return lanes.splat(floats[0])


def table_gains(chain: Sequence[Operation], target: CpuTarget) -> bool:
    """Return whether a look-up is faster than the work: always where an instruction does it, or where that is long.

    What stands before one of two operands has no other code.
    """
    if any(isinstance(op, BinaryOp) for op in chain[1:]):
        return True
    long = [op for op in chain if isinstance(op, ActivateOp) and not rounds_to_codes(op)]
    is_long = any(op.activation.kind not in OF_FEW_INSTRUCTIONS for op in long)
    return target.looks_up_lines or target.line_look_up is not None or is_long


def table_of(chain: Sequence[Operation], source: tuple[SSAValue, Stored], target: Stored) -> bytes:
    """Return the code that a chain makes of each code of the value that it reads."""
    value, codes = source
    every, typed = np.arange(CODES, dtype=np.float32), codes_in(value.type)
    floats = (every - np.float32(codes.zero)) * np.float32(codes.scale)
    known: dict[SSAValue, NDArray[np.float32]] = {value: floats if typed is None else every + typed.least}

    def of(operand: SSAValue) -> NDArray[np.float32]:
        # a conversion between codes and their floats has no place in a chain
        if operand not in known and isinstance(operand.owner, ConvertOp):
            (known[operand],) = evaluate(operand.owner, [of(operand.owner.x)], np.float32)
        return known[operand]

    for op in chain:
        (result,) = evaluate(op, [of(operand) for operand in op.operands], np.float32)
        known[op.results[0]] = result.astype(np.float32)
    last, typed = chain[-1].results[0], codes_in(chain[-1].results[0].type)
    if typed is not None:
        return (known[last] - np.float32(typed.least)).astype(np.uint8).tobytes()
    multiples = known[last] / np.float32(target.scale)
    return (target.attribute.steps(multiples) + np.float32(target.zero)).astype(np.uint8).tobytes()


def packed_table(codes: bytes, _: Operation | None) -> list[NDArray[np.generic]]:
    """Return a table as the array that code reads."""
    return [np.frombuffer(codes, np.uint8)]


def looking_up(code: Code) -> ir.Function:
    """Return `void (x, table, y, channels)`: the bytes of a table for the codes of a tile."""

    @code.kernel("look_up_codes")
    def kernel(x: Bytes, table: Bytes, y: Bytes, channels: Number) -> None:
        find = _in_table(x.builder, code.target)
        if find is None:
            with loop(channels * PIXELS) as place:
                y[place] = table.narrow(x[place])
            return
        parts = [load_line(table.at(start)) for start in range(0, CODES, PIXELS)]
        with loop(channels) as channel:
            row = channel * PIXELS
            y.at(row).store(find(parts, load_line(x.at(row))), PIXELS)

    return kernel


def _in_table(builder: ir.IRBuilder, target: CpuTarget) -> Callable[[Sequence[ir.Value], ir.Value], ir.Value] | None:
    """Return how instructions look up a line of codes in the four parts of a table, or None."""

    def every(code: int) -> ir.Constant:
        return ir.Constant(LINE, [code] * PIXELS)

    def in_pairs(parts: Sequence[ir.Value], line: ir.Value) -> ir.Value:
        halves = (parts[:2], parts[2:])
        low, high = (call_intrinsic(builder, LOOK_UP_IN_PAIRS, LINE, [one, line, other]) for one, other in halves)
        return builder.select(builder.icmp_unsigned("<", line, every(CODES // 2)), low, high)

    def by_parts(parts: Sequence[ir.Value], line: ir.Value) -> ir.Value:
        assert instruction is not None
        # a part has 0 for codes that are not in it
        places = [builder.sub(line, every(PIXELS * number)) for number in range(len(parts))]
        tables = (quarters_of(builder, part) for part in parts)
        found = [looked_up(builder, instruction, *both) for both in zip(tables, places, strict=True)]
        return reduce(builder.or_, found)

    instruction = target.line_look_up
    return in_pairs if target.looks_up_lines else None if instruction is None else by_parts
