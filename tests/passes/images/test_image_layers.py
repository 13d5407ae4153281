"""Prices of images, worked out by hand from what a value, a tap and a line are said to take."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pytest
from xdsl.dialects.builtin import FloatAttr, f64
from xdsl.ir import Block, Operation, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.attributes.codes import CodesAttr
from redpebble.dialect.attributes.kernels import KernelAttr
from redpebble.dialect.attributes.resampling import ResamplingAttr
from redpebble.dialect.attributes.window import WindowAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.elementwise import ActivateOp, AddOp, MulOp
from redpebble.dialect.ops.images import Conv2dOp, Depthwise2dOp, Pool2dOp, Resample2dOp
from redpebble.dialect.ops.movement import ConcatOp
from redpebble.dialect.symbolic_sizes import Size
from redpebble.dialect.tensors import DYNAMIC, f32_tensor
from redpebble.kernels.image_prices import IMAGE_SHARES, ImageShares
from redpebble.kernels.machine import Machine
from redpebble.passes.images.image_layers import (
    IMAGES,
    SPREAD_IMAGES,
    dense_us,
    image_counts,
    layer_us,
    network_us,
    pixels_of,
    tiles_of,
)
from redpebble.sparse.csr import CscMatrix
from tests.support.lowering_modules import function

CHANNELS, HEIGHT, WIDTH = 5, 8, 10
VALUES = CHANNELS * HEIGHT * WIDTH  # 400 of an image

PLAIN = ImageShares(values=1.0, dense=1.0, taps=1.0, dense_taps=1.0)

Make = Callable[[SSAValue], Sequence[Operation]]


def window(kernel: int, stride: int = 1, dilation: int = 1) -> WindowAttr:
    """A window whose result has as many pixels as the image, where it does not stride."""
    pad = dilation * (kernel // 2)
    return WindowAttr((kernel, kernel), (stride, stride), (dilation, dilation), (pad,) * 4)


def made(make: Make, channels: int = CHANNELS, height: int = HEIGHT, width: int = WIDTH) -> Sequence[Operation]:
    """Ops on images, those of constants left out."""
    found: list[Operation] = []

    def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
        found.extend(make(arguments[0]))
        block.add_ops(found)
        return found[-1].results

    function([f32_tensor((DYNAMIC, channels, height, width))], body)
    return [op for op in found if not isinstance(op, ConstantOp | SparseConstantOp)]


def pool(kernel: int, stride: int = 1) -> Make:
    return lambda x: [Pool2dOp(x, "average", window(kernel, stride))]


def depthwise(kernel: int, dilation: int = 1) -> Make:
    def make(x: SSAValue) -> Sequence[Operation]:
        weight = ConstantOp(np.ones((kernel * kernel, CHANNELS), dtype=np.float32))
        return [weight, Depthwise2dOp(x, weight.result, None, window(kernel, 1, dilation))]

    return make


def activate(kind: str) -> Make:
    return lambda x: [ActivateOp(x, ActivationAttr(kind))]


def add(x: SSAValue) -> Sequence[Operation]:
    return [AddOp(x, x)]


def conv(
    kernel: int, outputs: int = 3, stride: int = 1, dilation: int = 1, us: float = 0.0, channels: int = CHANNELS
) -> Make:
    """A convolution whose kernel takes `us` a tile, and all of it 7 us in onnxruntime."""

    def make(x: SSAValue) -> Sequence[Operation]:
        weight = SparseConstantOp(CscMatrix.from_dense(np.ones((channels * kernel**2, outputs), dtype=np.float32)))
        op = Conv2dOp(x, weight.results[0], None, window(kernel, stride, dilation))
        op.kernel = KernelAttr({1: "count_blocks"}, "by the test", {64: us})
        op.dense_us = FloatAttr(7.0, f64)
        return [weight, op]

    return make


def activated(ops: Sequence[Operation], kind: str) -> Sequence[Operation]:
    """The same ops, with an activation of their convolution."""
    for op in ops:
        if isinstance(op, Conv2dOp):
            op.activation = ActivationAttr(kind)
    return ops


def hard_swish(x: SSAValue) -> Sequence[Operation]:
    return activated(conv(3)(x), "hard_swish")


def relu(x: SSAValue) -> Sequence[Operation]:
    return activated(conv(3)(x), "relu")


def by_channel(x: SSAValue) -> Sequence[Operation]:
    """A product of images and the mean of each channel."""
    mean = Pool2dOp(x, "average", WindowAttr((HEIGHT, WIDTH), (1, 1), (1, 1), (0,) * 4))
    return [mean, MulOp(x, mean.result)]


PRICED: Sequence[tuple[str, Make, float]] = [
    # 0.037 ns for each of 9 taps of 400 values, which are moved for 0.6 ns each
    ("a pooling of 3 x 3", pool(3), 0.037 * 9 * 400 + 0.6 * 400),
    ("one of 5 x 5", pool(5), 0.037 * 25 * 400 + 0.6 * 400),
    # results are 5 channels of 4 x 5
    ("a pooling with a stride", pool(3, 2), 0.037 * 9 * 100 + 0.6 * 400),
    ("a depthwise convolution", depthwise(3), 0.037 * 9 * 400),
    # 0.12 ns for each value that is read
    ("a sum with itself, which is read once", add, 0.12 * 400),
    ("an activation of few instructions", activate("relu"), 0.12 * 400),
    # and 0.5 ns for a sigmoid, 1.8 times that for an erf
    ("one that takes a power", activate("sigmoid"), (0.12 + 0.5) * 400),
    ("one that takes two", activate("erf"), (0.12 + 0.9) * 400),
    ("channels next to each other", lambda x: [ConcatOp([x, x], 1)], 0.0),
    # rows have room for a pad: 8 x 11 places are 2 tiles of 64
    ("a kernel that takes 3 us a tile", conv(1, us=3.0), 2 * 3000.0),
    # 0.1 ns for each of 45 taps and 128 places of tiles
    ("the copies of a window", conv(3), 0.1 * 45 * 128),
    # results of 4 x 5 pixels are one tile of 64
    ("a convolution with a stride", conv(3, stride=2), 0.1 * 45 * 64 + 0.6 * 400),
]


@pytest.mark.parametrize(("make", "ns"), [pytest.param(make, ns, id=name) for name, make, ns in PRICED])
def test_a_layer_has_the_price_of_its_parts(make: Make, ns: float) -> None:
    (op,) = made(make)
    assert layer_us(op, PLAIN) == pytest.approx(ns / 1e3)


@pytest.mark.parametrize(("make", "ns"), [pytest.param(make, ns, id=name) for name, make, ns in PRICED])
def test_what_comes_in_and_goes_out_is_moved(make: Make, ns: float) -> None:
    ops = made(make)
    moved = VALUES + pixels_of(ops[-1].results[0])
    assert network_us(ops, PLAIN) == pytest.approx((ns + 0.6 * moved) / 1e3)


@pytest.mark.parametrize(
    ("make", "ns"),
    [
        (conv(3), 7000.0),
        (pool(3, 2), 0.037 * 9 * 100),
        (depthwise(3), 0.037 * 9 * 400),
        (add, 0.12 * 400),
        (activate("relu"), 0.12 * 400),
        (pool(3), 0.037 * 9 * 400),
        (activate("sigmoid"), (0.12 + 0.2) * 400),
        (activate("softplus"), (0.12 + 4.0) * 400),
        # what no convolution there computes by itself leaves its blocks of channels, and comes back to them
        (hard_swish, 7000.0 + (0.08 + 2 * 0.2) * 240),
        (relu, 7000.0),
        (by_channel, 0.12 * 400 + 0.12 * (400 + 5) + 2 * 0.2 * 400),
    ],
)
def test_onnxruntime_has_prices_of_its_own(make: Make, ns: float) -> None:
    assert dense_us(made(make), PLAIN) == pytest.approx(ns / 1e3)


def between_codes(make: Make) -> Operation:
    """An op that reads codes, and whose results are rounded to codes alone."""
    rounding, found = CodesAttr("u8", 0.1, 128).rounding, list[Operation]()

    def ops(x: SSAValue) -> Sequence[Operation]:
        codes = ActivateOp(x, rounding)
        found.extend(make(codes.result))
        return [codes, *found, ActivateOp(found[-1].results[0], rounding)]

    made(ops)
    return found[-1]


def largest(stride: int) -> Make:
    return lambda x: [Pool2dOp(x, "max", window(3, stride))]


def multiply(x: SSAValue) -> Sequence[Operation]:
    return [MulOp(x, x)]


@pytest.mark.parametrize(
    ("make", "ns", "dense_ns"),
    [
        # 1.5 ns for each line of 64 codes, of which 9 taps have those of all results, and with a stride of the image
        (largest(1), 1.5 * 9 * 400 / 64, 0.028 * 9 * 400),
        (largest(2), 1.5 * 9 * (400 + 100) / 64, 0.028 * 9 * 100),
        (activate("sigmoid"), 0.07 * 400, 0.85 * 400),
        (add, 0.42 * 400, 0.37 * 400),
        (multiply, 0.42 * 400, 0.65 * 400),
    ],
    ids=["largest", "largest with a stride", "activation", "sum", "product"],
)
def test_layers_on_codes_have_prices_of_their_own(make: Make, ns: float, dense_ns: float) -> None:
    op = between_codes(make)
    assert layer_us(op, PLAIN) == pytest.approx(ns / 1e3)
    assert dense_us([op], PLAIN) == pytest.approx(dense_ns / 1e3)


def resampled(*, blends: bool) -> Make:
    """Twice as many rows and columns, each one of the image, or a mean of two."""

    def places(size: int) -> ResamplingAttr:
        indices = [place // 2 for place in range(2 * size)]
        return ResamplingAttr(indices, indices, [0.25] * len(indices)) if blends else ResamplingAttr(indices)

    return lambda x: [Resample2dOp(x, places(HEIGHT), places(WIDTH))]


@pytest.mark.parametrize(("blends", "taps"), [(False, 1), (True, 4)])
def test_a_resampled_value_is_moved_from_each_that_it_is_made_of(*, blends: bool, taps: int) -> None:
    ops = made(resampled(blends=blends))
    # 1 ns for each of 1600 results, and as often as there are taps; onnxruntime takes one pass
    assert layer_us(ops[0], PLAIN) == pytest.approx(taps * 1600 / 1e3)
    assert dense_us(ops, PLAIN) == pytest.approx(1600 / 1e3)


@pytest.mark.parametrize("height", [63, 64])
def test_a_convolution_of_more_values_than_the_second_level_cache_has_waits_for_them(height: int) -> None:
    shares = PLAIN._replace(machine=Machine(l2_bytes=1 << 20))
    (op,) = made(conv(1, outputs=1, channels=63), 63, height, 64)
    values = (63 + 1) * height * 64
    assert values == (1 << 18 if height == 64 else (1 << 18) - 4096)
    assert layer_us(op, shares) == 0.0
    (more,) = made(conv(1, outputs=2, channels=63), 63, 64, 64)
    # one more channel of 4096 values, and 0.2 ns for each of all
    assert layer_us(more, shares) == pytest.approx(0.2 * ((1 << 18) + 4096) / 1e3)
    assert layer_us(more, PLAIN._replace(machine=Machine(l2_bytes=2 << 20))) == 0.0


def with_caches(size: int) -> ImageShares:
    """A machine whose memory takes half a nanosecond a byte."""
    return PLAIN._replace(machine=Machine(l1_bytes=size, l2_bytes=size, l3_bytes=size, dram_ns=0.5))


@pytest.mark.parametrize("make", [pool(3), add, activate("relu"), conv(1, outputs=CHANNELS), depthwise(3)])
def test_what_no_cache_holds_goes_through_memory(make: Make) -> None:
    (op,) = made(make)
    near = layer_us(op, with_caches(1 << 16))
    size = 4 * 2 * VALUES  # of floats, read and written
    # those of a convolution are beyond the second-level cache, too, which is as small
    more = 0.2 * 2 * VALUES if isinstance(op, Conv2dOp) else 0.0
    assert layer_us(op, with_caches(size // 2)) == pytest.approx(near + (0.5 * size + more) / 1e3)
    times = [layer_us(op, with_caches(bytes_)) for bytes_ in range(256, 2 * size, 64)]
    assert times == sorted(times, reverse=True)
    assert times[-1] == near


def test_parts_of_a_whole_do_not_go_through_memory() -> None:
    (op,) = made(lambda x: [ConcatOp([x, x], 1)])
    assert layer_us(op, with_caches(256)) == 0.0


@pytest.mark.parametrize(
    ("make", "waits"), [(conv(1), False), (pool(3), False), (add, True), (resampled(blends=True), True)]
)
def test_onnxruntime_waits_for_memory_where_it_hardly_computes(make: Make, *, waits: bool) -> None:
    ops = made(make)
    size = 4 * sum(map(pixels_of, (*ops[0].operands[:1], *ops[0].results)))
    more = dense_us(ops, with_caches(256)) - dense_us(ops, PLAIN)
    assert more == pytest.approx(0.5 * size / 1e3 if waits else 0.0)


@pytest.mark.parametrize("machine", IMAGE_SHARES)
def test_a_machine_has_shares_of_these_prices(machine: str) -> None:
    shares = IMAGE_SHARES[machine]
    times = {
        # what is read and written, taps, and the products of dense convolutions each have their own
        add: (shares.values, shares.values),
        depthwise(3): (shares.taps, shares.dense_taps),
    }
    for make, (ours, theirs) in times.items():
        ops = made(make)
        assert layer_us(ops[0], shares) == pytest.approx(ours * layer_us(ops[0], PLAIN))
        assert dense_us(ops, shares) == pytest.approx(theirs * dense_us(ops, PLAIN))
    (op,) = made(conv(1, us=3.0))
    assert layer_us(op, shares) == layer_us(op, PLAIN)
    assert dense_us([op], shares) == pytest.approx(shares.dense * 7.0)


@pytest.mark.parametrize("dilation", range(1, 13))
@pytest.mark.parametrize("of", [partial(conv, 3, 3, 1), partial(depthwise, 3)], ids=["sparse", "depthwise"])
def test_windows_that_reach_half_a_row_beside_it_have_a_network_of_their_own(
    of: Callable[[int], Make], dilation: int
) -> None:
    (op,) = made(of(dilation))
    rows = Size.symbol("n")
    (count,) = image_counts([op], dict.fromkeys([*op.operands, *op.results], (rows,))).values()
    # rows of 10 pixels are 10 + dilation apart, and an image network ends at 1.5 times 10, and one for the pad
    assert count == (SPREAD_IMAGES if dilation >= 6 else IMAGES) * rows
    if isinstance(op, Conv2dOp):
        assert tiles_of(op) == -(-HEIGHT * (WIDTH + (dilation if dilation >= 6 else 1)) // 64)


@pytest.mark.parametrize(
    ("shape", "tiles"),
    [((8, 256, 1), 4), ((8, 64), 1), ((8, 1, 64), 1), ((8, 64, 2), 2), ((8, 64, 3), 4)],
)
def test_rows_have_room_for_pads_unless_tiles_hold_whole_ones(shape: tuple[int, ...], tiles: int) -> None:
    x, weight = Block(arg_types=[f32_tensor((DYNAMIC, *shape)), f32_tensor((8, 4))]).args
    assert tiles_of(Conv2dOp(x, weight, None, WindowAttr((1, 1)))) == tiles
