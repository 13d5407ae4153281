"""Choose the kernel family that executes each linear layer, and say why.

```mlir
%y = pebble.linear %x, %sparse : ...
// ->
%y = pebble.linear %x, %sparse kernel <sparse_rows, "density 0.050 is below 0.40"> : ...
```

The storage of the weight decides, which `pebble-sparsify` chose.
"""

from dataclasses import dataclass

from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from redpebble.dialect.attributes import KernelAttr
from redpebble.dialect.layers import LinearOp
from redpebble.dialect.provenance import node_name
from redpebble.dialect.tensors import CscMatrix
from redpebble.passes.sparsify import DEFAULT_THRESHOLD
from redpebble.passes.weights import Weight, density, weight_of

SPARSE_FAMILY = "sparse_rows"
DENSE_FAMILY = "dense_panels"


@dataclass(frozen=True)
class ChooseKernels(ModulePass):
    """Write a kernel attribute on every linear layer."""

    name = "pebble-choose-kernels"

    threshold: float = DEFAULT_THRESHOLD
    """The density that `pebble-sparsify` went by, for the reason."""

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if not 0.0 <= self.threshold <= 1.0:
            raise PassFailedException(f"{self.name}: threshold {self.threshold}, expected 0 to 1")
        for linear in op.walk():
            if not isinstance(linear, LinearOp):
                continue
            weight = weight_of(linear.weight)
            if weight is None:
                where = f"node {node_name(linear)}" if node_name(linear) else linear.name
                raise PassFailedException(f"{self.name}: the weight of {where} is no constant")
            linear.kernel = kernel_for(weight, self.threshold)


def kernel_for(weight: Weight, threshold: float) -> KernelAttr:
    """Return the kernel family for a weight as it is stored, with the reason."""
    share = density(weight)
    if isinstance(weight, CscMatrix):
        below = share < threshold
        reason = f"density {share:.3f} is below {threshold:.2f}" if below else f"stored sparse, density {share:.3f}"
        return KernelAttr.of(SPARSE_FAMILY, reason)
    above = share >= threshold
    reason = f"density {share:.3f} is not below {threshold:.2f}" if above else f"stored dense, density {share:.3f}"
    return KernelAttr.of(DENSE_FAMILY, reason)
