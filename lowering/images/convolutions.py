"""Convolutions: the windows of a tile next to each other, the kernel of a linear layer on them, the residual."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from ...dialect.attributes.activations import OF_FEW_INSTRUCTIONS, ActivationAttr
from ...dialect.ops.images import Conv2dOp, Depthwise2dOp, Pool2dOp
from ...dialect.tensors import shape_of
from ...kernels.families import is_dense
from ...kernels.formats import count_blocks
from ...kernels.tile_widths import PIXELS
from ..kernels.elementwise import activate
from ..kernels.kernel_form import LinearForm
from ..kernels.table import code_of, kernel_at
from ..llvm.flow import call, loop
from ..llvm.values import NULL, Bytes, Floats, Index, Longs, Number
from . import packing
from .geometry import Phases, Plane
from .image_code import ImageCode
from .layers import adding
from .memory import View, needs_phases
from .windows import WindowForm, Work, windows

CUT: Final = (count_blocks.FAMILY.name,)
"""Families whose kernels go on with the sums of another call."""

INPUTS_AT_ONCE: Final = 128
"""Rows of windows that stay in the first-level cache: half of it."""


class Channels(NamedTuple):
    """Channels from the first one on."""

    first: Index
    number: Index


TILES_A_THREAD: Final = 4
"""Tiles of a layer for each thread from which on nothing else is cut."""


def emit_convolution(image: ImageCode, op: Conv2dOp) -> None:
    """Emit the windows of each tile next to each other, the kernel on them, the residual and the activation."""
    source, phases = _source(image, op)
    target = image.memory.views[op.result]
    borders = _borders(image, op, target.plane)
    form, shares = _form(op, "copy", source, phases), len(borders) - 1

    is_direct = phases.reads_tiles(source.plane, target.plane)

    def windows_of(tile: Number, first: Number, count: Number) -> Bytes:
        """Emit the windows of some channels, and return where they are."""
        if is_direct:
            return image.tile(source, tile)
        _call_windows(image, form, (source, tile, 0.0), image.own(0), channels=Channels(first, count))
        return image.own(0)

    def item(number: Number) -> None:
        _Kernel(image, op, borders, windows_of).emit(number // shares, number % shares)

    image.each(target.plane.tiles * shares, item)


def _borders(image: ImageCode, op: Conv2dOp, plane: Plane) -> tuple[int, ...]:
    """Return the first output of each share, and the number of outputs."""
    outputs, threads = shape_of(op.weight)[1], image.threads
    unit = kernel_at(op.kernel, PIXELS).family.share
    even = plane.tiles >= TILES_A_THREAD * threads or plane.tiles % threads == 0
    shares = 1 if even else max(1, min(threads, outputs // unit))
    cells = -(-outputs // unit)
    return (*(unit * (cells * share // shares) for share in range(shares)), outputs)


def emit_depthwise(image: ImageCode, op: Depthwise2dOp) -> None:
    """Emit a convolution of each channel."""
    source, phases = _source(image, op)
    parameters = image.arrays((op.weight, op.bias, "taps"), packing.channel_taps, op)
    _window_tiles(image, op, source, _form(op, "weigh", source, phases), (0.0, parameters))


def emit_pooling(image: ImageCode, op: Pool2dOp) -> None:
    """Emit a pooling."""
    largest = op.kind.data == "max"
    fill = float("-inf") if largest else 0.0
    source, phases = _source(image, op, fill)
    plane = image.memory.views[op.result].plane
    parameters: list[Bytes] = []
    if not largest:
        parameters = image.arrays((op, "shares"), partial(packing.window_shares, plane), op)
    work: Work = "largest" if largest else "mean"
    _window_tiles(image, op, source, _form(op, work, source, phases), (fill, parameters))


def _window_tiles(
    image: ImageCode,
    op: Depthwise2dOp | Pool2dOp,
    source: View,
    form: WindowForm,
    given: tuple[float, Sequence[Bytes]],
) -> None:
    """Emit windows that are the result, tile by tile; `given` are what is outside, and parameters."""
    target, (fill, parameters) = image.memory.views[op.result], given

    def tile(number: Number) -> None:
        own = [array.cast(Floats) for array in parameters]
        if form.work == "mean":
            own = [own[0].at(number * PIXELS)]
        there = image.tile(target, number)
        _call_windows(image, form, (source, number, fill), there, own)
        image.clear(op.result, number, there)

    image.each(target.plane.tiles, tile)


def _source(image: ImageCode, op: Conv2dOp | Depthwise2dOp | Pool2dOp, fill: float = 0.0) -> tuple[View, Phases]:
    """Return what the windows of an op read, copied before where that is not the value itself."""
    phases = Phases.of(op.window)
    if not needs_phases(op, image.memory.stored):
        return image.memory.views[op.x], phases
    view = image.memory.phases[op]
    image.copy_pixels(op, packing.phase_pixels, op.x, view, fill)
    image.meet()
    return view, phases


def _call_windows(
    image: ImageCode,
    form: WindowForm,
    source: tuple[View, Number, float],
    target: Bytes,
    parameters: Sequence[Floats] = (),
    channels: Channels | None = None,
) -> None:
    """Emit the windows of a tile: what they read, the tile's number, what is outside; where they go, parameters."""
    view, number, fill = source
    (outside,) = image.arrays(("outside", fill), partial(packing.outside_row, fill))
    factors, bias = (*parameters, NULL, NULL)[:2]
    first, count = Channels(0, form.channels) if channels is None else channels
    read = image.tile(view, number, first), number, view.plane.tiles, outside
    call(windows(image.code, form), read, target, factors, bias, count)


def _form(op: Conv2dOp | Depthwise2dOp | Pool2dOp, work: Work, source: View, phases: Phases) -> WindowForm:
    activation = op.activation if isinstance(op, Depthwise2dOp) else None
    channels = shape_of(op.x)[1]
    return WindowForm(phases.taps, source.plane.pitch, channels, source.tile_values, work, activation)


@dataclass(frozen=True)
class _Kernel:
    """The kernel of a convolution on a tile of pixels, for a share of its outputs; `windows_of` emits what it reads."""

    image: ImageCode
    op: Conv2dOp
    borders: tuple[int, ...]
    windows_of: Callable[[Number, Number, Number], Bytes]

    @property
    def chunk(self) -> int:
        """Channels whose windows are made and multiplied before those of the next ones: they stay in the cache."""
        channels, taps = shape_of(self.op.x)[1], len(self.op.window.taps)
        is_cut = taps > 1 and kernel_at(self.op.kernel, PIXELS).family.name in CUT
        return min(channels, max(1, INPUTS_AT_ONCE // taps)) if is_cut else channels

    def emit(self, tile: Number, share: Number) -> None:
        """Emit the kernel, the residual, and what is left of the activation."""
        image, op = self.image, self.op
        first, count = self._outputs(share)
        y = image.tile(image.memory.views[op.result], tile, first)
        fused = op.residual is None and op.activation is not None and op.activation.kind in OF_FEW_INSTRUCTIONS
        self._emit_products(tile, share, y, count, op.activation if fused else None)
        rest = None if fused else op.activation
        if op.residual is not None:
            call(adding(image.code, rest), y, image.tile(image.memory.views[op.residual], tile, first), y, count)
        elif rest is not None:
            call(activate(image.code, rest, PIXELS), y, y, count)
        image.clear(op.result, tile, y, count)

    def _outputs(self, share: Number) -> Channels:
        """Return the outputs of a share."""
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
        inputs, taps = shape_of(op.weight)[0], len(op.window.taps)
        channels, shares = shape_of(op.x)[1], len(self.borders) - 1
        chunks, key = -(-channels // chunk), (op.weight, op.bias, op.kernel, self.borders)
        image.arrays(key, partial(packing.packed_shares, self.borders, chunk * taps), op)
        family = kernel_at(op.kernel, PIXELS).family
        there = image.own(inputs) if is_dense(family.name) else y
        function = code_of(family).emit(image.code, LinearForm(PIXELS, activation))
        with loop(tile.constant(chunks)) as number:
            first = number * chunk
            size = (channels - first).smaller(chunk)
            x = self.windows_of(tile, first, size)
            packed = image.constants.share_pointers(image.table, key, share * chunks + number, shares * chunks)
            call(function, x, there, packed, size * taps, count)
        if there is not y:
            call(activate(image.code, None, PIXELS), there, y, count)
