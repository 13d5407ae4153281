"""Convolutions: the windows of a tile next to each other, the kernel of a linear layer on them, the residual."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from llvmlite import ir

from ...dialect.attributes.activations import OF_FEW_INSTRUCTIONS, ActivationAttr
from ...dialect.ops.images import Conv2dOp, Depthwise2dOp, Pool2dOp
from ...dialect.tensors import shape_of
from ...kernels.families import is_dense
from ...kernels.formats import count_blocks
from ...kernels.tile_widths import PIXELS
from ..kernels.elementwise import activate
from ..kernels.kernel_form import LinearForm
from ..kernels.table import code_of, kernel_at
from ..llvm.builder import I64, POINTER, counted_loop, float_at, i64
from ..llvm.values import Number
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

    first: ir.Value
    number: ir.Value


TILES_A_THREAD: Final = 4
"""Tiles of a layer for each thread from which on nothing else is cut."""


def emit_convolution(image: ImageCode, op: Conv2dOp) -> None:
    """Emit the windows of each tile next to each other, the kernel on them, the residual and the activation."""
    source, phases = _source(image, op)
    target, builder = image.memory.views[op.result], image.builder
    borders = _borders(image, op, target.plane)
    form, shares = _form(op, "copy", source, phases), len(borders) - 1

    is_direct = phases.reads_tiles(source.plane, target.plane)

    def windows_of(tile: ir.Value, first: ir.Value, count: ir.Value) -> ir.Value:
        """Emit the windows of some channels, and return where they are."""
        if is_direct:
            return image.tile(source, tile)
        _call_windows(image, form, (source, tile, 0.0), image.own(0), channels=Channels(first, count))
        return image.own(0)

    def item(number: ir.Value) -> None:
        tile, share = builder.udiv(number, i64(shares)), builder.urem(number, i64(shares))
        _Kernel(image, op, borders, windows_of).emit(tile, share)

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
    parameters: list[ir.Value] = []
    if not largest:
        parameters = image.arrays((op, "shares"), partial(packing.window_shares, plane), op)
    work: Work = "largest" if largest else "mean"
    _window_tiles(image, op, source, _form(op, work, source, phases), (fill, parameters))


def _window_tiles(
    image: ImageCode,
    op: Depthwise2dOp | Pool2dOp,
    source: View,
    form: WindowForm,
    given: tuple[float, Sequence[ir.Value]],
) -> None:
    """Emit windows that are the result, tile by tile; `given` are what is outside, and parameters."""
    target, (fill, parameters) = image.memory.views[op.result], given

    def tile(number: ir.Value) -> None:
        own = list(parameters)
        if form.work == "mean":
            own = [float_at(image.builder, own[0], image.builder.mul(number, i64(PIXELS)))]
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
    source: tuple[View, ir.Value, float],
    target: ir.Value,
    parameters: Sequence[ir.Value] = (),
    channels: Channels | None = None,
) -> None:
    """Emit the windows of a tile: what they read, the tile's number, what is outside; where they go, parameters."""
    view, number, fill = source
    (outside,) = image.arrays(("outside", fill), partial(packing.outside_row, fill))
    nothing = ir.Constant(POINTER, None)
    factors, bias = (*parameters, nothing, nothing)[:2]
    first, count = (None, i64(form.channels)) if channels is None else channels
    tile = image.tile(view, number, first)
    arguments = [tile, number, i64(view.plane.tiles), outside, target, factors, bias]
    image.builder.call(windows(image.code, form), [*arguments, count])


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
    windows_of: Callable[[ir.Value, ir.Value, ir.Value], ir.Value]

    @property
    def chunk(self) -> int:
        """Channels whose windows are made and multiplied before those of the next ones: they stay in the cache."""
        channels, taps = shape_of(self.op.x)[1], len(self.op.window.taps)
        is_cut = taps > 1 and kernel_at(self.op.kernel, PIXELS).family.name in CUT
        return min(channels, max(1, INPUTS_AT_ONCE // taps)) if is_cut else channels

    def emit(self, tile: ir.Value, share: ir.Value) -> None:
        """Emit the kernel, the residual, and what is left of the activation."""
        image, op, builder = self.image, self.op, self.image.builder
        first, count = self._outputs(share)
        y = image.tile(image.memory.views[op.result], tile, first)
        fused = op.residual is None and op.activation is not None and op.activation.kind in OF_FEW_INSTRUCTIONS
        self._emit_products(tile, share, (y, count), op.activation if fused else None)
        rest = None if fused else op.activation
        if op.residual is not None:
            added = image.tile(image.memory.views[op.residual], tile, first)
            builder.call(adding(image.code, rest), [y, added, y, count])
        elif rest is not None:
            builder.call(activate(image.code, rest, PIXELS), [y, y, count])
        image.clear(op.result, tile, y, count)

    def _outputs(self, share: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Return the first output of a share, and their number."""
        builder, borders = self.image.builder, self.borders
        if len(borders) == 2:
            return i64(0), i64(borders[-1])
        (numbers,) = self.image.arrays(("borders", borders), partial(packing.border_numbers, borders))
        entry = builder.gep(numbers, [share], source_etype=I64)
        first = builder.load(entry, typ=I64)
        return first, builder.sub(builder.load(builder.gep(entry, [i64(1)], source_etype=I64), typ=I64), first)

    def _emit_products(
        self, tile: ir.Value, share: ir.Value, y: tuple[ir.Value, ir.Value], activation: ActivationAttr | None
    ) -> None:
        """Emit windows and kernel for one chunk of channels after the other, into rows of y."""
        image, op, builder, (target, count) = self.image, self.op, self.image.builder, y
        inputs, taps, chunk = shape_of(op.weight)[0], len(op.window.taps), self.chunk
        channels, shares = shape_of(op.x)[1], len(self.borders) - 1
        chunks, key = -(-channels // chunk), (op.weight, op.bias, op.kernel, self.borders)
        image.arrays(key, partial(packing.packed_shares, self.borders, chunk * taps), op)
        family = kernel_at(op.kernel, PIXELS).family
        there = image.own(inputs) if is_dense(family.name) else target
        function = code_of(family).emit(image.code, LinearForm(PIXELS, activation))
        with counted_loop(builder, i64(chunks)) as number:
            first = builder.mul(number, i64(chunk))
            left = builder.sub(i64(channels), first)
            size = builder.select(builder.icmp_signed("<", left, i64(chunk)), left, i64(chunk))
            x = self.windows_of(tile, first, size)
            part = builder.add(builder.mul(share, i64(chunks)), number)
            own = image.constants.share_pointers(image.table, key, Number(builder, part), shares * chunks)
            packed = [address.value for address in own]
            builder.call(function, [x, there, *packed, builder.mul(size, i64(taps)), count])
        if there is not target:
            builder.call(activate(image.code, None, PIXELS), [there, target, count])
