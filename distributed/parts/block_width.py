"""How many samples a block of feature-major values has, for which the kernels of a network are fastest."""

from typing import Final

from xdsl.dialects.builtin import ModuleOp

from redpebble.dialect.ops.layers import LinearOp

WIDEST: Final = 64
_NARROWEST: Final = 16


def block_width(module: ModuleOp) -> int:
    """Return the width at which the layers of a module are predicted to take least for a sample, the widest if none."""
    kernels = [op.kernel for op in module.walk() if isinstance(op, LinearOp) and op.kernel is not None]
    times = [kernel.predicted.by_width for kernel in kernels]
    widths = [width for width in range(_NARROWEST, WIDEST + 1, 16) if times and all(width in one for one in times)]
    return min(widths, key=lambda width: sum(one[width] for one in times) / width, default=WIDEST)
