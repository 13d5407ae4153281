"""Tile sizes: samples of a block of feature-major values, and samples that travel together."""

from collections.abc import Sequence
from typing import Final

from xdsl.dialects.builtin import ModuleOp

from ...dialect.ops.layers import LinearOp

WIDEST: Final = 64
_NARROWEST: Final = 16

TILE_PRODUCTS: Final = 12_000_000
"""Multiplications of a rank, layer and batch tile: about 0.3 ms, long against what a message costs by itself."""

MOST_TILE: Final = 512
"""Samples of a tile at most: more of them leave the second-level cache before the next layer reads them."""


def block_width(module: ModuleOp) -> int:
    """Return the width at which the layers of a module are predicted to take least for a sample, the widest if none."""
    kernels = [op.kernel for op in module.walk() if isinstance(op, LinearOp) and op.kernel is not None]
    times = [kernel.predicted for kernel in kernels]
    widths = [width for width in range(_NARROWEST, WIDEST + 1, 16) if times and all(width in one for one in times)]
    return min(widths, key=lambda width: sum(one[width] for one in times) / width, default=WIDEST)


def batch_tile(connection_counts: Sequence[int], share: int, block: int) -> int:
    """Return how many samples travel together, for the connections of each layer and the parts that share a layer."""
    products = sum(connection_counts) / max(len(connection_counts), 1) / share
    blocks = round(TILE_PRODUCTS / max(products, 1.0) / block)
    return min(MOST_TILE // block, max(1, blocks)) * block
