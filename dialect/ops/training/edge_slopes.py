"""Sums over edges that the derivative of an attention over edges is made of.

With e the score of an edge from s to t, q = w exp(e - L[t]) its weight in `pebble.attend_edges`, where L[t] is the
logarithm of all that ends at t, and q' = q times the slope of `score`, what comes back from the means y is

    D[t]            = sum of q (g[t] . x[s]) over the edges that end at t     g is the gradient of y
    gradient of e   = q (g[t] . x[s] - D[t])
    of scores[t, H + h] = g[t] . (sum of q' x[s]) - D[t] (sum of q')          over the edges that end at t
    of scores[s, h]     = x[s] . (sum of q' g[t]) - sum of q' D[t]            over the edges that begin at s
    of x[s]             = sum of q g[t]
"""

from typing import ClassVar

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, UnitAttr, f64, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, opt_prop_def, prop_def, result_def, traits_def
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from ....sparse.csr import CscMatrix
from ...attributes.activations import ActivationAttr
from ...tensors import DENSE_TENSOR, F32_TENSOR, f32_tensor, shape_of, shape_text
from ..axis_maps import FixedAxes, PatternOp, RowMajor
from ..graphs import EdgeSoftmax, graph_of


@irdl_op_definition
class EdgeTotalsOp(PatternOp):
    """L of each node and head: scores [N, 2 H], graph [N, N], result [N, H]; lowest where no edge ends.

    That is m + log(sum of w exp(e - m) + `epsilon`), with m the largest score e of the edges that end at the node, or 0
    where that is larger and `from_zero` is set.

    ```mlir
    %l = pebble.edge_totals %s, %a heads 2 score <leaky_relu(0.2)>
        : (tensor<4x4xf32>, tensor<4x4xf32, #pebble.sparsity<nonzeros = 5>>) -> tensor<4x2xf32>
    ```
    """

    name = "pebble.edge_totals"

    scores = operand_def(DENSE_TENSOR)
    graph = operand_def(F32_TENSOR)
    heads = prop_def(IntegerAttr.constr(i64))
    score = opt_prop_def(ActivationAttr)
    epsilon = opt_prop_def(FloatAttr.constr(f64))
    from_zero = opt_prop_def(UnitAttr)
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), FixedAxes("sk, ss -> sh", fixed="skh", known="s"), RowMajor())
    assembly_format: ClassVar = (
        "$scores `,` $graph `heads` $heads (`score` $score^)? (`epsilon` $epsilon^)? (`from_zero` $from_zero^)? "
        "attr-dict `:` functional-type(operands, results)"
    )

    def __init__(self, scores: SSAValue, graph: SSAValue, softmax: EdgeSoftmax) -> None:
        result = f32_tensor((shape_of(scores)[0], softmax.heads))
        super().__init__(operands=[scores, graph], properties=softmax.properties, result_types=[result])

    @property
    def softmax(self) -> EdgeSoftmax:
        """The steps from scores to weights."""
        return EdgeSoftmax.of(self.heads, self.score, self.epsilon, self.from_zero)

    @property
    def edges(self) -> CscMatrix:
        """The constant graph [sources, targets]."""
        return graph_of(self.graph)

    def verify_(self) -> None:
        _check(self.scores, self.heads.value.data, self.result, self.heads.value.data)


@irdl_op_definition
class EdgeSlopesOp(PatternOp):
    """Sums [N, 2 H C + H] at nodes: of q x, of q' x and of q' d over the edges between a node and its neighbours.

    x [N, H C] are values of the neighbours, scores [N, 2 H], graph [N, N]. By default the nodes are targets; then
    totals [N, H] are L of them, and d is 1. With `sources` the graph is turned around, the nodes are sources, and
    totals [N, 2 H] are L and d of each target.

    ```mlir
    %y = pebble.edge_slopes %x, %s, %l, %a heads 2 score <leaky_relu(0.2)>
        : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x2xf32>, tensor<4x4xf32, #pebble.sparsity<nonzeros = 5>>)
        -> tensor<4x18xf32>
    ```
    """

    name = "pebble.edge_slopes"

    x = operand_def(DENSE_TENSOR)
    scores = operand_def(DENSE_TENSOR)
    totals = operand_def(DENSE_TENSOR)
    graph = operand_def(F32_TENSOR)
    heads = prop_def(IntegerAttr.constr(i64))
    score = opt_prop_def(ActivationAttr)
    sources = opt_prop_def(UnitAttr)
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), FixedAxes("sf, sk, sl, ss -> sr", fixed="sfklr", known="s"), RowMajor())
    assembly_format: ClassVar = (
        "$x `,` $scores `,` $totals `,` $graph (`sources` $sources^)? `heads` $heads (`score` $score^)? "
        "attr-dict `:` functional-type(operands, results)"
    )

    def __init__(
        self, x: SSAValue, scores: SSAValue, totals: SSAValue, graph: SSAValue, softmax: EdgeSoftmax, *, sources: bool
    ) -> None:
        properties: dict[str, Attribute | None] = {
            "heads": IntegerAttr(softmax.heads, i64),
            "score": softmax.activation,
            "sources": UnitAttr() if sources else None,
        }
        nodes, features = shape_of(x)
        result = f32_tensor((nodes, 2 * features + softmax.heads))
        super().__init__(operands=[x, scores, totals, graph], properties=properties, result_types=[result])

    @property
    def softmax(self) -> EdgeSoftmax:
        """The steps from scores to weights; what the totals were made with is in them."""
        return EdgeSoftmax(self.heads.value.data, self.score)

    @property
    def edges(self) -> CscMatrix:
        """The constant graph [neighbours, nodes]."""
        return graph_of(self.graph)

    def verify_(self) -> None:
        features, heads = shape_of(self.x)[-1], self.heads.value.data
        _check(self.scores, heads, self.result, 2 * features + heads)
        if features % heads:
            raise VerifyException(f"expected a divisor of {features} features, got {heads} heads")
        wanted = (shape_of(self.x)[0], 2 * heads if self.sources else heads)
        if shape_of(self.totals) != wanted:
            raise VerifyException(f"expected totals {shape_text(wanted)}, got {shape_text(shape_of(self.totals))}")


def _check(scores: SSAValue, heads: int, result: SSAValue, width: int) -> None:
    nodes, found = shape_of(scores)[0], shape_of(scores)[-1]
    if heads < 1 or found != 2 * heads:
        raise VerifyException(f"expected {2 * heads} scores of each node, got {found}")
    if shape_of(result) != (nodes, width):
        raise VerifyException(f"expected result {shape_text((nodes, width))}, got {shape_text(shape_of(result))}")
