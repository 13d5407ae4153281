"""Elementwise work of image networks that ends with codes: chains of ops, whose values in between are in registers."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from llvmlite import ir
from xdsl.ir import Operation, SSAValue

from ...dialect.ops.elementwise import ActivateOp, BinaryOp
from ...dialect.ops.images import Spread, spreads_of
from ...kernels.tile_widths import PIXELS
from ..kernels.elementwise import ARITHMETIC
from ..kernels.kernel_form import activated, activation_key
from ..llvm.builder import Code
from ..llvm.call_tables import values_of_constant
from ..llvm.flow import call, loop
from ..llvm.values import BYTE, FLOAT, FLOAT_BYTES, I32, Bytes, Float, Floats, Int, Number
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
    function = _chain_code(image.code, chain, [one.kind for one in operands])
    bounds = words_of(image, last.results[0], codes).bounds

    def tile(number: Number) -> None:
        there = image.tile(target, number)
        call(function, there, bounds, target.channels, [one.argument(number) for one in operands])
        image.clear(last.results[0], number, there)

    image.each(target.plane.tiles, tile)


def _emit_look_up(image: ImageCode, chain: Sequence[Operation], source: SSAValue) -> None:
    """Emit what a chain makes of the codes of one value."""
    result, stored = chain[-1].results[0], image.memory.stored.codes
    codes = table_of(chain, (source, stored[source]), stored[result])
    (table,) = image.arrays(("table of codes", codes), partial(packed_table, codes))
    before, after = (image.memory.views[value] for value in (source, result))

    def tile(number: Number) -> None:
        there = image.tile(after, number)
        call(looking_up(image.code), image.tile(before, number), table, there, after.channels)
        image.clear(result, number, there)

    image.each(after.plane.tiles, tile)


class _Argument(NamedTuple):
    """An operand as an argument: its address, and the scale and the zero of codes."""

    address: Bytes
    scale: Float
    zero: Int


class _Operand:
    """An operand of elementwise work."""

    def __init__(self, image: ImageCode, value: SSAValue, spread: Spread, codes: Stored | None) -> None:
        self._image, self._value, self._spread = image, value, spread
        self.kind = spread if codes is None else "codes" if spread == "tile" else "first_code"
        self._scale, self._zero = (1.0, 0) if codes is None else (codes.scale, codes.zero)

    def argument(self, number: Number) -> _Argument:
        """Return the operand for a tile."""
        builder = number.builder
        scale = Float(builder, ir.Constant(FLOAT, self._scale))
        return _Argument(self._address(number), scale, Int(builder, ir.Constant(I32, self._zero)))

    def _address(self, number: Number) -> Bytes:
        image, value = self._image, self._value
        if self._spread in ("tile", "first_column"):
            return image.tile(image.memory.views[value], number if self._spread == "tile" else 0)
        owner = value.owner if isinstance(value.owner, Operation) else None
        return image.arrays((value, "values"), values_of_constant, owner)[0]


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
            y.at(row).store(joined_bytes(lanes.builder, parts), PIXELS)

    return kernel


class _Where(NamedTuple):
    """A channel of a tile, the position of its row, and a position in that."""

    channel: Number
    row: Number
    place: Number


def _read(kind: str, operand: Bytes, values: CodeValues, where: _Where) -> ir.Value:
    """Return a vector of an operand."""
    lanes, floats = values.lanes, operand.cast(Floats)
    match kind:
        case "codes":
            return values.of_bytes(operand.at(where.place).load(ir.VectorType(BYTE, lanes.width), 1))
        case "first_code":
            return values.of_words(lanes.splat_int(operand.narrow(where.row).wide(I32)))
        case "tile":
            return lanes.load(floats.at(where.place), FLOAT_BYTES * lanes.width)
        case "per_feature":
            return lanes.splat(floats[where.channel])
        case "first_column":
            return lanes.splat(floats[where.row])
        case _:
            return lanes.splat(floats[0])
