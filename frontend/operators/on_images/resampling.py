"""Nodes that put pixels in other places: Resize, Upsample and Pad.

Coordinates are computed as onnxruntime does, in float32: a pixel of the result is at a place
between those of the image.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from ....dialect.attributes.resampling import OUTSIDE, ResamplingAttr
from ....dialect.ops.images import Resample2dOp, image_shape
from ....dialect.symbolic_sizes import ONE, SymbolicShape
from ....dialect.tensors import shape_of
from ...folding.known_sizes import is_known
from ..conversion import Conversion, Converter, NotCovered
from .windows import check_pixels, checked_image, image_of

Places = NDArray[np.float32]

ROUNDINGS: Final[Mapping[str, Callable[[Places], Places]]] = MappingProxyType(
    {
        "round_prefer_floor": lambda places: np.ceil(places - np.float32(0.5)),
        "round_prefer_ceil": lambda places: np.floor(places + np.float32(0.5)),
        "floor": np.floor,
        "ceil": np.ceil,
    }
)

SIGNAL_RANK: Final = 2

MOST_ALONG: Final = 1 << 20
"""Pixels of a row or a column of a result."""

TAPS_AT_ONCE: Final = 4
"""Pixels of which one of a result is made at once: of more, rows are resampled before columns."""

PLACINGS: Final = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric")


def _places(way: str, before: int, after: int, scale: float) -> Places:
    """Return where the pixels of a row of `after` pixels are in one of `before`.

    Raises:
        NotCovered: there is no code for the way.
    """
    numbers, factor = np.arange(after, dtype=np.float32), np.float32(scale)
    half = np.float32(0.5)
    match way:
        case "half_pixel":
            return (numbers + half) / factor - half
        case "half_pixel_symmetric":
            adjusted = np.float32(after) / (factor * np.float32(before))
            return np.float32(before) / 2 * (1 - adjusted) + (numbers + half) / factor - half
        case "pytorch_half_pixel":
            return (numbers + half) / factor - half if after > 1 else np.zeros_like(numbers)
        case "align_corners":
            return numbers * np.float32(before - 1) / np.float32(after - 1) if after > 1 else np.zeros_like(numbers)
        case "asymmetric":
            return numbers / factor
        case _:
            accepted = ", ".join(PLACINGS)
            raise NotCovered(f"expected coordinate_transformation_mode={accepted}, got {way}")


def _resampling(conversion: Conversion, before: int, scale: float, after: int) -> ResamplingAttr:
    """Return how an axis is resized.

    Raises:
        NotCovered: there is no code for the attributes.
    """
    mode = conversion.text("mode", "nearest")
    old = conversion.opset < 11 or conversion.node.op_type == "Upsample"
    way = conversion.text("coordinate_transformation_mode", "asymmetric" if old else "half_pixel")
    places = _places(way, before, after, scale)
    if mode == "nearest":
        name = conversion.text("nearest_mode", "floor" if old else "round_prefer_floor")
        if name not in ROUNDINGS:
            raise NotCovered(f"expected nearest_mode={', '.join(ROUNDINGS)}, got {name}")
        # as it is in onnxruntime, the way counts where pixels are not copied
        nearest = ROUNDINGS[name](places) if scale != 1 else np.arange(after)
        return ResamplingAttr(np.clip(nearest, 0, before - 1).astype(np.int64).tolist())
    if mode == "cubic":
        return _cubic(conversion, before, places)
    if mode != "linear":
        raise NotCovered(f"expected mode=nearest, linear or cubic, got {mode}")
    inside = np.clip(places, 0, before - 1)
    first = inside.astype(np.int64)
    others = np.minimum(first + 1, before - 1)
    return ResamplingAttr(first.tolist(), others.tolist(), (inside - first).astype(np.float32).tolist())


def _cubic(conversion: Conversion, before: int, places: Places) -> ResamplingAttr:
    """Return the shares of the four pixels around each place, as Keys' convolution has them, in float32.

    Pixels beside the image are those of its edge, or count nothing where `exclude_outside` says so.
    """
    a = np.float32(conversion.number("cubic_coeff_a", -0.75))
    first = np.floor(places)
    away = (places - first).astype(np.float32)
    near, far = away + 1, 2 - away
    shares = np.stack(
        [
            ((a * near - 5 * a) * near + 8 * a) * near - 4 * a,
            ((a + 2) * away - (a + 3)) * away * away + 1,
            ((a + 2) * (1 - away) - (a + 3)) * (1 - away) * (1 - away) + 1,
            ((a * far - 5 * a) * far + 8 * a) * far - 4 * a,
        ]
    ).astype(np.float32)
    numbers = first.astype(np.int64) + np.arange(-1, 3)[:, None]
    if conversion.integer("exclude_outside", 0):
        shares[(numbers < 0) | (numbers >= before)] = 0
        shares /= shares.sum(axis=0)
    # the share of the first one is what the others leave of 1: let that be a large one
    order, taps = [1, 0, 2, 3], np.clip(numbers, 0, before - 1)[[1, 0, 2, 3]]
    return ResamplingAttr(taps[0].tolist(), taps[1:].reshape(-1).tolist(), shares[order[1:]].reshape(-1).tolist())


def _convert_resize(conversion: Conversion) -> Sequence[SSAValue]:
    x = image_of(conversion)
    if conversion.integer("antialias", 0):
        raise NotCovered("expected antialias=0, got 1")
    if conversion.integer_list("axes") is not None:
        raise NotCovered("expected factors of all axes, got attribute axes")
    shape = shape_of(x)[1:]
    scales = _scales(conversion, shape)
    if not all(0 < scale < MOST_ALONG for scale in scales):
        raise NotCovered(f"expected factors above 0 and below {MOST_ALONG}, got {scales}")
    after = [int(np.floor(np.float32(extent) * np.float32(scale))) for extent, scale in zip(shape, scales, strict=True)]
    sizes = _sizes(conversion)
    if sizes is not None and conversion.text("keep_aspect_ratio_policy", "stretch") == "stretch":
        after = [*sizes]
    if scales[0] != 1 or 0 in after or 0 in shape:
        raise NotCovered(f"expected other sizes of the pixels alone, got {list(shape)} to {after}")
    _check_sizes(after[1:])
    pairs = [_resampling(conversion, *numbers) for numbers in zip(shape[1:], scales[1:], after[1:], strict=True)]
    rows, columns = _both(x, pairs)
    if len(rows.taps) * len(columns.taps) > TAPS_AT_ONCE:
        same = ResamplingAttr(range(image_shape(x)[3]))
        x, rows = conversion.emit(Resample2dOp(x, rows, same)).result, ResamplingAttr(range(rows.size))
    return [conversion.emit(Resample2dOp(x, rows, columns)).result]


def _check_sizes(sizes: Sequence[int]) -> None:
    """Check height and width of a result: each pixel along an axis has a number of its own.

    Raises:
        NotCovered: there are too many.
    """
    if not all(0 < size <= MOST_ALONG for size in sizes):
        raise NotCovered(f"expected a result of 1 to {MOST_ALONG} pixels along an axis, got {list(sizes)}")
    check_pixels(sizes)


def _scales(conversion: Conversion, shape: Sequence[int]) -> list[float]:
    """Return the factors of channels and pixels.

    Raises:
        NotCovered: they are not known.
    """
    index = 1 if conversion.opset < 11 or conversion.node.op_type == "Upsample" else 2
    scales, sizes = conversion.constant(index), _sizes(conversion)
    if scales is not None and len(scales) == len(shape) + 1:
        return [float(scale) for scale in scales[1:]]
    if sizes is None or len(sizes) != len(shape) or 0 in shape:
        raise NotCovered("expected constant scales or sizes, got computed ones")
    if conversion.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise NotCovered("expected keep_aspect_ratio_policy=stretch, got another")
    return [size / extent for size, extent in zip(sizes, shape, strict=True)]


def _sizes(conversion: Conversion) -> list[int] | None:
    """Return the channels and pixels of a result that are known, behind as many images as there are."""
    image, known = conversion.input(0), conversion.shape_value(3)
    if image is None or known is None or not known.sizes:
        return None
    images, *sizes = known.sizes
    shape = conversion.scope.sizes_of_onnx_value(image)
    if not (is_known(images) or (shape is not None and images == shape[0])) or not all(map(is_known, sizes)):
        return None
    return [int(size.coefficient) for size in sizes]


def _both(x: SSAValue, pairs: Sequence[ResamplingAttr]) -> tuple[ResamplingAttr, ResamplingAttr]:
    """Return the resamplings of rows and columns: images of one row keep it."""
    rows, columns = pairs if len(shape_of(x)) == 4 else (ResamplingAttr([0]), *pairs)
    return rows, columns


def _convert_pad(conversion: Conversion) -> Sequence[SSAValue]:
    """Return a padded image; in `compile`, signals [N, W] are images of one channel and one row."""
    x, mode, fill = conversion.tensor(0), conversion.text("mode", "constant"), 0.0
    given = shape_of(x)
    pads = conversion.integer_list("pads") if conversion.opset < 11 else conversion.integers(1)
    if pads is None or len(pads) != 2 * len(given) or conversion.has_input(3):
        raise NotCovered("expected constant pads for all axes, got computed ones, or of some axes")
    if len(given) == SIGNAL_RANK and conversion.scope.all_native:
        x, pads = conversion.reshape(x, _with_channel(conversion, x)), (pads[0], 0, pads[1], pads[2], 0, pads[3])
    x = checked_image(x)
    rank = len(shape_of(x))
    if any(pads[axis] or pads[rank + axis] for axis in (0, 1)):
        raise NotCovered(f"expected pads of pixels alone, got {list(pads)}")
    if mode == "constant":
        fill = conversion.number("value", 0.0) if conversion.opset < 11 else _fill(conversion)
    _check_sizes([extent + pads[axis] + pads[rank + axis] for axis, extent in enumerate(shape_of(x)[2:], start=2)])
    pairs = [
        _padded(mode, extent, pads[axis], pads[rank + axis]) for axis, extent in enumerate(shape_of(x)[2:], start=2)
    ]
    if 0 in (pair.size for pair in pairs) or 0 in image_shape(x):
        raise NotCovered("expected an image with pixels, got one of which nothing is left")
    result = conversion.emit(Resample2dOp(x, *_both(x, pairs), fill)).result
    sizes = conversion.sizes(result)
    return [result if rank == len(given) else conversion.reshape(result, (sizes[0], sizes[-1]))]


def _with_channel(conversion: Conversion, x: SSAValue) -> SymbolicShape:
    samples, *rest = conversion.sizes(x)
    return (samples, ONE, *rest)


def _fill(conversion: Conversion) -> float:
    if not conversion.has_input(2):
        return 0.0
    value = conversion.constant(2)
    if value is None:
        raise NotCovered("expected a constant value, got another")
    return float(value.reshape(-1)[0])


def _padded(mode: str, extent: int, before: int, after: int) -> ResamplingAttr:
    """Return how an axis is padded, or cut where pads are below 0.

    Raises:
        NotCovered: there is no code for the mode, or it needs more pixels than there are.
    """
    numbers = np.arange(-before, extent + after)
    match mode:
        case "constant":
            found = np.where((numbers >= 0) & (numbers < extent), numbers, OUTSIDE)
        case "edge":
            found = np.clip(numbers, 0, extent - 1)
        case "reflect" if max(before, after) < extent:
            found = extent - 1 - np.abs(extent - 1 - np.abs(numbers))
        case "wrap":
            found = numbers % extent
        case _:
            raise NotCovered(f"expected pads that mode={mode} fills from {extent} pixels, got {before} and {after}")
    return ResamplingAttr(found.tolist())


RESAMPLING_CONVERTERS: Final = MappingProxyType[tuple[str, str], Converter](
    {
        ("", "Pad"): _convert_pad,
        ("", "Resize"): _convert_resize,
        ("", "Upsample"): _convert_resize,
    }
)
"""(domain, operator) -> converter."""
