"""Bounds of convolutions in a line: a pixel of one is a row of a linear layer, whose inputs are its window's values."""

from xdsl.dialects.builtin import ModuleOp

from ...dialect.ops.images import Conv2dOp, image_shape
from ...dialect.tensors import DYNAMIC
from ...passes.analysis.weights import weight_of
from ...passes.kernels.annotate_io_bounds import bounds_of


def pixel_line(module: ModuleOp) -> str:
    """Return the bounds of values that convolutions of a module move for an image, "" without convolutions.

    Bounds are those of each pixel by itself: values that windows share count for each, and so do weights.
    """
    least = most = count = 0
    for op in module.walk():
        weight = weight_of(op.weight) if isinstance(op, Conv2dOp) else None
        if not isinstance(op, Conv2dOp) or weight is None or DYNAMIC in image_shape(op.result)[2:]:
            continue
        _, _, height, width = image_shape(op.result)
        bounds = bounds_of(weight)
        least += height * width * (bounds.reads.lower + bounds.writes.lower)
        most += height * width * (bounds.reads.upper + bounds.writes.upper)
        count += 1
    if not count:
        return ""
    return (
        f"{count} convolution{'s' * (count > 1)}, of which a pixel is a row of a linear layer that reads a window: "
        f"pixel by pixel an image moves {least / 1e6:,.1f} million values in any order of the connections, "
        f"{most / 1e6:,.1f} million output by output; tiles of 64 pixels read weights once, as the kilobytes above say"
    )
