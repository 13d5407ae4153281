"""Ops on the features of a tile one by one: activations, arithmetic, concat and split; threads share the features."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from xdsl.ir import Operation, SSAValue

from ...dialect.ops.constants import ConstantOp
from ...dialect.ops.elementwise import ActivateOp, AddOp, BinaryOp, DivOp, MulOp, PreluOp, SubOp
from ...dialect.ops.movement import ConcatOp, SplitOp
from ..kernels.elementwise import BinaryForm, activate, binary
from ..llvm.flow import call
from ..llvm.values import Floats, Index
from .thread_shares import Cut, copied_parts
from .tile_code import TileCode, TileEmitter
from .tile_memory import features_of


def emit_activate(op: ActivateOp, tile: TileCode, cut: Cut) -> None:
    """Emit an activation of every value."""
    function = activate(tile.code, op.activation, tile.width)

    def share(first: Index, features: Index) -> None:
        call(function, tile.feature_at(op.x, first), tile.feature_at(op.result, first), features)

    tile.by_features(cut, features_of(op.x), share)


def emit_binary(op: BinaryOp, tile: TileCode, cut: Cut) -> None:
    """Emit arithmetic of two operands: values of the tile, or constants with one entry a feature."""
    features = features_of(op.result)
    left, right = _operand(op.left, features), _operand(op.right, features)
    form = BinaryForm(op.name, left, right, tile.width)
    function = binary(tile.code, form)

    def share(first: Index, count: Index) -> None:
        operands = _address(tile, op.left, left, first), _address(tile, op.right, right, first)
        call(function, operands, tile.feature_at(op.result, first), count)

    tile.by_features(cut, features, share)


TileOperand = Literal["tile", "one_row", "per_feature", "one_value"]
"""Operands of a two-operand kernel that tiles of rows have."""


def _operand(value: SSAValue, features: int) -> TileOperand:
    """Return how a two-operand kernel over `features` features reads `value`."""
    if isinstance(value.owner, ConstantOp):
        return "per_feature" if value.owner.array.size == features and features != 1 else "one_value"
    return "tile" if features_of(value) == features else "one_row"


def _address(tile: TileCode, value: SSAValue, kind: TileOperand, first: Index) -> Floats:
    """Return the address from which a two-operand kernel reads `value`, from feature `first` on."""
    match kind:
        case "tile":
            return tile.feature_at(value, first)
        case "per_feature":
            return tile.pointer(value).at(first)
        case "one_row" | "one_value":
            return tile.pointer(value)


def emit_concat(op: ConcatOp, tile: TileCode, _: Cut) -> None:
    """Emit the copies of parts that do not lie in the whole."""
    with tile.only_for(0):
        for part, first in copied_parts(op, tile.spans, tile.width):
            _copy(tile, tile.pointer(part), tile.feature_at(op.result, first), features_of(part))


def emit_split(op: SplitOp, tile: TileCode, _: Cut) -> None:
    """Emit the copies of parts that do not lie in the whole."""
    with tile.only_for(0):
        for part, first in copied_parts(op, tile.spans, tile.width):
            _copy(tile, tile.feature_at(op.x, first), tile.pointer(part), features_of(part))


def _copy(tile: TileCode, source: Floats, target: Floats, features: int) -> None:
    call(activate(tile.code, None, tile.width), source, target, features)


FEATURE_EMITTERS: Final[Mapping[type[Operation], TileEmitter]] = MappingProxyType(
    {
        ActivateOp: emit_activate,
        AddOp: emit_binary,
        SubOp: emit_binary,
        MulOp: emit_binary,
        DivOp: emit_binary,
        PreluOp: emit_binary,
        ConcatOp: emit_concat,
        SplitOp: emit_split,
    }
)
"""Ops that are cut at features."""
