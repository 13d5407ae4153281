"""Choose how the weight of each linear layer and convolution is stored: dense, or the connections alone.

```mlir
%w = pebble.constant dense<[[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]]> : tensor<3x2xf32>
%y = pebble.linear %x, %w : ...
// ->
%w = pebble.sparse_constant pointers ... : tensor<3x2xf32, #pebble.sparsity<nonzeros = 1>>
%y = pebble.linear %x, %w : ...
```

A weight whose density is below `threshold` becomes sparse, another one dense; with `densify` all become dense, and so
do those of layers that may read NaN or inf, as 0 * NaN is NaN. A weight that several layers share is shared afterwards;
where something else reads it, that keeps the constant as it was.
"""

from dataclasses import dataclass
from typing import Final

from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue, Use
from xdsl.passes import ModulePass
from xdsl.utils.exceptions import PassFailedException

from ...dialect.ops.constants import ConstantOp, SparseConstantOp, few_bits_of
from ...dialect.ops.images import Conv2dOp
from ...dialect.ops.layers import LinearOp
from ...sparse.csr import CscMatrix
from ...sparse.densities import STORED_SPARSE
from ..analysis.finiteness import nonfinite_values
from ..analysis.weights import density, weight_of
from ..rewriting.erase_unused import erase_unused
from ..rewriting.replacing import take_names

WEIGHT_OPERAND: Final = 1


@dataclass(frozen=True)
class Sparsify(ModulePass):
    """Store weights below a density as sparse constants, others as dense ones; what has few bits stays as it is."""

    name = "pebble-sparsify"

    threshold: float = STORED_SPARSE
    """Density below which a weight becomes sparse, 0 to 1."""
    densify: bool = False
    """Store every weight dense."""

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if not 0.0 <= self.threshold <= 1.0:
            raise PassFailedException(f"{self.name}: expected a threshold of 0 to 1, got {self.threshold}")
        layers = [layer for layer in op.walk() if isinstance(layer, LinearOp | Conv2dOp)]
        nonfinite = nonfinite_values(op)
        whole = {layer.weight for layer in layers if layer.x in nonfinite}
        for value in dict.fromkeys(layer.weight for layer in layers):
            self._store(value, dense=self.densify or value in whole)
        erase_unused(op.body)

    def _store(self, value: SSAValue, *, dense: bool) -> None:
        constant, weight = value.owner, weight_of(value)
        if weight is None or not isinstance(constant, ConstantOp | SparseConstantOp) or constant.parent is None:
            return
        has_codes = few_bits_of(value) is not None
        if has_codes and isinstance(constant, ConstantOp):
            return
        # codes of few bits wait for kernels that read them, however many are zeros
        sparse = not dense and (has_codes or density(weight) < self.threshold)
        if sparse == isinstance(weight, CscMatrix):
            return
        if isinstance(weight, CscMatrix):
            stored = ConstantOp(weight.to_dense())
        else:
            stored = SparseConstantOp(CscMatrix.from_dense(weight))
        readers = [use for use in value.uses if _is_weight(use)]
        if len(readers) == value.uses.get_length():
            take_names(stored, constant)
        constant.parent.insert_op_after(stored, constant)
        for use in readers:
            use.operation.operands[use.index] = stored.result


def _is_weight(use: Use) -> bool:
    return isinstance(use.operation, LinearOp | Conv2dOp) and use.index == WEIGHT_OPERAND
