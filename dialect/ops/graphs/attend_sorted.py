"""Attention over edges that a call brings, once they are sorted by their targets."""

from typing import ClassVar

from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure

from ...tensors import DENSE_TENSOR, f32_tensor, shape_of
from ..axis_maps import FixedAxes, RowMajor
from .aggregate import NOTHING, AtTargets
from .attend_edges import AttendsEdges, EdgeSoftmax, softmax_properties
from .edges_of_call import INDEX_TENSOR, AggregateSortedOp, SortEdgesOp, verify_sorted


@irdl_op_definition
class AttendSortedOp(AttendsEdges):
    """`pebble.attend_edges` over sorted edges: x [N, H C], scores [N, 2 H], begins [N], ends [N], sources [E].

    The edges of node t are begins[t] to before ends[t], as `pebble.sort_edges` has them, and each counts as often as
    its weight [E] says. Bias [H C], result [N, H C].

    ```mlir
    %y = pebble.attend_sorted %x, %s, %b, %e, %f, %w bias %c heads 2 score <leaky_relu(0.2)> activation <relu>
        : (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xf32>, tensor<8xf32>)
        -> tensor<?x8xf32>
    ```
    """

    name = "pebble.attend_sorted"

    x = operand_def(DENSE_TENSOR)
    scores = operand_def(DENSE_TENSOR)
    begins = operand_def(INDEX_TENSOR)
    ends = operand_def(INDEX_TENSOR)
    sources = operand_def(INDEX_TENSOR)
    weights = operand_def(DENSE_TENSOR)
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), FixedAxes("sf, sk, s, s, e, e, f -> sf", fixed="sfke"), RowMajor())
    assembly_format: ClassVar = (
        "$x `,` $scores `,` $begins `,` $ends `,` $sources `,` $weights (`bias` $bias^)? `heads` $heads "
        "(`score` $score^)? (`epsilon` $epsilon^)? (`from_zero` $from_zero^)? (`activation` $activation^)? "
        "attr-dict `:` functional-type(operands, results)"
    )

    def __init__(
        self, x: SSAValue, scores: SSAValue, edges: SortEdgesOp, softmax: EdgeSoftmax, after: AtTargets = NOTHING
    ) -> None:
        super().__init__(
            operands=[x, scores, *edges.results, after.bias],
            properties=softmax_properties(softmax, after),
            result_types=[f32_tensor(shape_of(x))],
        )

    @property
    def edges(self) -> tuple[SSAValue, ...]:
        """The operands that a sort has made."""
        return self.begins, self.ends, self.sources, self.weights

    def verify_(self) -> None:
        verify_sorted(self.x, self.edges)
        self.verify_softmax(shape_of(self.x), shape_of(self.scores))


OVER_SORTED = AggregateSortedOp | AttendSortedOp
"""Ops over edges that a call brings."""
