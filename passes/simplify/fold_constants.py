"""Compute at compile time what depends on constants alone.

```mlir
%a = pebble.constant dense<[1.0, 2.0]> : tensor<2xf32>
%b = pebble.constant dense<[3.0, 4.0]> : tensor<2xf32>
%c = pebble.mul %a, %b : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
// ->
%c = pebble.constant dense<[3.0, 8.0]> : tensor<2xf32>
```

Ops are evaluated by the dialect's reference semantics in single precision. Foreign nodes stay: only onnxruntime knows
what they compute. So does what reads a wide sparse weight, as the reference semantics need its zeros.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from ...dialect.ops.axis_maps import HasAxisMap
from ...dialect.ops.constants import ConstantOp, SparseConstantOp, constant_array
from ...dialect.ops.graphs import AggregateOp
from ...dialect.provenance import origin_of, set_provenance, value_name
from ...dialect.semantics.interpreter import evaluate
from ...dialect.tensors import shape_of, size_of
from ..rewriting.erase_unused import erase_unused

MOST_DENSE: Final = 1 << 24
"""Values of a sparse weight, zeros included, up to which it is worth making dense once."""

MOST_MADE: Final = 1 << 28
"""Values of a constant that is made: two vectors of a small file have an outer product that fills the memory."""


class FoldConstants(ModulePass):
    """Replace ops whose operands are constants by constants."""

    name = "pebble-fold-constants"

    @override
    def apply(self, ctx: Context, op: ModuleOp) -> None:
        # walk order is block order, so that a chain folds in one go; the list keeps the walk apart from the changes
        for candidate in list(op.walk()):
            if candidate.get_trait(HasAxisMap) is not None:
                _fold(candidate)
        erase_unused(op.body)


def _fold(op: Operation) -> None:
    if not all(isinstance(operand.owner, ConstantOp | SparseConstantOp) for operand in op.operands):
        return
    if isinstance(op, AggregateOp) and op.is_plain:
        _replace(op, [_sums_of(op)])
        return
    weights = [operand.owner.weight for operand in op.operands if isinstance(operand.owner, SparseConstantOp)]
    if any(weight.shape[0] * weight.shape[1] > MOST_DENSE for weight in weights):
        return
    if any(size_of(shape_of(result)) > MOST_MADE for result in op.results):
        return
    arrays = [constant_array(operand) for operand in op.operands]
    results = evaluate(op, tuple(array for array in arrays if array is not None), np.float32)
    _replace(op, results)


def _sums_of(op: AggregateOp) -> NDArray[np.float32]:
    """Return the sums over the edges of a graph, which may have too many nodes for a dense matrix."""
    from scipy.sparse import csr_array

    graph, x = op.edges, constant_array(op.x)
    assert x is not None
    matrix = csr_array((graph.values, graph.rows, graph.pointers), shape=(graph.shape[1], graph.shape[0]))
    samples = [matrix @ sample for sample in x.reshape(-1, *x.shape[-2:])]
    return np.reshape(samples, shape_of(op.result)).astype(np.float32)


def _replace(op: Operation, results: Sequence[NDArray[np.float32]]) -> None:
    """Let constants take the place of an op."""
    constants = [ConstantOp(result.astype(np.float32)) for result in results]
    # users check their own types against their operands', so a result of partly unknown shape keeps its op
    if any(new.result.type != old.type for new, old in zip(constants, op.results, strict=True)):
        return
    for constant, result in zip(constants, op.results, strict=True):
        set_provenance(constant, origin_of(op), [value_name(result)])
    Rewriter.replace_op(op, constants, [constant.result for constant in constants])
