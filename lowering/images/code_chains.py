"""Elementwise work of image networks that ends with codes: chains of ops, whose values in between are in registers."""

from collections.abc import Sequence
from functools import partial

from llvmlite import ir
from xdsl.ir import Operation, SSAValue

from ...dialect.ops.elementwise import ActivateOp, BinaryOp
from ...dialect.ops.images import Spread, spreads_of
from ...kernels.tile_widths import PIXELS
from ..kernels.elementwise import ARITHMETIC
from ..kernels.kernel_form import activated, activation_key
from ..llvm.builder import (
    BYTE,
    FLOAT_BYTES,
    I32,
    I64,
    POINTER,
    Code,
    byte_at,
    counted_loop,
    float_at,
    i64,
)
from ..llvm.call_tables import values_of_constant
from ..llvm.vectors import FLOAT, Lanes
from ..quantized.rounding import Rounding
from .code_tables import looking_up, packed_table, table_gains, table_of
from .found_codes import words_of
from .image_code import ImageCode
from .lines import CodeValues, joined_bytes
from .stored_codes import Stored, source_of


def emit_chain(image: ImageCode, chain: Sequence[Operation]) -> None:
    """Emit elementwise work that ends with codes, tile by tile; what is in between is in registers alone.

    Raises:
        ValueError: an operand is neither an image nor spread over its pixels.
    """
    first, last = chain[0], chain[-1]
    codes, target = image.memory.stored.codes[last.results[0]], image.memory.views[last.results[0]]
    source = source_of(chain, image.memory.stored.codes)
    if source is not None and table_gains(chain, image.code.target):
        _emit_look_up(image, chain, source)
        return
    spreads = spreads_of(first) if isinstance(first, BinaryOp) else ("tile",)
    if spreads is None:
        raise ValueError(f"{first.name} inside a pebble.image_network has operands that are no images")
    operands = [
        _Operand(image, value, spread, image.memory.stored.codes.get(value))
        for value, spread in zip(first.operands, spreads, strict=True)
    ]
    function, bounds = (
        _chain_code(image.code, chain, [one.kind for one in operands]),
        words_of(image, last.results[0], codes).bounds,
    )
    numbers = [number for one in operands for number in one.numbers]

    def tile(number: ir.Value) -> None:
        there = image.tile(target, number)
        addresses = [one.address(number) for one in operands]
        image.builder.call(function, [*addresses, there, bounds, i64(target.channels), *numbers])
        image.clear(last.results[0], number, there)

    image.each(target.plane.tiles, tile)


def _emit_look_up(image: ImageCode, chain: Sequence[Operation], source: SSAValue) -> None:
    """Emit what a chain makes of the codes of one value."""
    result, stored = chain[-1].results[0], image.memory.stored.codes
    codes = table_of(chain, (source, stored[source]), stored[result])
    (table,) = image.arrays(("table of codes", codes), partial(packed_table, codes))
    before, after = (image.memory.views[value] for value in (source, result))

    def tile(number: ir.Value) -> None:
        there = image.tile(after, number)
        image.builder.call(looking_up(image.code), [image.tile(before, number), table, there, i64(after.channels)])
        image.clear(result, number, there)

    image.each(after.plane.tiles, tile)


class _Operand:
    """An operand of elementwise work."""

    def __init__(self, image: ImageCode, value: SSAValue, spread: Spread, codes: Stored | None) -> None:
        self._image, self._value, self._spread = image, value, spread
        self.kind = spread if codes is None else "codes" if spread == "tile" else "first_code"
        scale, zero = (1.0, 0) if codes is None else (codes.scale, codes.zero)
        self.numbers = [ir.Constant(FLOAT, scale), ir.Constant(I32, zero)]

    def address(self, number: ir.Value) -> ir.Value:
        """Return where it is for a tile."""
        image, value = self._image, self._value
        if self._spread in ("tile", "first_column"):
            return image.tile(image.memory.views[value], number if self._spread == "tile" else i64(0))
        owner = value.owner if isinstance(value.owner, Operation) else None
        return image.arrays((value, "values"), values_of_constant, owner)[0]


def _chain_code(code: Code, chain: Sequence[Operation], kinds: Sequence[str]) -> ir.Function:
    """Return `void (operands..., y, bounds, channels, scale and zero of each operand...)` for a tile."""
    first, count = chain[0], len(kinds)
    activations = [op.activation for op in chain[:-1] if isinstance(op, ActivateOp)]

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        operands, (y, bounds, channels), numbers = args[:count], args[count : count + 3], args[count + 3 :]
        lanes = code.lanes(builder)
        rounding = Rounding.read(lanes, bounds)
        coded = [
            CodeValues(lanes, lanes.splat(scale), lanes.splat_int(zero))
            for scale, zero in zip(numbers[::2], numbers[1::2], strict=True)
        ]
        with counted_loop(builder, channels) as channel:
            row = builder.mul(channel, i64(PIXELS))
            parts: list[ir.Value] = []
            for start in range(0, PIXELS, lanes.width):
                place = builder.add(row, i64(start))
                read = [
                    _read(lanes, kind, (operand, values), (channel, row, place))
                    for kind, operand, values in zip(kinds, operands, coded, strict=True)
                ]
                value = ARITHMETIC[first.name](lanes, *read) if isinstance(first, BinaryOp) else read[0]
                for activation in activations:
                    (value,) = activated(lanes, activation, [value])
                parts.append(rounding.code(rounding.quotient(value)))
            builder.store(joined_bytes(builder, parts), byte_at(builder, y, row), align=PIXELS)

    words = "_".join([first.name, *kinds, *map(activation_key, activations)])
    types = [*[POINTER] * (count + 2), I64, *[FLOAT, I32] * count]
    return code.function(f"chain_{words}", types, body)


def _read(
    lanes: Lanes,
    kind: str,
    operand: tuple[ir.Value, CodeValues],
    where: tuple[ir.Value, ir.Value, ir.Value],
) -> ir.Value:
    """Return a vector of an operand at a channel, its row and a place in that."""
    builder, (pointer, values), (channel, row, place) = lanes.builder, operand, where
    match kind:
        case "codes":
            codes = builder.load(byte_at(builder, pointer, place), align=1, typ=ir.VectorType(BYTE, lanes.width))
            return values.of_bytes(codes)
        case "first_code":
            code = builder.load(byte_at(builder, pointer, row), typ=BYTE)
            return values.of_words(lanes.splat_int(builder.zext(code, I32)))
        case "tile":
            return lanes.load(float_at(builder, pointer, place), FLOAT_BYTES * lanes.width)
        case "per_feature":
            return lanes.splat(builder.load(float_at(builder, pointer, channel), typ=FLOAT))
        case "first_column":
            return lanes.splat(builder.load(float_at(builder, pointer, row), typ=FLOAT))
        case _:
            return lanes.splat(builder.load(pointer, typ=FLOAT))
