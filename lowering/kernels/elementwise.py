"""Elementwise work inside a tile: activations, two-operand arithmetic, and copies of rows.

    tile of columns     x = left[k][t .. t + lanes)    one vector of columns of feature k
    tile of one column  x = left[k .. k + lanes)       one vector of features
    per_feature         x = left[k] in every lane      a broadcast, for each feature anew
    first_column        x = left[k][0] in every lane   the same of a tile
    y = op(x, second)   stored where x was read

An operand is a feature-major buffer [features][width], one row for all features, or a constant per feature.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from llvmlite import ir

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.lowering.kernels.kernel_form import activated, activation_key
from redpebble.lowering.llvm.builder import (
    FLOAT_BYTES,
    I64,
    POINTER,
    Cell,
    Code,
    counted_loop,
    float_at,
    i64,
)
from redpebble.lowering.llvm.vectors import FLOAT, Lanes

Operand = Literal["tile", "one_row", "per_feature", "first_column", "one_value"]
"""Layout of an operand, read for feature k and column t: [k][t], [0][t], [k], [k][0], or [0]."""


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
    """The form that a two-operand kernel is specialised on."""

    op: str
    left: Operand
    right: Operand
    width: int

    @property
    def key(self) -> str:
        """A name for the function."""
        return f"{self.op.removeprefix('pebble.')}_{self.left}_{self.right}_w{self.width}"


def binary(code: Code, form: BinaryForm) -> ir.Function:
    """Return `void (left, right, y, features)`.

    A vector holds columns of one feature; in a tile of one column it holds features.
    """
    lanes = code.target.lanes if form.width == 1 else code.column_lanes(form.width)

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        left, right, y, features = args
        vectors = code.lanes(builder, lanes)
        with counted_loop(builder, features, lanes if form.width == 1 else 1) as feature:
            for column in range(0, form.width, lanes):
                cell = Cell(feature, form.width, column)
                first = _read(vectors, form.left, left, cell)
                second = _read(vectors, form.right, right, cell)
                result = ARITHMETIC[form.op](vectors, first, second)
                vectors.store(result, cell.address(builder, y), FLOAT_BYTES * lanes)

    return code.function(form.key, [POINTER, POINTER, POINTER, I64], body)


def _read(lanes: Lanes, kind: Operand, pointer: ir.Value, cell: Cell) -> ir.Value:
    """Return the vector of an operand at `cell`."""
    builder = lanes.builder
    match kind:
        case "tile":
            return lanes.load(cell.address(builder, pointer), FLOAT_BYTES * lanes.width)
        case "one_row" if cell.width > 1:
            return lanes.load(cell._replace(feature=i64(0)).address(builder, pointer), FLOAT_BYTES * lanes.width)
        case "per_feature" if cell.width == 1:
            return lanes.load(float_at(builder, pointer, cell.feature), FLOAT_BYTES)
        case "per_feature":
            return lanes.splat(builder.load(float_at(builder, pointer, cell.feature), typ=FLOAT))
        case "first_column":
            return lanes.splat(builder.load(cell._replace(column=0).address(builder, pointer), typ=FLOAT))
        case "one_row" | "one_value":
            return lanes.splat(builder.load(pointer, typ=FLOAT))


def activate(code: Code, activation: ActivationAttr | None, width: int) -> ir.Function:
    """Return `void (x, y, features)`, a copy where there is no activation; up to a vector behind y is overwritten."""

    def body(builder: ir.IRBuilder, args: Sequence[ir.Argument]) -> None:
        x, y, features = args
        lanes = code.lanes(builder)
        with counted_loop(builder, builder.mul(features, i64(width)), lanes.width) as start:
            value = lanes.load(float_at(builder, x, start), FLOAT_BYTES)
            (result,) = activated(lanes, activation, [value])
            lanes.store(result, float_at(builder, y, start), FLOAT_BYTES)

    return code.function(f"activate_{activation_key(activation)}_w{width}", [POINTER, POINTER, I64], body)
