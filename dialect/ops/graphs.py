"""Ops over the nodes of a graph: what nodes have is gathered along edges, and comes together where these end.

The graph is a sparse constant [sources, targets], or `!pebble.edges`: edges that a call brings, which are checked and
sorted by their targets first.
"""

from dataclasses import dataclass, replace
from typing import ClassVar, Final, NamedTuple, cast

from typing_extensions import override
from xdsl.dialects.builtin import (
    I32,
    ArrayAttr,
    FloatAttr,
    IntegerAttr,
    NoneAttr,
    ShapedType,
    TensorType,
    UnitAttr,
    f64,
    i32,
    i64,
)
from xdsl.ir import Attribute, Operation, ParametrizedAttribute, SSAValue, TypeAttribute
from xdsl.irdl import (
    AnyAttr,
    AttrConstraint,
    BaseAttr,
    EqAttrConstraint,
    IRDLOperation,
    ParamAttrConstraint,
    irdl_attr_definition,
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
from xdsl.utils.hints import isa

from ...sparse.csr import CscMatrix
from ..attributes.activations import ActivationAttr
from ..attributes.product_order import ProductOrderAttr
from ..attributes.target_walk import TargetWalkAttr
from ..provenance import texts_of
from ..symbolic_sizes import DIMS, Size, SymbolicShape
from ..tensors import DENSE_TENSOR, DYNAMIC, F32_TENSOR, f32_tensor, shape_of, shape_text
from .axis_maps import LEADING, AxisMap, AxisPattern, FixedAxes, HasAxisMap, PatternOp, RowMajor
from .constants import SparseConstantOp

SUMS_SINCE: Final = 16
"""The opset from which ScatterElements adds: the op has no other form in ONNX."""

MAXIMA_SINCE: Final = 18
"""The opset from which ScatterElements compares."""

LOWEST: Final = -3.4028234663852886e38
"""The lowest float: maxima start from it, so that it stands for nothing."""

IndexTensor = TensorType[I32]
"""The type of numbers of nodes: `tensor<?xi32>`."""

INDEX_TENSOR = cast(
    "AttrConstraint[IndexTensor]",
    ParamAttrConstraint.get(TensorType, AnyAttr(), EqAttrConstraint(i32), BaseAttr(NoneAttr)),
)


def is_index_tensor(kind: Attribute) -> bool:
    """Return whether a type is that of numbers of nodes."""
    return isinstance(kind, TensorType) and cast("TensorType[Attribute]", kind).element_type == i32


@irdl_op_definition
class EdgeListOp(IRDLOperation):
    """Edges as numbers of nodes from 0 on, in their order: sources [E], targets [E], weights [E], 1 without factors.

    The operands are integers and floats of ONNX, which a call computes before all layers; of `nodes` [N, F] only the
    size is read. Negative numbers count from the last node; a call with others that are outside is refused.

    ```mlir
    %s, %t, %w = pebble.edge_list of %x from %i to %j weights %v {pebble.dims = [["e"], ["e"], ["e"]]}
        : (tensor<?x8xf32>, !pebble.value<"tensor(int64)">, !pebble.value<"tensor(int64)">, tensor<?xf32>)
        -> (tensor<?xi32>, tensor<?xi32>, tensor<?xf32>)
    ```
    """

    name = "pebble.edge_list"

    nodes = operand_def(DENSE_TENSOR)
    from_nodes = operand_def(AnyAttr())
    to_nodes = operand_def(AnyAttr())
    factors = opt_operand_def(DENSE_TENSOR)
    sources = result_def(INDEX_TENSOR)
    targets = result_def(INDEX_TENSOR)
    weights = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), RowMajor())
    assembly_format: ClassVar = (
        "`of` $nodes `from` $from_nodes `to` $to_nodes (`weights` $factors^)? attr-dict "
        "`:` functional-type(operands, results)"
    )

    def __init__(self, nodes: SSAValue, from_nodes: SSAValue, to_nodes: SSAValue, factors: SSAValue | None) -> None:
        numbers = TensorType(i32, [DYNAMIC])
        super().__init__(
            operands=[nodes, from_nodes, to_nodes, factors], result_types=[numbers, numbers, f32_tensor((DYNAMIC,))]
        )

    @property
    def shapes(self) -> list[SymbolicShape]:
        """The shapes of the results: the edges of all have one name."""
        entries = self.attributes.get(DIMS)
        words = texts_of(next(iter(entries))) if isa(entries, ArrayAttr[Attribute]) and len(entries) else ()
        return [(Size.symbol(words[0] if words and words[0] else "edges"),)] * 3

    def verify_(self) -> None:
        if len(shape_of(self.nodes)) != 2:
            raise VerifyException(f"expected nodes of rank 2, got {shape_text(shape_of(self.nodes))}")
        for value in self.results:
            if shape_of(value) != (DYNAMIC,):
                raise VerifyException(f"expected result ?, got {shape_text(shape_of(value))}")


@irdl_attr_definition
class EdgesType(ParametrizedAttribute, TypeAttribute, ShapedType):
    """The type of edges that a call brings, sorted by their targets: a graph [sources, targets] of the same nodes.

    In memory these are the first edge of each node [N], the one behind its last [N], and sources [E] and weights [E].
    """

    name = "pebble.edges"

    @override
    def get_num_dims(self) -> int:
        return 2

    @override
    def get_shape(self) -> tuple[int, ...]:
        return (DYNAMIC, DYNAMIC)


EDGE_BUFFERS: Final = 4
"""Arrays of a value of `!pebble.edges`."""


@irdl_op_definition
class SortEdgesOp(IRDLOperation):
    """Edges sorted by their targets, those of one in their order: a counting sort.

    sources [E], targets [E] and weights [E] are those of `pebble.edge_list`, checked. Of `nodes` [N, F] only the size
    is read.

    ```mlir
    %e = pebble.sort_edges of %x, %i, %j, %v
        : (tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32>, tensor<?xf32>) -> !pebble.edges
    ```
    """

    name = "pebble.sort_edges"

    nodes = operand_def(DENSE_TENSOR)
    sources = operand_def(INDEX_TENSOR)
    targets = operand_def(INDEX_TENSOR)
    weights = operand_def(DENSE_TENSOR)
    result = result_def(EdgesType)

    traits = traits_def(Pure(), FixedAxes("nf, e, e, e -> nn", fixed="nfe"), RowMajor())
    assembly_format: ClassVar = (
        "`of` $nodes `,` $sources `,` $targets `,` $weights attr-dict `:` functional-type(operands, results)"
    )

    def __init__(self, nodes: SSAValue, edges: EdgeListOp) -> None:
        super().__init__(operands=[nodes, *edges.results], result_types=[EdgesType()])

    def verify_(self) -> None:
        if len(shape_of(self.nodes)) != 2:
            raise VerifyException(f"expected nodes of rank 2, got {shape_text(shape_of(self.nodes))}")
        for given in (self.sources, self.targets, self.weights):
            if len(shape_of(given)) != 1 or shape_of(given) != shape_of(self.sources):
                raise VerifyException(f"expected edges of one size and rank 1, got {shape_text(shape_of(given))}")


class AtTargets(NamedTuple):
    """Bias and activation behind the sum over the edges of a node."""

    bias: SSAValue | None = None
    activation: ActivationAttr | None = None


NOTHING: Final = AtTargets()


@dataclass(frozen=True)
class _GraphAxes(HasAxisMap):
    """Nodes have numbers, which the edges name; features stay apart. Edges of a call are between the same nodes."""

    constant: AxisPattern
    of_call: AxisPattern
    fixed: str

    @override
    def axis_map(self, op: Operation) -> AxisMap:
        pattern = self.pattern_for(op)
        found = pattern.axis_map(op)
        # without batch axes no operand is a parameter: all may be computed in a call
        parameters = found.parameters if LEADING in pattern.pattern else frozenset[int]()
        return replace(found, fixed=frozenset(self.fixed), parameters=parameters)

    @override
    def pattern_for(self, op: Operation, /) -> AxisPattern:
        return self.of_call if isinstance(op, OverEdgesOp) and op.of_call else self.constant


class OverEdgesOp(PatternOp):
    """An op over the edges of a graph [sources, targets]: what nodes get has a bias and an activation.

    `walk` says that the targets of a constant graph are not taken in the order of their numbers.
    """

    graph = operand_def(F32_TENSOR | BaseAttr(EdgesType))
    bias = opt_operand_def(DENSE_TENSOR)
    activation = opt_prop_def(ActivationAttr)
    target_walk = opt_prop_def(TargetWalkAttr)
    result = result_def(DENSE_TENSOR)

    @property
    def of_call(self) -> bool:
        """Whether a call brings the edges."""
        return isinstance(self.graph.type, EdgesType)

    @property
    def edges(self) -> CscMatrix:
        """The constant graph [sources, targets].

        Raises:
            VerifyException: it is no sparse constant.
        """
        return graph_of(self.graph)


def graph_of(value: SSAValue) -> CscMatrix:
    """Return the graph [sources, targets] behind a value.

    Raises:
        VerifyException: it is no sparse constant.
    """
    if not isinstance(value.owner, SparseConstantOp):
        raise VerifyException("the graph is no sparse constant")
    return value.owner.weight


@irdl_op_definition
class AggregateOp(OverEdgesOp):
    """activation(sum of edges + bias): x [..., S, F], graph [S, T], bias [F], result [..., T, F].

    An edge from node s to node t is a connection of the graph: node t gets x[s] times its weight, summed over its
    edges; with `maximum`, the largest of these, for edges of a call whatever their weights. A node without edges gets
    0. A dense graph has an edge wherever it is not 0; edges of a call are between the nodes of x [N, F]. `order` says
    why the product stands before or behind a layer with weights.

    ```mlir
    %y = pebble.aggregate %x, %a bias %b activation <relu>
        : (tensor<4x8xf32>, tensor<4x3xf32, #pebble.sparsity<nonzeros = 5>>, tensor<8xf32>) -> tensor<3x8xf32>
    %z = pebble.aggregate %x, %e maximum : (tensor<?x8xf32>, !pebble.edges) -> tensor<?x8xf32>
    ```
    """

    name = "pebble.aggregate"

    x = operand_def(DENSE_TENSOR)
    maximum = opt_prop_def(UnitAttr)
    order = opt_prop_def(ProductOrderAttr)

    traits = traits_def(
        Pure(),
        _GraphAxes(AxisPattern("...sf, st, f -> ...tf", known="stf"), AxisPattern("sf, ss, f -> sf", known="f"), "st"),
        RowMajor(),
    )
    assembly_format: ClassVar = (
        "$x `,` $graph (`maximum` $maximum^)? (`bias` $bias^)? (`activation` $activation^)? (`order` $order^)? "
        "(`walk` $target_walk^)? "
        "attr-dict `:` functional-type(operands, results)"
    )

    def __init__(self, x: SSAValue, graph: SSAValue, after: AtTargets = NOTHING, *, maximum: bool = False) -> None:
        *leading, nodes, features = shape_of(x)
        targets = nodes if isinstance(graph.type, EdgesType) else shape_of(graph)[1]
        super().__init__(
            operands=[x, graph, after.bias],
            properties={"maximum": UnitAttr() if maximum else None, "activation": after.activation},
            result_types=[f32_tensor((*leading, targets, features))],
        )

    @property
    def is_plain(self) -> bool:
        """Whether the result is the product alone: linear in x."""
        return self.maximum is None and self.bias is None and self.activation is None


class EdgeSoftmax(NamedTuple):
    """Steps from the scores of the edges of a node to their weights; see `AttendEdgesOp`."""

    heads: int
    activation: ActivationAttr | None = None
    epsilon: float = 0.0
    from_zero: bool = False

    @staticmethod
    def of(
        heads: IntegerAttr, score: ActivationAttr | None, epsilon: FloatAttr | None, from_zero: UnitAttr | None
    ) -> "EdgeSoftmax":
        """Return the steps that the properties of an op say."""
        least = 0.0 if epsilon is None else epsilon.value.data
        return EdgeSoftmax(heads.value.data, score, least, from_zero is not None)

    @property
    def properties(self) -> dict[str, Attribute | None]:
        """The properties of an op that say these steps."""
        return {
            "heads": IntegerAttr(self.heads, i64),
            "score": self.activation,
            "epsilon": FloatAttr(self.epsilon, f64) if self.epsilon else None,
            "from_zero": UnitAttr() if self.from_zero else None,
        }


SCORED: Final = "sf, sk, ss, f -> sf"


@irdl_op_definition
class AttendEdgesOp(OverEdgesOp):
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
    heads = prop_def(IntegerAttr.constr(i64))
    score = opt_prop_def(ActivationAttr)
    epsilon = opt_prop_def(FloatAttr.constr(f64))
    from_zero = opt_prop_def(UnitAttr)

    traits = traits_def(
        Pure(),
        _GraphAxes(AxisPattern(SCORED, known="sf"), AxisPattern(SCORED, known="f"), "sfk"),
        RowMajor(),
    )
    assembly_format: ClassVar = (
        "$x `,` $scores `,` $graph (`bias` $bias^)? `heads` $heads (`score` $score^)? (`epsilon` $epsilon^)? "
        "(`from_zero` $from_zero^)? (`activation` $activation^)? (`walk` $target_walk^)? "
        "attr-dict `:` functional-type(operands, results)"
    )

    def __init__(
        self, x: SSAValue, scores: SSAValue, graph: SSAValue, softmax: EdgeSoftmax, after: AtTargets = NOTHING
    ) -> None:
        properties = softmax.properties | {"activation": after.activation}
        super().__init__(
            operands=[x, scores, graph, after.bias], properties=properties, result_types=[f32_tensor(shape_of(x))]
        )

    @property
    def softmax(self) -> EdgeSoftmax:
        """The steps from scores to weights."""
        return EdgeSoftmax.of(self.heads, self.score, self.epsilon, self.from_zero)

    def verify_(self) -> None:
        super().verify_()
        features, scores, (heads, _, epsilon, _) = shape_of(self.x)[1], shape_of(self.scores)[1], self.softmax
        if heads < 1 or features % heads:
            raise VerifyException(f"expected a divisor of {features} features, got {heads} heads")
        if scores != 2 * heads:
            raise VerifyException(f"expected {2 * heads} scores of each node, got {scores}")
        if epsilon < 0:
            raise VerifyException(f"expected an epsilon of 0 or more, got {epsilon}")


OverEdges = AggregateOp | AttendEdgesOp
"""Ops over edges, by name: they have values x."""
