"""Convolutions: the windows of a tile next to each other, the kernel of a linear layer on them, the residual."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from ...dialect.attributes.activations import OF_FEW_INSTRUCTIONS, ActivationAttr
from ...dialect.ops.images import Conv2dOp
from ...dialect.tensors import shape_of
from ...kernels.formats import count_blocks
from ..kernels.elementwise import activate
from ..kernels.kernel_form import LinearForm
from ..kernels.table import code_of, kernel_at
from ..llvm.flow import call, loop
from ..llvm.values import Bytes, Index, Longs, Number
from . import packing
from .bands import Stage
from .geometry import KNOWN, Plane
from .image_code import ImageCode
from .layers import adding
from .memory import Phased, View
from .runs import Steps
from .window_layers import Channels, Windows

CUT: Final = (count_blocks.FAMILY.name,)
"""Families whose kernels go on with the sums of another call."""

INPUTS_AT_ONCE: Final = 128 * 64
"""Values of windows that stay in the first-level cache: half of it."""


TILES_A_THREAD: Final = 4
"""Tiles of a layer for each thread from which on nothing else is cut."""


def emit_convolution(image: ImageCode, op: Conv2dOp) -> None:
    """Emit the windows of each tile next to each other, the kernel on them, the residual and the activation."""
    if op in image.memory.phased:
        _emit_phases(image, op, image.memory.phased[op])
        return
    read, y = Windows.of(image, op, "copy"), image.memory.views[op.result]
    borders = _borders(image, op, y.plane, y.plane.tiles)
    shares = len(borders) - 1

    def windows(tile: Number, channels: Channels) -> Bytes:
        return read.at(tile, y.plane, image.own(0), channels)

    kernel = _Kernel(image, op, borders, windows, y, partial(image.clear, op.result))
    items = image.tiles(y.plane) * shares
    image.each(items, lambda number: kernel.emit(number // shares, number % shares), Stage(op), shares)


def _emit_phases(image: ImageCode, op: Conv2dOp, phased: Phased) -> None:
    """Emit copies of the pixels of a pointwise convolution as phases of its reader, and the kernel on these."""
    reader, parts, source = phased.reader, phased.parts, image.memory.views[op.x]
    steps, copies = Steps.down_by(reader.window.stride[1]), Stage(op, copies=True)
    image.copy_pixels(reader, packing.phase_pixels, op.x, phased.x, steps, stage=copies)
    x, y = phased.x.apart(parts), phased.y.apart(parts)
    plane = y.plane
    borders = _borders(image, op, plane, plane.tiles * parts)
    shares = len(borders) - 1
    empty = image.arrays((reader, "empty"), partial(packing.empty_phases, source.plane, plane), reader)

    def pixels(tile: Number, channels: Channels) -> Bytes:
        return image.tile(x, tile, channels.first)

    def clear(tile: Number, there: Bytes, count: Index) -> None:
        image.clear_listed(empty, tile, there, plane.tile, count)

    kernel = _Kernel(image, op, borders, pixels, y, clear)
    items = plane.tiles * parts * shares
    image.each(items, lambda number: kernel.emit(number // shares, number % shares), Stage(op), shares * parts)


def _borders(image: ImageCode, op: Conv2dOp, plane: Plane, tiles: int) -> tuple[int, ...]:
    """Return the first output of each share, and the number of outputs."""
    outputs, threads = shape_of(op.weight)[1], image.threads
    unit = kernel_at(op.kernel, plane.tile).family.share
    even = plane.length != KNOWN or tiles >= TILES_A_THREAD * threads or tiles % threads == 0
    shares = 1 if even else max(1, min(threads, outputs // unit))
    cells = -(-outputs // unit)
    return (*(unit * (cells * share // shares) for share in range(shares)), outputs)


@dataclass(frozen=True)
class _Kernel:
    """The kernel of a convolution on a tile of pixels, for a share of its outputs."""

    image: ImageCode
    op: Conv2dOp
    borders: tuple[int, ...]
    windows: Callable[[Number, Channels], Bytes]
    """Emits the windows of some channels of a tile, and returns where they are."""
    y: View
    clear: Callable[[Number, Bytes, Index], None]
    """Emits zeros beside the pixels of a tile of results."""

    @property
    def width(self) -> int:
        """Positions of a tile."""
        return self.y.plane.tile

    @property
    def chunk(self) -> int:
        """Channels whose windows are made and multiplied before those of the next ones: they stay in the cache."""
        channels, taps = shape_of(self.op.x)[1], len(self.op.window.taps)
        is_cut = taps > 1 and kernel_at(self.op.kernel, self.width).family.name in CUT
        return min(channels, max(1, INPUTS_AT_ONCE // (taps * self.width))) if is_cut else channels

    def emit(self, tile: Number, share: Number) -> None:
        """Emit the kernel, the residual, and what is left of the activation."""
        image, op = self.image, self.op
        first, count = self._outputs(share)
        y = image.tile(self.y, tile, first)
        fused = op.residual is None and op.activation is not None and op.activation.kind in OF_FEW_INSTRUCTIONS
        self._emit_products(tile, share, y, count, op.activation if fused else None)
        rest = None if fused else op.activation
        if op.residual is not None:
            added = image.tile(image.memory.views[op.residual], tile, first)
            call(adding(image.code, rest, self.width), y, added, y, count)
        elif rest is not None:
            call(activate(image.code, rest, self.width), y, y, count)
        self.clear(tile, y, count)

    def _outputs(self, share: Number) -> Channels:
        if len(self.borders) == 2:
            return Channels(0, self.borders[-1])
        (numbers,) = self.image.arrays(("borders", self.borders), partial(packing.border_numbers, self.borders))
        entry = numbers.cast(Longs).at(share)
        first = entry[0]
        return Channels(first, entry[1] - first)

    def _emit_products(
        self, tile: Number, share: Number, y: Bytes, count: Index, activation: ActivationAttr | None
    ) -> None:
        """Emit windows and kernel for one chunk of channels after the other, into rows of y."""
        image, op, chunk = self.image, self.op, self.chunk
        taps = len(op.window.taps)
        channels, shares = shape_of(op.x)[1], len(self.borders) - 1
        chunks, key = -(-channels // chunk), (op.weight, op.bias, op.kernel, self.borders, self.width)
        indices = image.constants.indices(
            key, partial(packing.packed_shares, self.borders, chunk * taps, self.width), op
        )
        family = kernel_at(op.kernel, self.width).family
        function = code_of(family).emit(image.code, LinearForm(self.width, activation))
        # the first chunk begins the sums, the next ones go on with those in y
        with loop(tile.constant(chunks)) as number:
            first = number * chunk
            size = (channels - first).smaller(chunk)
            x = self.windows(tile, Channels(first, size))
            packed = image.constants.share_pointers(image.table, indices, share * chunks + number, shares * chunks)
            call(function, x, y, packed, size * taps, count)
