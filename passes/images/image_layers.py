"""Ops that can run in an image network, the images that they have in common, and what they cost.

Codes are integers of eight bits that stand for values: value = scale * (code - zero).
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Final, TypeGuard

from xdsl.ir import Block, Operation, SSAValue

from ...dialect.attributes.activations import OF_FEW_INSTRUCTIONS, SCALED
from ...dialect.attributes.codes import codes_in
from ...dialect.ops.constants import SparseConstantOp
from ...dialect.ops.elementwise import ActivateOp, AddOp, BinaryOp, ConvertOp, rounds_to_codes
from ...dialect.ops.foreign import ForeignOp
from ...dialect.ops.images import (
    Conv2dOp,
    Depthwise2dOp,
    ImageLayerOp,
    Interleave2dOp,
    Pool2dOp,
    Resample2dOp,
    WindowOp,
    expansion_of,
    image_shape,
    is_image_rank,
    is_open,
    spreads_of,
)
from ...dialect.ops.layers import BatchNormOp
from ...dialect.ops.movement import ConcatOp, SplitOp
from ...dialect.symbolic_sizes import Size, SymbolicShape, row_of
from ...dialect.tensors import DYNAMIC, shape_of
from ...kernels.activation_prices import activation_us, runtime_activation_us
from ...kernels.image_prices import (
    CODED_US,
    COPIED_US,
    DEFAULT_SHARES,
    DENSE_CODED_US,
    DENSE_POOLED_US,
    FAR_US,
    FOUND_US,
    LINE_US,
    MOVED_US,
    REORDERED_US,
    RESAMPLED_US,
    ROUNDINGS_US,
    TAP_US,
    TOUCHED_US,
    ImageShares,
)
from ...kernels.machine import Machine
from ...kernels.tile_widths import PIXELS, image_tiles, image_widths, open_tiles
from ...kernels.work import misses
from ..analysis.clusters import boundary_of
from ..analysis.per_feature_constants import affine_of_batch_norm
from ..analysis.rowwise import dynamic_operands

IMAGES: Final = Size.symbol("%images")
"""Tells rows that are images from others."""

OPEN_IMAGES: Final = Size.symbol("%open images")
"""Images of one row whose length only a call knows."""

SPREAD_IMAGES: Final = Size.symbol("%spread images")
"""Images whose rows lie far apart, for windows that reach far: what runs beside them would have longer rows, too."""

SPREAD: Final = 1.5
"""Distance of two rows, over the width of an image, from which on an image network holds such windows alone."""

CHANNEL_AXIS: Final = 1

ConvolutionOp = Conv2dOp | Depthwise2dOp


def image_counts(ops: Sequence[Operation], shapes: Mapping[SSAValue, SymbolicShape]) -> dict[Operation, Size]:
    """Return the images of each op that can run in an image network."""
    counts: dict[Operation, Size] = {}
    for op in ops:
        values = [*dynamic_operands(op), *op.results]
        if not _is_covered(op) or any(not _is_image(value) for value in values):
            continue
        if any(map(is_open, values)):
            if (count := _open_count(op, values, shapes)) is not None:
                counts[op] = count
            continue
        sizes = {shapes[value][0] for value in values}
        if len(sizes) == 1:
            counts[op] = (SPREAD_IMAGES if _is_spread(op) else IMAGES) * next(iter(sizes))
    return counts


def _open_count(op: Operation, values: Sequence[SSAValue], shapes: Mapping[SSAValue, SymbolicShape]) -> Size | None:
    """Return what tells the images of an op whose length only a call knows: the row of which theirs are windows.

    None where there is no code for that, such as for codes, or where operands are not known to be of one length.
    """
    if not all(map(is_open, values)) or isinstance(op, ConvertOp) or is_on_codes(op):
        return None
    rows = {shapes[value][0] * row_of(shapes[value][-1]) for value in values}
    same: Sequence[SSAValue] = values if not isinstance(op, WindowOp) else ()
    if isinstance(op, Conv2dOp) and op.residual is not None:
        same = (op.residual, op.result)
    is_one = len({shapes[value][-1] for value in same}) <= 1
    return OPEN_IMAGES * next(iter(rows)) if len(rows) == 1 and is_one else None


def stages_of(ops: Sequence[Operation]) -> dict[Operation, int]:
    """Return for each op how many ranges have to be found before it, one after the other.

    A convolution whose codes are found at each call needs all images of what it reads: it stands behind those.
    """
    stages: dict[Operation, int] = {}
    for op in ops:
        before = max(
            (stages.get(value.owner, 0) for value in op.operands if isinstance(value.owner, Operation)), default=0
        )
        stages[op] = before + is_found(op)
    return stages


def is_found(op: Operation) -> bool:
    """Return whether an op is a convolution on codes that are found at each call."""
    return isinstance(op, Conv2dOp) and op.finds_codes


def is_on_codes(op: Operation) -> TypeGuard[Conv2dOp]:
    """Return whether an op is a convolution on codes."""
    return isinstance(op, Conv2dOp) and op.times is not None


def _is_spread(op: Operation) -> bool:
    if not isinstance(op, ConvolutionOp):
        return False
    _, _, height, width = image_shape(op.result)
    return height > 1 and pitch_of(op) >= SPREAD * width + 1


def _is_image(value: SSAValue) -> bool:
    shape = shape_of(value)
    is_known = is_image_rank(len(shape)) and DYNAMIC not in shape[1:]
    return (is_known or is_open(value)) and 0 not in shape[1:]


def _is_covered(op: Operation) -> bool:
    match op:
        case Conv2dOp() | Depthwise2dOp() | Pool2dOp() | Resample2dOp() | Interleave2dOp():
            return True
        case ActivateOp() | ConvertOp():
            return True
        case BatchNormOp():
            return affine_of_batch_norm(op) is not None
        case BinaryOp():
            return spreads_of(op) is not None
        case ConcatOp() | SplitOp():
            return op.axis.value.data == CHANNEL_AXIS
        case _:
            return False


def is_sparse_convolution(op: Operation) -> bool:
    """Return whether an op is a convolution that runs by its connections alone."""
    return isinstance(op, Conv2dOp) and isinstance(op.weight.owner, SparseConstantOp)


def behind_sparse(
    counts: Mapping[Operation, Size], shares: ImageShares = DEFAULT_SHARES, *, takes_dense: bool = False
) -> dict[Operation, Size]:
    """Return sparse convolutions and the ops that they feed, and what is before them where it gains, or is on codes.

    A dense convolution among them stays where it takes no longer than with the runtime and on the way there and back;
    where it `takes_dense` ones, those on codes come along in any case.
    """

    def stays_outside(op: Operation) -> bool:
        taken = takes_dense and is_on_codes(op)
        return not taken and is_better_outside(op, shares)

    found: dict[Operation, Size] = {}
    for op, count in counts.items():
        is_fed = any(operand.owner in found for operand in op.operands)
        is_dense = isinstance(op, Conv2dOp) and not is_sparse_convolution(op)
        if is_sparse_convolution(op) or (is_fed and not (is_dense and stays_outside(op))):
            found[op] = count
    for op in reversed(list(counts)):
        if is_on_codes(op) and op not in found and not stays_outside(op):
            between = _between(op, found)
            found |= {one: counts[one] for one in between if one in counts}
        elif rounds_to_codes(op) and any(use.operation in found for use in op.results[0].uses):
            # what comes in becomes codes there, for all that reads it
            found[op] = counts[op]
    found |= {op: counts[op] for op in _gaining_front(counts, found, shares)}
    return {op: count for op, count in counts.items() if op in found}


LEAST_GAIN: Final = 1.15
"""Times as fast as before that what runs on images is predicted to be, at least: predictions are not exact."""


def _gaining_front(
    counts: Mapping[Operation, Size], found: Mapping[Operation, Size], shares: ImageShares
) -> list[Operation]:
    """Return ops whose results found ones alone read, directly or through each other, as many as save most time.

    A dense convolution takes as long here as there, but joins all elementwise work behind it, of which the runtime
    writes and reads every step.
    """
    front, inside, saved, most, best = list[Operation](), {*found}, 0.0, 0.0, 0
    for op in reversed(list(counts)):
        uses = [use.operation for result in op.results for use in result.uses]
        if op in inside or not uses or not inside.issuperset(uses) or reads_or_yields_codes(op):
            continue
        fresh = [value for value in dynamic_operands(op) if inside.isdisjoint(use.operation for use in value.uses)]
        crossing = sum(map(pixels_of, fresh)) - sum(map(pixels_of, op.results))
        saved += dense_us([op], shares) / LEAST_GAIN - layer_us(op, shares) - shares.values * MOVED_US * crossing
        front.append(op)
        inside.add(op)
        if saved > most:
            most, best = saved, len(front)
    return front[:best]


def _between(op: Conv2dOp, found: Mapping[Operation, Size]) -> list[Operation]:
    """Return a convolution and the poolings and elementwise work up to found ops; nothing where others read any."""
    path: list[Operation] = [op]
    passing = Pool2dOp | ActivateOp | ConvertOp | BinaryOp
    for one in path:
        readers = [use.operation for result in one.results for use in result.uses]
        further = [reader for reader in readers if reader not in found and reader not in path]
        if not readers or any(not isinstance(reader, passing) for reader in further):
            return []
        path += dict.fromkeys(further)
    known = {value.owner for value in dynamic_operands(op)} | {*path, *found}
    return path if all(value.owner in known for one in path for value in dynamic_operands(one)) else []


def is_better_outside(op: Operation, shares: ImageShares) -> bool:
    """Return whether an op takes less time with the runtime, on the way there and back."""
    moved = shares.values * MOVED_US * sum(map(pixels_of, (*dynamic_operands(op), *op.results)))
    around = ROUNDINGS_US if is_on_codes(op) else 0.0
    return layer_us(op, shares) > dense_us([op], shares) + moved + around


def pixels_of(value: SSAValue) -> int:
    """Return the values of one image."""
    _, channels, height, width = image_shape(value)
    return channels * height * width


def tiles_of(op: Conv2dOp, tile: int = PIXELS) -> int:
    """Return the tiles of pixels of a convolution's result, about.

    Rows have room for a pad, if there are several, unless a tile holds whole ones, or all.
    """
    _, _, height, width = image_shape(op.result)
    if _is_spread(op):
        return -(-height * pitch_of(op) // tile)
    return image_tiles(height, width, tile)


def tile_widths_of(op: Conv2dOp, lanes: int) -> list[int]:
    """Return the pixels that tiles of a convolution may have: see `image_widths`."""
    return open_tiles(lanes) if is_open(op.result) else image_widths(partial(tiles_of, op), lanes)


def pitch_of(op: Conv2dOp | Depthwise2dOp) -> int:
    """Return the distance of two rows of the result that leaves room for what a window reads beside the image."""
    _, _, _, width = image_shape(op.result)
    columns = [tap.column // op.window.stride[1] for tap in op.window.taps]
    return width + max(0, max(columns), -min(columns))


def network_us(ops: Sequence[Operation], shares: ImageShares = DEFAULT_SHARES) -> float:
    """Return the microseconds that an image takes in an image network, its way in and out included.

    `shares` are those of the machine.
    """
    stages, moved = stages_of(ops), 0
    for stage in sorted(set(stages.values())):
        boundary = boundary_of([op for op in ops if stages[op] == stage])
        moved += sum(map(pixels_of, (*boundary.inputs, *boundary.outputs)))
    return shares.values * MOVED_US * moved + sum(layer_us(op, shares) for op in ops)


def layer_us(op: Operation, shares: ImageShares = DEFAULT_SHARES) -> float:
    """Return the microseconds of a layer for an image."""
    kind = _power_of(op)
    power = activation_us(kind, shares.machine) * pixels_of(op.results[0]) if kind else 0.0
    return power + _work_us(op, shares) + memory_us(op, shares.machine)


def memory_us(op: Operation, machine: Machine) -> float:
    """Return the microseconds in which what a layer reads and writes goes through memory beyond all caches.

    What the layer before has written is still in a cache where both fit there. Parts of a concat or split lie in the
    whole, which moves nothing.
    """
    if moves_nothing(op):
        return 0.0
    values = (*dynamic_operands(op), *op.results)
    size = sum(pixels_of(value) * (1 if _has_codes(value) else 4) for value in values)
    return 1e-3 * machine.dram_ns * size * misses(size, machine.l3_bytes)


APART: Final = frozenset({"hard_swish", *SCALED.values()})
"""Activations of few instructions before which onnxruntime takes blocks of channels apart."""

JOINED: Final = OF_FEW_INSTRUCTIONS - APART
"""Activations that onnxruntime computes with the convolution before them."""


def _power_of(op: Operation, joined: Collection[str] = OF_FEW_INSTRUCTIONS) -> str:
    """Return the kind of an op's activation; empty for none, for one `joined` to its sums, or of a table of codes."""
    if not isinstance(op, ConvolutionOp | ActivateOp) or op.activation is None:
        return ""
    if isinstance(op, ActivateOp) and is_between_codes(op):
        return ""
    kind = op.activation.kind
    return "" if kind == "quantize" or kind in joined else kind


def _leaves_blocks(op: Operation) -> bool:
    """Return whether onnxruntime, which holds channels in blocks for convolutions, takes them apart for an op."""
    if isinstance(op, BinaryOp):
        return not is_between_codes(op) and len({pixels_of(value) for value in dynamic_operands(op)}) > 1
    return isinstance(op, ConvolutionOp) and _power_of(op, JOINED) in APART


def moves_nothing(op: Operation) -> bool:
    """Return whether there is nothing to do for an op: its values lie where others do, or are rounded on the way in."""
    return isinstance(op, ConcatOp | SplitOp) or (isinstance(op, ConvertOp) and (not op.rounds or _comes_in(op)))


def _work_us(op: Operation, shares: ImageShares) -> float:
    if moves_nothing(op):
        return 0.0
    match op:
        case Conv2dOp():
            return (_convolution_us if op.codes is None else _quantized_us)(op, shares)
        case Pool2dOp() if _is_of_codes(op):
            return shares.values * LINE_US * _pooled_lines(op)
        case Depthwise2dOp() | Pool2dOp() if not _is_whole(op):
            # what stands beside the image has a value of its own for a pooling, which reads a copy
            copied = isinstance(op, Pool2dOp) or op.window.stride != (1, 1)
            before = expansion_of(op) if isinstance(op, Depthwise2dOp) else None
            moved = pixels_of(op.x if before is None else before.x)
            return shares.values * MOVED_US * copied * moved + shares.taps * _taps_us(op)
        case Resample2dOp():
            return shares.values * RESAMPLED_US * len(op.rows.taps) * len(op.columns.taps) * pixels_of(op.result)
        case Interleave2dOp():
            return shares.values * RESAMPLED_US * pixels_of(op.result)
        case ActivateOp() | ConvertOp() if rounds_to_codes(op) and _ends_elementwise(op):
            return 0.0
        case ActivateOp() | BinaryOp() if is_between_codes(op):
            kind = "activate" if isinstance(op, ActivateOp) else "binary"
            return shares.values * CODED_US[kind] * pixels_of(op.results[0])
        case _:
            return shares.values * TOUCHED_US * sum(map(pixels_of, dynamic_operands(op)))


def _is_whole(op: Depthwise2dOp | Pool2dOp) -> bool:
    """Return whether a window is the whole image."""
    return op.window.is_all_of(*image_shape(op.x)[2:])


def _is_by_rows(op: Operation | Block) -> TypeGuard[Pool2dOp]:
    """Return whether an op finds the largest of each column of windows, whose largest is found behind it."""
    if not isinstance(op, Pool2dOp) or op.kind.data != "max" or op.window.kernel_size[1] > 1:
        return False
    reader = op.result.get_user_of_unique_use()
    return isinstance(reader, Pool2dOp) and reader.kind.data == "max" and reader.window.kernel_size[0] == 1


def _taps_us(op: Depthwise2dOp | Pool2dOp) -> float:
    return TAP_US * len(op.window.taps) * pixels_of(op.result)


def _is_of_codes(op: Pool2dOp) -> bool:
    """Return whether the largest of windows are codes, as far as what yields their values tells."""
    return op.kind.data == "max" and _has_codes(op.x)


def _has_codes(value: SSAValue) -> bool:
    """Return whether a value lies in memory as codes, as far as what yields it tells."""
    before = value.owner
    if isinstance(before, Pool2dOp):
        return _is_of_codes(before)
    if isinstance(before, ConvertOp):
        return not _comes_in(before) if before.rounds else _has_codes(before.x)
    return codes_in(value.type) is not None or (isinstance(before, Operation) and rounds_to_codes(before))


def _comes_in(op: ConvertOp) -> bool:
    """Return whether an op rounds what comes from elsewhere, as it is on the way in."""
    return op.rounds and isinstance(op.x.owner, Block | ForeignOp)


def reads_or_yields_codes(op: Operation) -> bool:
    """Return whether an op has to do with codes, as far as what stands beside it tells."""
    readers = (use.operation for result in op.results for use in result.uses)
    return rounds_to_codes(op) or any(map(_has_codes, op.operands)) or any(map(rounds_to_codes, readers))


def is_between_codes(op: ActivateOp | BinaryOp) -> bool:
    """Return whether elementwise work takes codes, and what it yields is rounded to codes alone."""
    reader = op.results[0].get_user_of_unique_use()
    return reader is not None and rounds_to_codes(reader) and any(map(_has_codes, op.operands))


def _ends_elementwise(op: ActivateOp | ConvertOp) -> bool:
    """Return whether a rounding is part of the elementwise work before it."""
    before = op.x.owner
    return isinstance(before, ActivateOp | BinaryOp) and op.x.has_one_use() and is_between_codes(before)


def _pooled_lines(op: Pool2dOp) -> float:
    """Return the lines that are copied for windows of codes, and those that are compared."""
    copied = pixels_of(op.x) if op.window.stride != (1, 1) else 0
    return len(op.window.taps) * (copied + pixels_of(op.result)) / PIXELS


def _convolution_us(op: Conv2dOp, shares: ImageShares) -> float:
    times = dict[int, float]() if op.kernel is None else op.kernel.predicted
    width, products = min(
        ((width, time * tiles_of(op, width)) for width, time in times.items()),
        key=itemgetter(1),
        default=(PIXELS, 0.0),
    )
    places = width * tiles_of(op, width)
    copied = COPIED_US * shape_of(op.weight)[0] * places if len(op.window.taps) > 1 else 0.0
    moved = MOVED_US * pixels_of(op.x) if op.window.stride != (1, 1) else 0.0
    added = TOUCHED_US * pixels_of(op.residual) if op.residual is not None else 0.0
    values = sum(map(pixels_of, (*dynamic_operands(op), op.result)))
    far = FAR_US * values if 4 * values > shares.machine.l2_bytes else 0.0
    return products + shares.values * (copied + moved + added + far)


def _quantized_us(op: Conv2dOp, shares: ImageShares) -> float:
    times, tiles = dict[int, float]() if op.kernel is None else op.kernel.predicted, tiles_of(op)
    copied = LINE_US * shape_of(op.weight)[0] * tiles if len(op.window.taps) > 1 else 0.0
    moved = LINE_US * len(op.window.taps) * pixels_of(op.x) / PIXELS if op.window.stride != (1, 1) else 0.0
    found = FOUND_US * pixels_of(op.x) if op.finds_codes else 0.0
    return times.get(PIXELS, 0.0) * tiles + shares.values * (copied + moved + found)


def dense_us(ops: Sequence[Operation], shares: ImageShares = DEFAULT_SHARES) -> float:
    """Return the microseconds that an image takes where nothing is sparse and nothing has to come in or out."""
    total = 0.0
    for op in ops:
        if is_on_codes(op):
            total += op.dense_us.value.data if op.dense_us is not None else 0.0
        elif isinstance(op, Conv2dOp):
            total += shares.dense * op.dense_us.value.data if op.dense_us is not None else 0.0
        elif isinstance(op, Pool2dOp) and _is_of_codes(op):
            total += DENSE_POOLED_US * len(op.window.taps) * pixels_of(op.result)
        elif isinstance(op, Depthwise2dOp | Pool2dOp) and not _is_whole(op):
            # strides cost nothing there, and all taps are read at once
            rows = op.x.owner.window.kernel_size[0] if isinstance(op, Pool2dOp) and _is_by_rows(op.x.owner) else 1
            total += 0.0 if _is_by_rows(op) else shares.dense_taps * rows * _taps_us(op)
        elif isinstance(op, ActivateOp | BinaryOp) and is_between_codes(op):
            kind = "activate" if isinstance(op, ActivateOp) else "add" if isinstance(op, AddOp) else "binary"
            total += shares.values * DENSE_CODED_US[kind] * pixels_of(op.results[0])
        elif isinstance(op, Resample2dOp):
            # one pass, however many values each result is a mean of
            total += shares.values * RESAMPLED_US * pixels_of(op.result) + memory_us(op, shares.machine)
        elif isinstance(op, ImageLayerOp | ActivateOp | ConvertOp | BinaryOp):
            # products hide the way to memory, other work waits for it
            total += _work_us(op, shares) + memory_us(op, shares.machine)
        if _leaves_blocks(op):
            total += 2 * shares.values * REORDERED_US * pixels_of(op.results[0])
        if kind := _power_of(op, JOINED):
            total += runtime_activation_us(kind, shares.machine) * pixels_of(op.results[0])
    return total
