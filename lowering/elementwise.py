"""Elementwise work inside a tile: activations, two-operand arithmetic, and copies of rows.

An operand is a feature-major buffer [features][width], one row for all features, or a constant per feature.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from llvmlite import ir

from redpebble.dialect.attributes import ActivationAttr
from redpebble.lowering.emission import (
    FLOAT,
    FLOAT_BYTES,
    I64,
    POINTER,
    Code,
    cell,
    column_chunks,
    counted_loop,
    float_at,
    i64,
)
from redpebble.lowering.linear import activated, activation_key
from redpebble.lowering.vectors import Lanes

Operand = Literal["tile", "one_row", "per_feature", "one_value"]
"""How an operand is read for feature k and column t: [k][t], [0][t], [k], or [0]."""

MOST_VECTORS = 4
"""Vectors in flight in one turn of a loop over columns."""


def prelu(lanes: Lanes, x: ir.Value, slope: ir.Value) -> ir.Value:
    """Return x where it is not negative (NaN included: NaN * slope is NaN), else x * slope."""
    return lanes.select(lanes.compare("<", x, lanes.splat(0.0)), lanes.mul(x, slope), x)


ARITHMETIC: Final[Mapping[str, Callable[[Lanes, ir.Value, ir.Value], ir.Value]]] = MappingProxyType(
    {
        "pebble.add": Lanes.add,
        "pebble.sub": Lanes.sub,
        "pebble.mul": Lanes.mul,
        "pebble.div": Lanes.div,
        "pebble.prelu": prelu,
    }
)


@dataclass(frozen=True)
class BinaryForm:
    """What a two-operand kernel is specialised on."""

    op: str
    left: Operand
    right: Operand
    width: int

    @property
    def key(self) -> str:
        """A name for the function."""
        return f"{self.op.removeprefix('pebble.')}_{self.left}_{self.right}_w{self.width}"


def binary(code: Code, form: BinaryForm) -> ir.Function:
    """Return `void (left, right, y, features)`."""

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        left, right, y, features = args
        with counted_loop(builder, features) as feature:
            for first, vectors in column_chunks(form.width, code.target.lanes, MOST_VECTORS):
                for index in range(vectors):
                    place = (feature, form.width, first + index * code.target.lanes)
                    operands = [
                        _read(code, builder, (form.left, left), place),
                        _read(code, builder, (form.right, right), place),
                    ]
                    result = ARITHMETIC[form.op](code.lanes(builder), *operands)
                    code.lanes(builder).store(result, cell(builder, y, place), FLOAT_BYTES * code.target.lanes)

    return code.function(form.key, [POINTER, POINTER, POINTER, I64], body)


def _read(
    code: Code, builder: ir.IRBuilder, operand: tuple[Operand, ir.Value], place: tuple[ir.Value, int, int]
) -> ir.Value:
    """Return the vector of an operand at (feature, width, column)."""
    kind, pointer = operand
    feature, width, column = place
    lanes = code.lanes(builder)
    match kind:
        case "tile":
            return lanes.load(cell(builder, pointer, place), FLOAT_BYTES * lanes.width)
        case "one_row":
            return lanes.load(cell(builder, pointer, (i64(0), width, column)), FLOAT_BYTES * lanes.width)
        case "per_feature":
            return lanes.splat(builder.load(float_at(builder, pointer, feature), typ=FLOAT))
        case "one_value":
            return lanes.splat(builder.load(pointer, typ=FLOAT))


def activate(code: Code, activation: ActivationAttr | None, width: int) -> ir.Function:
    """Return `void (x, y, features)`, a copy where there is no activation."""

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        x, y, features = args
        lanes = code.lanes(builder)
        with counted_loop(builder, builder.mul(features, i64(width)), lanes.width) as start:
            value = lanes.load(float_at(builder, x, start), FLOAT_BYTES * lanes.width)
            (result,) = activated(lanes, activation, [value])
            lanes.store(result, float_at(builder, y, start), FLOAT_BYTES * lanes.width)

    return code.function(f"activate_{activation_key(activation)}_w{width}", [POINTER, POINTER, I64], body)
