"""Convolutions: the windows of a tile next to each other, the kernel of a linear layer on them, the residual."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from llvmlite import ir

from redpebble.dialect.ops.images import Conv2dOp, Depthwise2dOp, Pool2dOp
from redpebble.dialect.tensors import shape_of
from redpebble.kernels.families import is_dense
from redpebble.kernels.tile_widths import PIXELS
from redpebble.lowering.images import packing
from redpebble.lowering.images.geometry import Phases, Plane
from redpebble.lowering.images.image_code import ImageCode
from redpebble.lowering.images.memory import View, needs_phases
from redpebble.lowering.images.windows import WindowForm, Work, windows
from redpebble.lowering.kernels.elementwise import BinaryForm, activate, binary
from redpebble.lowering.kernels.kernel_form import LinearForm
from redpebble.lowering.kernels.table import code_of, kernel_at
from redpebble.lowering.llvm.builder import I64, POINTER, float_at, i64

TILES_A_THREAD: Final = 4
"""Tiles of a layer for each thread from which on nothing else is cut."""


def emit_convolution(image: ImageCode, op: Conv2dOp) -> None:
    """Emit the windows of each tile next to each other, the kernel on them, the residual and the activation."""
    source, phases = _source(image, op)
    target, builder = image.memory.views[op.result], image.builder
    borders = _borders(image, op, target.plane)
    form, shares = _form(op, "copy", source, phases), len(borders) - 1

    def item(number: ir.Value) -> None:
        tile, share = builder.udiv(number, i64(shares)), builder.urem(number, i64(shares))
        x = image.tile(source, tile)
        if not (phases.is_point and source.plane.pitch == target.plane.pitch):
            x = image.own(0)
            _call_windows(image, form, (source, tile, 0.0), x)
        _Kernel(image, op, borders).emit(x, tile, share)

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
    if not needs_phases(op):
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
) -> None:
    """Emit the windows of a tile: what they read, the tile's number, what is outside; where they go, parameters."""
    view, number, fill = source
    (outside,) = image.arrays(("outside", fill), partial(packing.outside_row, fill))
    nothing = ir.Constant(POINTER, None)
    factors, bias = (*parameters, nothing, nothing)[:2]
    arguments = [image.tile(view, number), number, i64(view.plane.tiles), outside, target, factors, bias]
    image.builder.call(windows(image.code, form), arguments)


def _form(op: Conv2dOp | Depthwise2dOp | Pool2dOp, work: Work, source: View, phases: Phases) -> WindowForm:
    activation = op.activation if isinstance(op, Depthwise2dOp) else None
    channels = shape_of(op.x)[1]
    return WindowForm(phases.taps, source.plane.pitch, channels, source.tile_floats, work, activation)


@dataclass(frozen=True)
class _Kernel:
    """The kernel of a convolution on a tile of pixels, for a share of its outputs."""

    image: ImageCode
    op: Conv2dOp
    borders: tuple[int, ...]

    def emit(self, x: ir.Value, tile: ir.Value, share: ir.Value) -> None:
        """Emit the kernel, the residual, and what is left of the activation."""
        image, op, builder = self.image, self.op, self.image.builder
        inputs, outputs = shape_of(op.weight)
        shares = len(self.borders) - 1
        key = (op.weight, op.bias, op.kernel, self.borders)
        image.arrays(key, partial(packing.packed_shares, self.borders), op)
        packed = image.constants.share_pointers(builder, image.table, key, share, shares)
        first, count = i64(0), i64(outputs)
        if shares > 1:
            (numbers,) = image.arrays(("borders", self.borders), partial(packing.border_numbers, self.borders))
            entry = builder.gep(numbers, [share], source_etype=I64)
            first = builder.load(entry, typ=I64)
            count = builder.sub(builder.load(builder.gep(entry, [i64(1)], source_etype=I64), typ=I64), first)
        view = image.memory.views[op.result]
        y = image.tile(view, tile, first)
        family = kernel_at(op.kernel, PIXELS).family
        own = op.activation if op.residual is None else None
        target = image.own(inputs) if is_dense(family.name) else y
        function = code_of(family).emit(image.code, LinearForm(PIXELS, own))
        builder.call(function, [x, target, *packed, i64(inputs), count])
        if target is not y:
            builder.call(activate(image.code, None, PIXELS), [target, y, count])
        if op.residual is not None:
            added = image.tile(image.memory.views[op.residual], tile, first)
            form = BinaryForm("pebble.add", "tile", "tile", PIXELS)
            builder.call(binary(image.code, form), [y, added, y, count])
            if op.activation is not None:
                builder.call(activate(image.code, op.activation, PIXELS), [y, y, count])
        image.clear(op.result, tile, y, count)
