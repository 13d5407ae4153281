"""Layers on images as native code against numpy, on integers, which floats add without an error: the same bits."""

from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np
import pytest
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.attributes.kernels import KernelAttr
from redpebble.dialect.attributes.window import WindowAttr
from redpebble.dialect.ops.constants import ConstantOp, SparseConstantOp
from redpebble.dialect.ops.elementwise import ActivateOp, AddOp, MulOp
from redpebble.dialect.ops.image_bands import BandGroupAttr, BandsAttr, runs_in_bands
from redpebble.dialect.ops.image_network import ImageNetworkOp
from redpebble.dialect.ops.images import Conv2dOp, Depthwise2dOp, Interleave2dOp, Pool2dOp, Pooling, image_shape
from redpebble.dialect.ops.movement import ConcatOp, SplitOp
from redpebble.dialect.semantics.interpreter import interpret
from redpebble.dialect.tensors import DYNAMIC, f32_tensor, shape_of
from redpebble.kernels.tile_widths import IMAGE_TILES, PIXELS
from redpebble.lowering.images.memory import ops_of, plan_images
from redpebble.passes.images.form_image_networks import FormImageNetworks
from redpebble.runtime.network import Network
from redpebble.sparse.csr import CscMatrix
from tests.support.lowering_modules import HERE, Floats, function, native

TARGET = next(iter(HERE.values()))
NARROW = max(IMAGE_TILES[0], TARGET.lanes)
each_tile = pytest.mark.parametrize("tile", [PIXELS, NARROW, 48])
RELU = ActivationAttr("relu")


def run_in_bands(module: ModuleOp, bands: int) -> None:
    """Let all ops of image networks that can do so run in bands."""
    for network in [op for op in module.walk() if isinstance(op, ImageNetworkOp)]:
        groups = list[BandGroupAttr]()
        for can_run, numbered in groupby(enumerate(ops_of(network)), key=lambda one: runs_in_bands(one[1])):
            numbers = [number for number, _ in numbered]
            if can_run and len(numbers) > 1:
                groups.append(BandGroupAttr(range(numbers[0], numbers[-1] + 1), bands, "by the test"))
        network.depth_first = BandsAttr(groups) if groups else None


class Layers:
    """Layers under construction, of small integers."""

    def __init__(self, block: Block, tile: int) -> None:
        self.block, self.rng, self.tile = block, np.random.default_rng(3), tile

    def add(self, op: Operation) -> SSAValue:
        self.block.add_op(op)
        return op.results[0]

    def integers(self, *shape: int) -> SSAValue:
        return self.add(ConstantOp(self.rng.integers(-4, 5, shape).astype(np.float32)))

    def conv(
        self,
        x: SSAValue,
        outputs: int,
        window: WindowAttr,
        kernel: str = "count_blocks",
        groups: int = 1,
        residual: SSAValue | None = None,
        activation: ActivationAttr | None = None,
        density: float = 0.4,
    ) -> SSAValue:
        """A convolution, of whose outputs the one in the middle has no nonzeros."""
        channels, taps = shape_of(x)[1], len(window.taps)
        shape = channels, taps, outputs
        weight = self.rng.integers(-4, 5, shape) * (self.rng.random(shape) < density)
        group = [np.arange(count) * groups // count for count in (channels, outputs)]
        weight *= (group[0][:, None] == group[1])[:, None]
        weight[..., outputs // 2] = 0
        matrix = weight.reshape(-1, outputs).astype(np.float32)
        is_dense = kernel == "dense_outputs"
        constant = self.add(ConstantOp(matrix) if is_dense else SparseConstantOp(CscMatrix.from_dense(matrix)))
        op = Conv2dOp(x, constant, self.integers(outputs), window, residual)
        op.kernel, op.activation = KernelAttr({1: kernel}, "by the test", {self.tile: 1.0}), activation
        return self.add(op)

    def depthwise(self, x: SSAValue, window: WindowAttr) -> SSAValue:
        weight = self.integers(len(window.taps), shape_of(x)[1])
        return self.add(Depthwise2dOp(x, weight, self.integers(shape_of(x)[1]), window))


Emit = Callable[[Layers, Sequence[SSAValue]], Sequence[SSAValue]]


class Case:
    """A network of layers on images of these shapes, and what it computes."""

    def __init__(
        self, shapes: Sequence[Sequence[int]], emit: Emit, threads: int = 1, tile: int = PIXELS, bands: int = 0
    ) -> None:
        def body(block: Block, arguments: Sequence[SSAValue]) -> Sequence[SSAValue]:
            return emit(Layers(block, tile), arguments)

        self.shapes, self.module = shapes, function([f32_tensor((DYNAMIC, *shape)) for shape in shapes], body)
        self.reference = self.module.clone()
        FormImageNetworks(threads).apply(Context(), self.module)
        if bands:
            run_in_bands(self.module, bands)
        self.network: Network = native(self.module, TARGET, threads)

    def images(self, samples: int) -> dict[str, Floats]:
        rng = np.random.default_rng(samples)
        arrays = [rng.integers(-4, 5, (samples, *shape)).astype(np.float32) for shape in self.shapes]
        return {f"x{index}": array for index, array in enumerate(arrays)}

    def expected(self, feeds: dict[str, Floats]) -> Sequence[Floats]:
        return [np.asarray(one, np.float32) for one in interpret(self.reference, feeds)]

    def run(self, feeds: dict[str, Floats]) -> Sequence[Floats]:
        return self.network.run(None, feeds)

    def agrees(self, samples: Sequence[int] = (7, 1, 0)) -> None:
        # memory that is used again may hold anything
        self.run({name: np.full_like(one, np.nan) for name, one in self.images(1).items()})
        for count in samples:
            feeds = self.images(count)
            for index, (found, wanted) in enumerate(zip(self.run(feeds), self.expected(feeds), strict=True)):
                np.testing.assert_array_equal(found, wanted, err_msg=f"result {index} of {count} images")


AWKWARD: dict[str, tuple[Sequence[int], WindowAttr]] = {
    "width 1": ((4, 9, 1), WindowAttr((3, 2), pads=(1, 1, 1, 1))),
    "one pixel": ((4, 1, 1), WindowAttr((2, 3), pads=(1, 1, 0, 1))),
    "one row": ((4, 19), WindowAttr((1, 3), strides=(1, 2), pads=(0, 1, 0, 1))),
    "strides beyond the window": ((4, 11, 8), WindowAttr((2, 2), strides=(3, 5), pads=(1, 0, 0, 1))),
    "strides of a point": ((4, 5, 70), WindowAttr((1, 1), strides=(2, 3))),
    "dilations": ((4, 9, 7), WindowAttr((3, 2), dilations=(2, 4), pads=(2, 3, 1, 0))),
    "pads larger than the image": ((4, 2, 3), WindowAttr((1, 2), pads=(3, 4, 5, 6))),
    "dilations into pads alone": ((4, 3, 4), WindowAttr((3, 1), dilations=(5, 1), pads=(5, 6, 5, 6))),
    "pads behind the image alone": ((4, 4, 5), WindowAttr((1, 1), pads=(0, 0, 20, 2))),
    "rows of several tiles": ((4, 2, 130), WindowAttr((1, 3), pads=(0, 1, 0, 1))),
}


@each_tile
def test_convolutions_of_awkward_shapes_and_groups_are_exact(tile: int) -> None:
    def emit(layers: Layers, images: Sequence[SSAValue]) -> Sequence[SSAValue]:
        return [layers.conv(x, 5, window, groups=2) for x, (_, window) in zip(images, AWKWARD.values(), strict=True)]

    # one network for each shape; the code of all shares its functions
    Case([shape for shape, _ in AWKWARD.values()], emit, tile=tile).agrees()


SQUARE, POINT = WindowAttr((3, 3), pads=(1, 1, 1, 1)), WindowAttr((1, 1))


@each_tile
def test_chunks_of_channels_residuals_and_dense_kernels_are_exact(tile: int) -> None:
    def emit(layers: Layers, images: Sequence[SSAValue]) -> Sequence[SSAValue]:
        (x,) = images
        # 31 * 9 inputs are more than a chunk has; 1200 are too many for dense sums that stay in registers
        a = layers.conv(x, 9, SQUARE, activation=RELU, density=0.1)
        dense = layers.conv(x, 18, POINT, "dense_outputs")
        many = layers.conv(layers.conv(a, 134, POINT), 5, SQUARE, "dense_outputs", density=0.02)
        joined = layers.add(ConcatOp([dense, layers.conv(x, 3, POINT, "dense_outputs", activation=RELU), a], 1))
        b = layers.conv(a, 9, POINT, residual=a, activation=RELU)
        return [a, b, joined, many, layers.conv(b, 9, POINT, "sparse_rows", residual=a)]

    Case([(31, 6, 7)], emit, tile=tile).agrees()


def test_threads_share_tiles_or_outputs_and_change_nothing() -> None:
    def emit(layers: Layers, images: Sequence[SSAValue]) -> Sequence[SSAValue]:
        many_tiles, one_tile = images
        a = layers.conv(one_tile, 70, POINT)
        return [layers.conv(many_tiles, 5, POINT), layers.conv(a, 33, POINT, residual=None, density=0.1)]

    Case([(4, 21, 30), (4, 5, 6)], emit, threads=2).agrees([1, 3])


def reached(is_set: NDArray[np.bool_], connected: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The results [O, H, W] of `SQUARE` that read a set pixel [C, H, W] by a weight [C, taps, O]."""
    _, height, width = is_set.shape
    padded = np.pad(is_set, ((0, 0), (1, 1), (1, 1)))
    taps = np.stack([padded[:, i : i + height, j : j + width] for i in range(3) for j in range(3)])
    return np.einsum("tcij,cto->oij", taps.astype(int), connected.astype(int)) > 0


@pytest.mark.parametrize(("height", "width", "tile"), [(7, 6, PIXELS), (7, 8, PIXELS), (8, 16, 48), (6, 4, NARROW)])
def test_what_is_no_number_reaches_what_its_connections_reach(height: int, width: int, tile: int) -> None:
    def emit(layers: Layers, images: Sequence[SSAValue]) -> Sequence[SSAValue]:
        return [layers.conv(images[0], 5, SQUARE), layers.depthwise(images[0], SQUARE)]

    case = Case([(4, height, width)], emit, tile=tile)
    case.agrees()
    feeds = case.images(1)
    clean, x = case.run(feeds), feeds["x0"][0]
    x[1, 3, 2], x[3, 5, width - 1] = np.nan, np.inf
    weight = next(op for op in case.reference.walk() if isinstance(op, SparseConstantOp)).weight.to_dense()
    each = np.broadcast_to(np.eye(4, dtype=bool)[:, None], (4, 9, 4))
    for found, before, connected in zip(case.run(feeds), clean, (weight.reshape(4, 9, 5) != 0, each), strict=True):
        is_reached = reached(~np.isfinite(x), connected)
        assert not np.isfinite(found[0][is_reached]).any()
        np.testing.assert_array_equal(found[0][~is_reached], before[0][~is_reached])


def test_poolings_have_what_is_there_and_no_pads() -> None:
    cut = WindowAttr((2, 3), strides=(3, 2), pads=(1, 0, 0, 2))

    def emit(layers: Layers, images: Sequence[SSAValue]) -> Sequence[SSAValue]:
        a = layers.conv(images[0], 3, POINT)
        kinds: Sequence[tuple[Pooling, WindowAttr]] = [
            ("max", cut),
            ("max", WindowAttr((6, 8))),
            ("average_with_pads", WindowAttr((2, 4), strides=(2, 1), pads=(1, 2, 0, 3))),
            ("average", WindowAttr((6, 8))),
            # three taps, of which a window at a border has less
            ("average", WindowAttr((3, 1), pads=(1, 0, 2, 0))),
        ]
        return [layers.add(Pool2dOp(a, kind, window)) for kind, window in kinds]

    case = Case([(4, 6, 8)], emit)
    # values below the zeros at positions without a pixel, too
    for feeds in (case.images(2), {"x0": np.full((1, 4, 6, 8), -9.0, np.float32)}):
        *exact, mean, of_some = zip(case.run(feeds), case.expected(feeds), strict=True)
        for found, wanted in exact:
            np.testing.assert_array_equal(found, wanted)
        for found, wanted in (mean, of_some):
            np.testing.assert_allclose(found, wanted, rtol=1e-6)


@each_tile
@pytest.mark.parametrize(("width", "bands"), [(2, 0), (4, 0), (8, 0), (16, 3), (24, 0)])
def test_rows_without_room_between_them_have_windows_beyond_their_ends(tile: int, width: int, bands: int) -> None:
    def emit(layers: Layers, images: Sequence[SSAValue]) -> Sequence[SSAValue]:
        a = layers.conv(layers.conv(images[0], 3, SQUARE, activation=RELU), 4, SQUARE)
        wide = layers.conv(a, 4, WindowAttr((1, 7), dilations=(1, 3), pads=(0, 9, 0, 9)), residual=a)
        each = layers.depthwise(wide, WindowAttr((3, 3), dilations=(2, 2), pads=(2, 2, 2, 2)))
        largest = layers.add(Pool2dOp(each, "max", SQUARE))
        half = layers.conv(largest, 5, WindowAttr((3, 3), strides=(2, 2), pads=(1, 1, 1, 1)))
        return [half, layers.conv(half, 3, SQUARE), layers.conv(largest, 3, WindowAttr((2, 2)))]

    case = Case([(4, 60, width)], emit, tile=tile, bands=bands)
    network = next(op for op in case.module.walk() if isinstance(op, ImageNetworkOp))
    assert tile % width or plan_images(network, TARGET.lanes).views[network.body.block.args[0]].plane.pitch == width
    case.agrees()


@each_tile
def test_channels_are_joined_cut_and_scaled_where_they_lie(tile: int) -> None:
    def emit(layers: Layers, images: Sequence[SSAValue]) -> Sequence[SSAValue]:
        (x,) = images
        a, b = layers.conv(x, 3, POINT), layers.conv(x, 2, POINT)
        whole = layers.add(ConcatOp([a, b, b, x], 1))
        layers.add(split := SplitOp(whole, 1, [4, 7]))
        largest = layers.add(Pool2dOp(split.parts[1], "max", WindowAttr(image_shape(x)[2:])))
        scaled = layers.add(MulOp(split.parts[1], largest))
        each = layers.add(ConstantOp(np.arange(4, dtype=np.float32).reshape(4, 1, 1)))
        shifted = layers.add(AddOp(each, split.parts[0]))
        return [layers.conv(scaled, 3, SQUARE), layers.add(ActivateOp(shifted, RELU)), whole]

    Case([(4, 5, 6)], emit, tile=tile).agrees()


@pytest.mark.parametrize("tile", [PIXELS, NARROW])
@pytest.mark.parametrize("bands", [2, 5, 70])
def test_bands_of_awkward_windows_yield_what_whole_images_do(tile: int, bands: int) -> None:
    def emit(layers: Layers, images: Sequence[SSAValue]) -> Sequence[SSAValue]:
        found = list[SSAValue]()
        for x, (_, window) in zip(images, AWKWARD.values(), strict=True):
            a = layers.conv(x, 3, POINT)
            b = layers.conv(layers.conv(a, 4, window), 5, SQUARE, activation=RELU)
            largest = layers.add(Pool2dOp(layers.depthwise(b, SQUARE), "max", WindowAttr((2, 2), pads=(1, 1, 0, 0))))
            found += [a, layers.conv(largest, 3, POINT, "dense_outputs")]
        return found

    shapes = [shape if shape[1] < 9 else (shape[0], 40, *shape[2:]) for shape, _ in AWKWARD.values()]
    Case(shapes, emit, tile=tile, bands=bands).agrees()


EXPANDED: dict[str, tuple[Sequence[int], WindowAttr]] = {
    "odd sizes": ((3, 13, 11), WindowAttr((3, 3), strides=(2, 2), pads=(1, 1, 1, 1))),
    "even sizes": ((3, 40, 24), WindowAttr((5, 5), strides=(2, 2), pads=(1, 1, 2, 2))),
    "stride 3": ((3, 29, 31), WindowAttr((3, 3), strides=(3, 3), pads=(0, 2, 1, 0))),
    "rows alone": ((3, 50, 9), WindowAttr((3, 3), strides=(2, 1), pads=(1, 1, 1, 1))),
    "one row": ((3, 67), WindowAttr((1, 3), strides=(1, 2), pads=(0, 1, 0, 1))),
    "points": ((3, 40, 33), WindowAttr((1, 1), strides=(2, 2))),
    "dilations": ((3, 40, 33), WindowAttr((2, 2), strides=(2, 2), dilations=(3, 2), pads=(3, 0, 0, 2))),
}


@pytest.mark.parametrize(
    ("tile", "bands", "threads"),
    [(PIXELS, 0, 1), (48, 3, 1)]
    + [pytest.param(*one, marks=pytest.mark.slow) for one in ((NARROW, 70, 1), (PIXELS, 4, 2), (NARROW, 0, 2))],
)
def test_a_pointwise_convolution_makes_the_phases_of_a_stride(tile: int, bands: int, threads: int) -> None:
    def emit(layers: Layers, images: Sequence[SSAValue]) -> Sequence[SSAValue]:
        found = list[SSAValue]()
        for x, (_, window) in zip(images, EXPANDED.values(), strict=True):
            wide = layers.conv(layers.conv(x, 4, POINT), 11, POINT, activation=RELU)
            found.append(layers.conv(layers.depthwise(wide, window), 5, POINT, density=0.2))
        return found

    case = Case([shape for shape, _ in EXPANDED.values()], emit, threads, tile, bands)
    networks = [op for op in case.module.walk() if isinstance(op, ImageNetworkOp)]
    assert sum(len(plan_images(network, TARGET.lanes).phased) for network in networks) >= len(EXPANDED) - 2
    case.agrees()


@pytest.mark.parametrize("bands", [2, 9, 70])
@pytest.mark.parametrize("threads", [1, 2])
def test_bands_run_through_branches_that_meet_again(bands: int, threads: int) -> None:
    half = WindowAttr((2, 2), strides=(2, 2))

    def emit(layers: Layers, images: Sequence[SSAValue]) -> Sequence[SSAValue]:
        (x,) = images
        top = layers.conv(x, 3, SQUARE)
        # so few connections that sums of integers stay exact
        low = layers.conv(layers.add(Pool2dOp(top, "max", half)), 8, SQUARE, density=0.1)
        lower = layers.conv(low, 5, WindowAttr((3, 3), (2, 2), (1, 1), (1, 1, 1, 1)), density=0.1)
        lower = layers.conv(lower, 32, SQUARE, density=0.1)
        middle = layers.conv(layers.add(Interleave2dOp(lower, (2, 2), (22, 18))), 12, POINT, density=0.2)
        up = layers.add(Interleave2dOp(middle, (2, 2), (44, 36)))
        joined = layers.add(ConcatOp([top, up], 1))
        layers.add(split := SplitOp(layers.conv(joined, 5, SQUARE, density=0.1), 1, [2, 3]))
        end = layers.conv(split.parts[1], 3, SQUARE, residual=top)
        return [layers.add(AddOp(end, top)), split.parts[0], layers.add(Pool2dOp(end, "max", WindowAttr((44, 36))))]

    Case([(4, 44, 36)], emit, threads, bands=bands).agrees()
