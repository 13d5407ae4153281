"""Attention over the edges of a graph: each node gets a mean of its neighbours, weighted by how well both fit."""

from typing import ClassVar, NamedTuple

from xdsl.dialects.builtin import FloatAttr, IntegerAttr, UnitAttr, f64, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from ....sparse.csr import CscMatrix
from ...attributes.activations import ActivationAttr
from ...attributes.target_walk import TargetWalkAttr
from ...tensors import DENSE_TENSOR, DYNAMIC, F32_TENSOR, f32_tensor, shape_of, shape_text, verify_bias
from ..axis_maps import FixedAxes, RowMajor
from .aggregate import NOTHING, AggregateOp, AtTargets, graph_of


class EdgeSoftmax(NamedTuple):
    """Steps from the scores of the edges of a node to their weights; see `AttendEdgesOp`."""

    heads: int
    activation: ActivationAttr | None = None
    epsilon: float = 0.0
    from_zero: bool = False


class AttendsEdges(IRDLOperation):
    """An op that takes means over the edges of nodes, weighted by a softmax of scores in each head."""

    bias = opt_operand_def(DENSE_TENSOR)
    heads = prop_def(IntegerAttr.constr(i64))
    score = opt_prop_def(ActivationAttr)
    epsilon = opt_prop_def(FloatAttr.constr(f64))
    from_zero = opt_prop_def(UnitAttr)
    activation = opt_prop_def(ActivationAttr)

    @property
    def softmax(self) -> EdgeSoftmax:
        """The steps from scores to weights."""
        epsilon = 0.0 if self.epsilon is None else self.epsilon.value.data
        return EdgeSoftmax(self.heads.value.data, self.score, epsilon, self.from_zero is not None)

    def verify_softmax(self, shape: tuple[int, ...], scores: tuple[int, ...]) -> None:
        """Check heads, scores and bias against the shape of the values.

        Raises:
            VerifyException: they do not fit.
        """
        heads = self.heads.value.data
        if heads < 1 or shape[1] % heads:
            raise VerifyException(f"{heads} heads of {shape[1]} features, expected a divisor")
        if scores != (shape[0], 2 * heads):
            raise VerifyException(f"scores {shape_text(scores)}, expected {shape_text((shape[0], 2 * heads))}")
        if self.softmax.epsilon < 0:
            raise VerifyException(f"epsilon {self.softmax.epsilon}, expected 0 or more")
        verify_bias(self.bias, shape[1])
        result = shape_of(self.results[0])
        if result != shape:
            raise VerifyException(f"result {shape_text(result)}, expected {shape_text(shape)}")


def softmax_properties(softmax: EdgeSoftmax, after: AtTargets) -> dict[str, Attribute | None]:
    """Return the properties of an op that takes such means."""
    return {
        "heads": IntegerAttr(softmax.heads, i64),
        "score": softmax.activation,
        "epsilon": FloatAttr(softmax.epsilon, f64) if softmax.epsilon else None,
        "from_zero": UnitAttr() if softmax.from_zero else None,
        "activation": after.activation,
    }


@irdl_op_definition
class AttendEdgesOp(AttendsEdges):
    """activation(mean over edges + bias): x [N, H C], scores [N, 2 H], graph [N, N], bias [H C], result [N, H C].

    An edge from s to t has the score e = `score`(scores[s, h] + scores[t, H + h]) in head h, and counts as often as the
    graph says: its weight is w exp(e - m) over the sum of these at t plus `epsilon`, where m is the largest score at t,
    or 0 where that is larger and `from_zero` is set. A node without edges gets 0. Scores and weights are computed where
    they are used, and never stored.

    ```mlir
    %y = pebble.attend_edges %x, %s, %a bias %b heads 2 score <leaky_relu(0.2)> activation <relu>
        : (tensor<4x8xf32>, tensor<4x4xf32>, tensor<4x4xf32, #pebble.sparsity<nonzeros = 5>>, tensor<8xf32>)
        -> tensor<4x8xf32>
    ```
    """

    name = "pebble.attend_edges"

    x = operand_def(DENSE_TENSOR)
    scores = operand_def(DENSE_TENSOR)
    graph = operand_def(F32_TENSOR)
    target_walk = opt_prop_def(TargetWalkAttr)
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), FixedAxes("nf, nk, nn, f -> nf", fixed="nfk"), RowMajor())
    assembly_format: ClassVar = (
        "$x `,` $scores `,` $graph (`bias` $bias^)? `heads` $heads (`score` $score^)? (`epsilon` $epsilon^)? "
        "(`from_zero` $from_zero^)? (`activation` $activation^)? (`walk` $target_walk^)? "
        "attr-dict `:` functional-type(operands, results)"
    )

    def __init__(
        self, x: SSAValue, scores: SSAValue, graph: SSAValue, softmax: EdgeSoftmax, after: AtTargets = NOTHING
    ) -> None:
        super().__init__(
            operands=[x, scores, graph, after.bias],
            properties=softmax_properties(softmax, after),
            result_types=[f32_tensor(shape_of(x))],
        )

    @property
    def edges(self) -> CscMatrix:
        """The graph [sources, targets].

        Raises:
            VerifyException: it is no sparse constant.
        """
        return graph_of(self.graph)

    def verify_(self) -> None:
        shape, scores, graph = (shape_of(value) for value in (self.x, self.scores, self.graph))
        if len(graph) != 2 or DYNAMIC in graph or graph[0] != graph[1]:
            raise VerifyException(f"graph {shape_text(graph)}, expected as many sources as targets")
        if len(shape) != 2 or shape[0] != graph[0] or shape[1] == DYNAMIC:
            raise VerifyException(f"input {shape_text(shape)}, expected {graph[0]} nodes and a known last axis")
        self.verify_softmax(shape, scores)


OVER_EDGES = AggregateOp | AttendEdgesOp
"""Ops over the edges of a constant graph."""
