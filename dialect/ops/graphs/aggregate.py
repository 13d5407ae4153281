"""Ops over the nodes of a graph: what nodes have is gathered along edges, and comes together where these end."""

from dataclasses import replace
from typing import ClassVar, Final, NamedTuple

from typing_extensions import override
from xdsl.dialects.builtin import UnitAttr
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException

from ....sparse.csr import CscMatrix
from ...attributes.activations import ActivationAttr
from ...attributes.product_order import ProductOrderAttr
from ...attributes.target_walk import TargetWalkAttr
from ...tensors import DENSE_TENSOR, DYNAMIC, F32_TENSOR, f32_tensor, shape_of, shape_text, verify_bias
from ..axis_maps import AxisMap, AxisPattern, HasAxisMap, RowMajor
from ..constants import SparseConstantOp

SUMS_SINCE: Final = 16
"""The opset from which ScatterElements adds: the op has no other form in ONNX."""

MAXIMA_SINCE: Final = 18
"""The opset from which ScatterElements compares."""

LOWEST: Final = -3.4028234663852886e38
"""The lowest float: maxima start from it, so that it stands for nothing."""


class _GraphAxes(HasAxisMap):
    """Nodes have numbers, which the edges name; features stay apart."""

    @override
    def axis_map(self, op: Operation) -> AxisMap:
        return replace(AxisPattern("...sf, st, f -> ...tf").axis_map(op), fixed=frozenset("st"))


class AtTargets(NamedTuple):
    """Bias and activation behind the sum over the edges of a node."""

    bias: SSAValue | None = None
    activation: ActivationAttr | None = None

    def properties(self, *, maximum: bool) -> dict[str, Attribute | None]:
        """Return the properties of an op that combines edges so."""
        return {"maximum": UnitAttr() if maximum else None, "activation": self.activation}


class CombinesEdges(IRDLOperation):
    """An op that combines what comes along the edges of a node: their sum, or with `maximum` the largest."""

    bias = opt_operand_def(DENSE_TENSOR)
    maximum = opt_prop_def(UnitAttr)
    activation = opt_prop_def(ActivationAttr)
    order = opt_prop_def(ProductOrderAttr)

    @property
    def is_plain(self) -> bool:
        """Whether the result is the product alone: linear in x."""
        return self.maximum is None and self.bias is None and self.activation is None


def graph_of(value: SSAValue) -> CscMatrix:
    """Return the graph [sources, targets] behind a value.

    Raises:
        VerifyException: it is no sparse constant.
    """
    if not isinstance(value.owner, SparseConstantOp):
        raise VerifyException("the graph is no sparse constant")
    return value.owner.weight


NOTHING: Final = AtTargets()


@irdl_op_definition
class AggregateOp(CombinesEdges):
    """activation(sum of edges + bias): x [..., S, F], graph [S, T], bias [F], result [..., T, F].

    An edge from node s to node t is a connection of the graph: node t gets x[s] times its weight, summed over its
    edges; with `maximum`, the largest of these. A node without edges gets 0. A dense graph has an edge wherever it is
    not 0. `order` says why the product stands before or behind a layer with weights, `walk` that targets are not taken
    in the order of their numbers.

    ```mlir
    %y = pebble.aggregate %x, %a bias %b activation <relu>
        : (tensor<4x8xf32>, tensor<4x3xf32, #pebble.sparsity<nonzeros = 5>>, tensor<8xf32>) -> tensor<3x8xf32>
    ```
    """

    name = "pebble.aggregate"

    x = operand_def(DENSE_TENSOR)
    graph = operand_def(F32_TENSOR)
    bias = opt_operand_def(DENSE_TENSOR)
    target_walk = opt_prop_def(TargetWalkAttr)
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), _GraphAxes(), RowMajor())
    assembly_format: ClassVar = (
        "$x `,` $graph (`maximum` $maximum^)? (`bias` $bias^)? (`activation` $activation^)? (`order` $order^)? "
        "(`walk` $target_walk^)? "
        "attr-dict `:` functional-type(operands, results)"
    )

    def __init__(self, x: SSAValue, graph: SSAValue, after: AtTargets = NOTHING, *, maximum: bool = False) -> None:
        *leading, _, features = shape_of(x)
        super().__init__(
            operands=[x, graph, after.bias],
            properties=after.properties(maximum=maximum),
            result_types=[f32_tensor((*leading, shape_of(graph)[1], features))],
        )

    @property
    def edges(self) -> CscMatrix:
        """The graph [sources, targets].

        Raises:
            VerifyException: it is no sparse constant.
        """
        return graph_of(self.graph)

    def verify_(self) -> None:
        shape, graph = shape_of(self.x), shape_of(self.graph)
        if len(graph) != 2 or DYNAMIC in graph:
            raise VerifyException(f"graph {shape_text(graph)}, expected rank 2 and known sizes")
        if len(shape) < 2 or shape[-1] == DYNAMIC or shape[-2] != graph[0]:
            raise VerifyException(f"input {shape_text(shape)}, expected {graph[0]} nodes and a known last axis")
        verify_bias(self.bias, shape[-1])
        expected = (*shape[:-2], graph[1], shape[-1])
        if shape_of(self.result) != expected:
            raise VerifyException(f"result {shape_text(shape_of(self.result))}, expected {shape_text(expected)}")
