"""Elementwise work inside a tile: activations, two-operand arithmetic, and copies of rows.

    tile of columns     x = left[k][t .. t + lanes)    one vector of columns of feature k
    tile of one column  x = left[k .. k + lanes)       one vector of features
    per_feature         x = left[k] in every lane      a broadcast, for each feature anew
    first_column        x = left[k][0] in every lane   the same of a tile
    y = op(x, second)   stored where x was read

An operand is a feature-major buffer [features][width], one row for all features, or a constant per feature.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal

from llvmlite import ir

from ...dialect.attributes.activations import ActivationAttr
from ..llvm.builder import Cell, Code
from ..llvm.flow import loop
from ..llvm.values import FLOAT_BYTES, Floats, Number
from ..llvm.vectors import Lanes
from .kernel_form import activated, activation_key

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
    columns: int = 0
    """Columns of a tile of which the first is read, where these are others: `width` counts those of the result."""

    @property
    def key(self) -> str:
        """A name for the function."""
        other = f"_{self.columns}" if self.columns and self.columns != self.width else ""
        return f"{self.op.removeprefix('pebble.')}_{self.left}_{self.right}_w{self.width}{other}"


def binary(code: Code, form: BinaryForm) -> ir.Function:
    """Return `void (left, right, y, features)`.

    A vector holds columns of one feature; in a tile of one column it holds features.
    """
    width = code.target.lanes if form.width == 1 else code.column_lanes(form.width)

    @code.kernel(form.key)
    def kernel(left: Floats, right: Floats, y: Floats, features: Number) -> None:
        lanes = code.lanes(left, width)
        with loop(features, width if form.width == 1 else 1) as feature:
            for column in range(0, form.width, width):
                # both operands are read as their kinds say, y is always a tile
                cell = Cell(feature, form.width, column)
                first = _read(lanes, form, form.left, left, cell)
                second = _read(lanes, form, form.right, right, cell)
                result = ARITHMETIC[form.op](lanes, first, second)
                lanes.store(result, cell.of(y), FLOAT_BYTES * width)

    return kernel


def _read(lanes: Lanes, form: BinaryForm, kind: Operand, buffer: Floats, cell: Cell) -> ir.Value:
    """Return the vector of an operand at `cell`."""
    match kind:
        case "tile":
            return lanes.load(cell.of(buffer), lanes.size)
        case "one_row" if cell.width > 1:
            return lanes.load(buffer.at(cell.column), lanes.size)
        case "per_feature" if cell.width == 1:
            return lanes.load(buffer.at(cell.feature))
        case "per_feature":
            return lanes.splat(buffer[cell.feature])
        case "first_column":
            return lanes.splat(buffer[cell.feature * (form.columns or cell.width)])
        case "one_row" | "one_value":
            return lanes.splat(buffer[0])


def activate(code: Code, activation: ActivationAttr | None, width: int) -> ir.Function:
    """Return `void (x, y, features)`, a copy where there is no activation; up to a vector behind y is overwritten."""

    @code.kernel(f"activate_{activation_key(activation)}_w{width}")
    def kernel(x: Floats, y: Floats, features: Number) -> None:
        lanes = code.lanes(x)
        with loop(features * width, lanes.width) as start:
            (result,) = activated(lanes, activation, [lanes.load(x.at(start))])
            lanes.store(result, y.at(start))

    return kernel
