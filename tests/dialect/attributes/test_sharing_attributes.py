"""What the dialect says about threads that share a tile."""

import pytest
from numpy import float32, ones
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin, DenseArrayBase, i64
from xdsl.dialects.func import Func
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

from redpebble.dialect.attributes.schedule import ScheduleAttr
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.ops.tile import TileOp
from redpebble.dialect.pebble import Pebble
from tests.support.lowering_modules import linear_layer

WIDTHS = [1, 16, 64]


def test_a_shared_tile_is_read_as_it_is_written() -> None:
    module = linear_layer(ones((4, 64), dtype=float32), None, "count_blocks")
    for op in module.walk():
        if isinstance(op, TileOp):
            op.schedule = ScheduleAttr(WIDTHS, 2, {1: 0.5, 16: 3.0, 64: 12.5}, {16: 2.0, 64: 7.0})
        elif isinstance(op, LinearOp):
            op.cut = DenseArrayBase.from_list(i64, [0, 32, 64])
    module.verify()
    context = Context()
    for dialect in (Builtin, Func, Pebble):
        context.load_dialect(dialect)
    again = Parser(context, str(module)).parse_module()
    assert again.is_structurally_equivalent(module)
    (layer,) = [op for op in again.walk() if isinstance(op, LinearOp)]
    assert layer.borders == (0, 32, 64)


@pytest.mark.parametrize(
    ("shares", "serial", "shared", "message"),
    [
        (0, {}, {}, r"^expected 1 or more shares, and several for shared times, got 0$"),
        (1, {}, {64: 1.0}, r"^expected 1 or more shares, and several for shared times, got 1$"),
        (2, {8: 1.0}, {}, r"^expected a time at one of the widths \[1, 16, 64\], got 8$"),
        (2, {}, {16: 1.0}, r"^expected shared times at the widest of \[1, 16, 64\], got \[16\]$"),
    ],
)
def test_times_that_fit_no_tile_are_refused(
    shares: int, serial: dict[int, float], shared: dict[int, float], message: str
) -> None:
    with pytest.raises(VerifyException, match=message):
        ScheduleAttr(WIDTHS, shares, serial, shared)


@pytest.mark.parametrize("borders", [[1, 64], [0, 63], [0, 40, 20, 64]])
def test_a_cut_that_leaves_outputs_out_is_refused(borders: list[int]) -> None:
    module = linear_layer(ones((4, 64), dtype=float32), None, "count_blocks")
    (layer,) = [op for op in module.walk() if isinstance(op, LinearOp)]
    layer.cut = DenseArrayBase.from_list(i64, borders)
    with pytest.raises(VerifyException, match="expected ascending outputs from 0 to 64 to cut at"):
        layer.verify()
