"""Where values of an image network lie: apart while they are alive, parts in their whole, with room to read beyond."""

from collections.abc import Callable, Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.context import Context
from xdsl.ir import Block, Operation, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.attributes.codes import CodesAttr
from redpebble.dialect.attributes.window import WindowAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.elementwise import ActivateOp, AddOp
from redpebble.dialect.ops.image_network import ImageNetworkOp
from redpebble.dialect.ops.images import Conv2dOp, Depthwise2dOp, Pool2dOp
from redpebble.dialect.ops.movement import ConcatOp, SplitOp
from redpebble.dialect.tensors import DYNAMIC, f32_tensor, shape_of
from redpebble.kernels.tile_widths import PIXELS
from redpebble.lowering.images.memory import ImageMemory, View, ops_of, plan_images
from redpebble.lowering.llvm.values import ALIGNMENT, FLOAT_BYTES
from redpebble.passes.images.form_image_networks import FormImageNetworks
from redpebble.sparse.csr import CscMatrix
from tests.support.lowering_modules import function

SQUARE = WindowAttr((3, 3), pads=(1, 1, 1, 1))
RELU = ActivationAttr("relu")


def conv(x: SSAValue, outputs: int, window: WindowAttr = SQUARE) -> Sequence[Operation]:
    """A convolution and its weight."""
    weight = np.zeros((shape_of(x)[1] * len(window.taps), outputs), np.float32)
    weight[0] = 1
    constant = SparseConstantOp(CscMatrix.from_dense(weight))
    return constant, Conv2dOp(x, constant.result, None, window)


Add = Callable[..., SSAValue]
"""Adds ops; returns the first result of the last one."""


def network(size: tuple[int, int], emit: Callable[[Add, SSAValue], Sequence[SSAValue]]) -> ImageNetworkOp:
    """A network of images of 4 channels."""

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        def add(*ops: Operation) -> SSAValue:
            block.add_ops(ops)
            return ops[-1].results[0]

        return emit(add, arguments[0])

    module = function([f32_tensor((DYNAMIC, 4, *size))], body)
    FormImageNetworks(1).apply(Context(), module)
    (found,) = (op for op in module.walk() if isinstance(op, ImageNetworkOp))
    return found


def ends(view: View) -> tuple[int, int]:
    """The bytes that a value itself takes: from its first channel in the first tile to its last one in the last."""
    start = view.start + view.first * PIXELS * view.item
    size = ((view.plane.tiles - 1) * view.tile_values + view.channels * PIXELS) * view.item
    return start, start + size


def are_apart(one: View, other: View) -> bool:
    """Whether no byte belongs to both: their buffers are apart, or their channels in one buffer are."""
    if (one.start, one.all_channels) == (other.start, other.all_channels):
        return one.first + one.channels <= other.first or other.first + other.channels <= one.first
    (begin, end), (start, stop) = ends(one), ends(other)
    return end + ALIGNMENT <= start or stop + ALIGNMENT <= begin


def lives(op: ImageNetworkOp) -> dict[SSAValue, tuple[int, int]]:
    """The steps from which and to which each value is needed."""
    ops, found = ops_of(op), dict[SSAValue, tuple[int, int]]()
    for value in [*op.body.block.args, *(result for one in ops for result in one.results)]:
        first = ops.index(value.owner) if isinstance(value.owner, Operation) else -1
        reads = [ops.index(use.operation) if use.operation in ops else len(ops) for use in value.uses]
        found[value] = first, max([first, *reads])
    return found


def places_in(value: SSAValue) -> set[SSAValue]:
    """A value and all that it is made of, or cut into, by joining and splitting alone."""
    found, rest = set[SSAValue](), [value]
    while rest:
        one = rest.pop()
        if one in found:
            continue
        found.add(one)
        beside = [use.operation for use in one.uses] + [one.owner]
        for op in beside:
            if isinstance(op, ConcatOp | SplitOp):
                rest += [*op.operands, *op.results]
    return found


def assert_sound(op: ImageNetworkOp) -> ImageMemory:
    memory, alive = plan_images(op, 8), lives(op)
    for one, other in combinations(memory.views, 2):
        (first, last), (begin, end) = alive[one], alive[other]
        if first <= end and begin <= last and other not in places_in(one):
            assert are_apart(memory.views[one], memory.views[other])
    for view in [*memory.views.values(), *memory.phases.values()]:
        begin, end = ends(view)
        assert begin >= memory.own_bytes + ALIGNMENT
        assert end + ALIGNMENT <= memory.total
        assert view.start % ALIGNMENT == 0
    for reader, view in memory.phases.items():
        step = ops_of(op).index(reader)
        for value, (first, last) in alive.items():
            assert not first <= step <= last or value not in memory.views or are_apart(view, memory.views[value])
    return memory


@settings(max_examples=12, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("cdpaasj"), st.integers(0, 99), st.integers(0, 99)), min_size=3, max_size=8))
def test_values_that_are_needed_at_the_same_time_are_apart(steps: list[tuple[str, int, int]]) -> None:
    def emit(add: Add, x: SSAValue) -> Sequence[SSAValue]:
        values = [add(*conv(x, 4))]
        for kind, left, right in steps:
            one, other = (values[at % len(values)] for at in (left, right))
            match kind:
                case "c":
                    values.append(add(*conv(one, 1 + right % 5)))
                case "d":
                    factors = ConstantOp(np.ones((9, shape_of(one)[1]), np.float32))
                    values.append(add(factors, Depthwise2dOp(one, factors.result, None, SQUARE)))
                case "p":
                    values.append(add(Pool2dOp(one, "max", SQUARE)))
                case "a":
                    values.append(add(AddOp(one, other) if one.type == other.type else ActivateOp(one, RELU)))
                case "j" if shape_of(one)[1] + shape_of(other)[1] < 20:
                    values.append(add(ConcatOp([one, other, *([one] if right % 3 == 0 else [])], 1)))
                case _:
                    channels = shape_of(one)[1]
                    add(split := SplitOp(one, 1, [1, channels - 1] if channels > 1 else [1]))
                    values += split.parts
        return [value for value in values if not value.has_one_use()]

    assert_sound(network((3, 40), emit))


def test_parts_of_a_concat_lie_in_the_whole_but_for_those_that_stand_twice_or_come_from_a_split() -> None:
    def emit(add: Add, x: SSAValue) -> Sequence[SSAValue]:
        a, b, c = (add(*conv(x, outputs)) for outputs in (3, 2, 1))
        whole = add(ConcatOp([a, b, b, c], 1))
        add(split := SplitOp(whole, 1, [4, 4]))
        return [add(ConcatOp([split.parts[1], a], 1))]

    memory = assert_sound(network((5, 6), emit))
    whole, again = (view for value, view in memory.views.items() if isinstance(value.owner, ConcatOp))
    owners = [(type(value.owner), view) for value, view in memory.views.items() if view.start == whole.start]
    inside = [(owner, view.first) for owner, view in owners if view.all_channels == 8]
    # c stands behind both places of b, which has one of its own; the second concat copies
    assert inside == [(Conv2dOp, 0), (Conv2dOp, 7), (ConcatOp, 0), (SplitOp, 0), (SplitOp, 4)]
    assert (again.first, again.all_channels) == (0, 7)


@pytest.mark.parametrize(
    ("window", "is_read"),
    [
        (SQUARE, True),
        (WindowAttr((1, 1)), False),
        (WindowAttr((1, 1), pads=(0, 0, 1, 0)), True),
        (WindowAttr((3, 3), strides=(2, 2)), False),
    ],
    ids=str,
)
def test_positions_without_a_pixel_are_zeros_where_a_window_reads_them(window: WindowAttr, is_read: bool) -> None:
    def emit(add: Add, x: SSAValue) -> Sequence[SSAValue]:
        parts = [add(*conv(x, 2)), add(*conv(x, 3))]
        return [add(*conv(add(ConcatOp(parts, 1)), 2, window))]

    memory = plan_images(network((5, 6), emit), 8)
    joined = {value for value in memory.views if any(isinstance(use.operation, ConcatOp) for use in value.uses)}
    assert len(joined) == 2
    assert joined <= memory.zeroed if is_read else not joined & memory.zeroed


def test_a_thread_has_rows_for_the_windows_of_the_largest_layer() -> None:
    def emit(add: Add, x: SSAValue) -> Sequence[SSAValue]:
        return [add(*conv(add(*conv(x, 50)), 3))]

    memory = plan_images(network((5, 6), emit), 8)
    assert memory.own_bytes == 50 * 9 * PIXELS * FLOAT_BYTES


def test_codes_take_a_byte_and_values_within_a_chain_take_nothing() -> None:
    codes = CodesAttr("u8", 0.1, 3)

    def emit(add: Add, x: SSAValue) -> Sequence[SSAValue]:
        hidden = add(ActivateOp(add(*conv(x, 4)), RELU))
        return [add(Pool2dOp(add(ActivateOp(hidden, codes.rounding)), "max", SQUARE))]

    memory = plan_images(network((5, 6), emit), 8)
    items = {type(value.owner): view.item for value, view in memory.views.items()}
    assert items[ActivateOp] == items[Pool2dOp] == 1
    assert items[Conv2dOp] == FLOAT_BYTES
    assert len(memory.views) == 4
