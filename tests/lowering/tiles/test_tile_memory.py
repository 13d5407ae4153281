"""Where values of a tile lie."""

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.ops.constants import ConstantOp
from redpebble.dialect.ops.elementwise import ActivateOp, AddOp
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.ops.movement import ConcatOp, SplitOp
from redpebble.dialect.ops.tile import TileOp
from redpebble.dialect.tensors import DYNAMIC, f32_tensor, shape_of
from redpebble.lowering.llvm.values import FLOAT_BYTES
from redpebble.lowering.tiles.tile_memory import TileMemory, plan_tile
from redpebble.runtime.jit import host_target
from tests.support.lowering_modules import native, tiled


def linear(block: Block, x: SSAValue, outputs: int) -> SSAValue:
    weight = ConstantOp(np.ones((shape_of(x)[-1], outputs), dtype=np.float32))
    layer = LinearOp(x, weight.result)
    block.add_ops([weight, layer])
    return layer.result


def activated(block: Block, x: SSAValue) -> SSAValue:
    op = ActivateOp(x, ActivationAttr("relu"))
    block.add_op(op)
    return op.result


def the_tile(module: ModuleOp) -> TileOp:
    return next(op for op in module.walk() if isinstance(op, TileOp))


def memory_of(features: int, body: object, width: int) -> TileMemory:
    return plan_tile(the_tile(tiled([f32_tensor((DYNAMIC, features))], body)), width)  # pyright: ignore[reportArgumentType]


def test_parts_of_a_concat_are_computed_in_their_place() -> None:
    values: list[SSAValue] = []

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        parts = [linear(block, arguments[0], outputs) for outputs in (32, 16, 5)]
        whole = ConcatOp(parts, 1)
        block.add_op(whole)
        values.extend([*parts, whole.result])
        return [whole.result]

    spans = memory_of(8, body, 64).spans
    *parts, whole = (spans[value] for value in values)
    starts = [whole.start + feature * 64 * FLOAT_BYTES for feature in (0, 32, 48)]
    assert [part.start for part in parts] == starts


def test_a_part_that_is_computed_before_its_neighbour_on_the_left_has_a_place_of_its_own() -> None:
    values: list[SSAValue] = []

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        right, left = (linear(block, arguments[0], 32) for _ in range(2))
        whole = ConcatOp([left, right], 1)
        block.add_op(whole)
        values.extend([left, right, whole.result])
        return [whole.result]

    spans = memory_of(8, body, 64).spans
    left, right, whole = (spans[value] for value in values)
    assert left.start == whole.start
    assert right.start >= whole.end or right.end <= whole.start


def test_parts_of_a_split_are_read_in_their_place() -> None:
    values: list[SSAValue] = []

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        split = SplitOp(arguments[0], 1, [16, 32])
        block.add_op(split)
        values.extend([arguments[0], *split.parts])
        return split.parts

    spans = memory_of(48, body, 8).spans
    whole, first, second = (spans[value] for value in values)
    assert (first.start, second.start) == (whole.start, whole.start + 16 * 8 * FLOAT_BYTES)


def test_an_activation_works_in_place_when_nobody_else_reads_its_operand() -> None:
    values: list[SSAValue] = []

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        hidden = linear(block, arguments[0], 32)
        first = activated(block, hidden)
        second = activated(block, first)
        total = AddOp(first, second)
        block.add_op(total)
        values.extend([hidden, first, second, total.result])
        return [total.result]

    spans = memory_of(8, body, 64).spans
    hidden, first, second, total = (spans[value] for value in values)
    assert hidden.start == first.start == total.start
    assert second.start >= first.end or second.end <= first.start


def test_a_chain_of_layers_needs_no_more_than_the_two_largest_neighbours() -> None:
    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        value = arguments[0]
        for _ in range(6):
            value = activated(block, linear(block, value, 128))
        return [value]

    assert memory_of(128, body, 64).total < 2 * 64 * FLOAT_BYTES * 128 * 1.2


def test_a_value_may_be_several_parts_of_a_concat() -> None:
    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        first = activated(block, arguments[0])
        second = activated(block, first)
        inner = ConcatOp([first, second], 1)
        twice = ConcatOp([first, first], 1)
        outer = ConcatOp([inner.result, first, twice.result, inner.result], 1)
        block.add_ops([inner, twice, outer])
        return [outer.result]

    network = native(tiled([f32_tensor((DYNAMIC, 16))], body), host_target())
    for batch in (1, 8, 70):
        x = np.random.default_rng(batch).standard_normal((batch, 16)).astype(np.float32)
        np.testing.assert_array_equal(network(x), np.tile(np.maximum(x, 0), 7))
