"""Choose the kernel families that execute each linear layer, by the width of the batch tile, and say why.

```mlir
%y = pebble.linear %x, %w : ...
// ->
%y = pebble.linear %x, %w kernel <walk from 1, count_blocks from 8, "density 0.100, stored sparse"> : ...
```

The wider the tile, the more a nonzero earns for being looked up once, and the longer sparse stays ahead of dense; a
single row reads every weight once, so there the bytes decide. The crossovers were measured on AVX-512 (one thread,
square layers of 768 and 1024 and 3072 x 768, uniform masks), where both families are equally fast. A weight that
`pebble-sparsify` left dense may meet NaN or infinity, whose products with its zeros are not zero.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from redpebble.dialect.attributes import KernelAttr
from redpebble.dialect.layers import LinearOp
from redpebble.dialect.provenance import node_name
from redpebble.dialect.tensors import CscMatrix
from redpebble.passes.weights import Weight, density, weight_of


class Choice(NamedTuple):
    """The families for tiles from `width` batch columns on: `sparse` below the density `crossover`, else `dense`.

    Below `THIN` it is `thin`: with so few weights in a row, looking each one up is the least work.
    """

    width: int
    crossover: float
    thin: str
    sparse: str
    dense: str


THIN: Final = 0.02

CHOICES: Final = (
    Choice(1, 0.60, "sell_gather", "walk", "dense_rows"),
    Choice(8, 0.44, "count_blocks", "count_blocks", "dense_panels"),
    Choice(16, 0.49, "count_blocks", "count_blocks", "dense_panels"),
    Choice(32, 0.54, "count_blocks", "count_blocks", "dense_panels"),
    Choice(64, 0.62, "count_blocks", "count_blocks", "dense_panels"),
)


@dataclass(frozen=True)
class ChooseKernels(ModulePass):
    """Write a kernel attribute on every linear layer."""

    name = "pebble-choose-kernels"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for linear in op.walk():
            if not isinstance(linear, LinearOp):
                continue
            weight = weight_of(linear.weight)
            if weight is None:
                where = f"node {node_name(linear)}" if node_name(linear) else linear.name
                raise PassFailedException(f"{self.name}: the weight of {where} is no constant")
            linear.kernel = kernel_for(weight)


def kernel_for(weight: Weight) -> KernelAttr:
    """Return the kernel families for a weight, with the reason; one that is stored dense keeps its zeros."""
    share, stored = density(weight), "sparse" if isinstance(weight, CscMatrix) else "dense"
    chosen: dict[int, str] = {}
    for choice in CHOICES:
        family = choice.dense
        if stored == "sparse" and share < choice.crossover:
            family = choice.sparse if share >= THIN else choice.thin
        if family not in chosen.values():
            chosen[choice.width] = family
    return KernelAttr.of(chosen, f"density {share:.3f}, stored {stored}")
