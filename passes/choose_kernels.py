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


THIN: Final = 0.01

WALK_BYTES: Final = 6
"""That the walk's stream takes for a nonzero, about."""

NEAR_BYTES: Final = 1 << 21
"""A second-level cache: what all layers of a network read together beyond it comes from farther away at every call."""

COMPACT_BELOW: Final = 0.2
"""Density below which a mask instead of stored zeros makes the walk's stream clearly shorter."""

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
        layers = [linear for linear in op.walk() if isinstance(linear, LinearOp)]
        weights = [self._weight(linear) for linear in layers]
        nonzeros = sum(len(weight.values) for weight in weights if isinstance(weight, CscMatrix))
        for linear, weight in zip(layers, weights, strict=True):
            linear.kernel = kernel_for(weight, far=nonzeros * WALK_BYTES > NEAR_BYTES)

    def _weight(self, linear: LinearOp) -> Weight:
        weight = weight_of(linear.weight)
        if weight is None:
            where = f"node {node_name(linear)}" if node_name(linear) else linear.name
            raise PassFailedException(f"{self.name}: the weight of {where} is no constant")
        return weight


def kernel_for(weight: Weight, *, far: bool) -> KernelAttr:
    """Return the kernel families for a weight, with the reason; one that is stored dense keeps its zeros.

    `far` says that the network's weights together do not stay in the second-level cache.
    """
    share, stored = density(weight), "sparse" if isinstance(weight, CscMatrix) else "dense"
    chosen: dict[int, str] = {}
    for choice in CHOICES:
        family = choice.dense
        if stored == "sparse" and share < choice.crossover:
            family = choice.sparse if share >= THIN else choice.thin
        if family == "walk" and far and share < COMPACT_BELOW:
            family = "compact_walk"
        if family not in chosen.values():
            chosen[choice.width] = family
    place = ", weights beyond the second-level cache" if far else ""
    return KernelAttr.of(chosen, f"density {share:.3f}, stored {stored}{place}")
