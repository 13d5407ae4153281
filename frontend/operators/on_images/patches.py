"""Convolutions by patches as linear layers: the first one of vision transformers, whose windows share no pixel.

```
y = Conv<strides = kernel>(x)     [N, C, H, W] -> [N, O, H / kh, W / kw]
pixels of a patch are a row:      [N, C, H, W] -> [N, H / kh, W / kw, C kh kw], times the weight
```
"""

from collections.abc import Sequence
from math import prod

from xdsl.ir import SSAValue

from ....dialect.ops.layers import LinearOp
from ....dialect.symbolic_sizes import Size
from ....dialect.tensors import shape_of
from ..conversion import Conversion


def is_cut_into_patches(conversion: Conversion, kernel: Sequence[int]) -> bool:
    """Return whether the windows of a convolution cut its images into several parts, and leave nothing."""
    size = shape_of(conversion.tensor(0))[2:]
    zeros, ones = (0,) * (2 * len(kernel)), (1,) * len(kernel)
    return (
        conversion.integer_list("strides") == tuple(kernel)
        and conversion.integer_list("pads") in (None, zeros)
        and conversion.integer_list("dilations") in (None, ones)
        and conversion.text("auto_pad", "NOTSET") in ("NOTSET", "VALID")
        and tuple(kernel) != size
        and all(taps and extent % taps == 0 for extent, taps in zip(size, kernel, strict=True))
    )


def layer_of_patches(
    conversion: Conversion, x: SSAValue, matrix: SSAValue, bias: SSAValue | None, kernel: Sequence[int]
) -> SSAValue:
    """Return the convolution of images `x` [N, C, ...] by a weight [C taps, O] as a layer whose rows are patches."""
    batch, channels, *extents = conversion.sizes(x)
    counts = [extent / Size.known(taps) for extent, taps in zip(extents, kernel, strict=True)]
    apart = [size for count, taps in zip(counts, kernel, strict=True) for size in (count, Size.known(taps))]
    rank = len(kernel)
    cut = conversion.reshape(x, (batch, channels, *apart))
    patches = conversion.transpose(cut, (0, *range(2, 2 + 2 * rank, 2), 1, *range(3, 3 + 2 * rank, 2)))
    rows = conversion.reshape(patches, (batch, *counts, channels * Size.known(prod(kernel))))
    result = conversion.emit(LinearOp(rows, matrix, bias)).result
    return conversion.transpose(result, (0, rank + 1, *range(1, rank + 1)))
