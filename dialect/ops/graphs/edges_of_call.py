"""Ops over a graph that is an input: in each call its edges are checked, sorted by their targets, and summed along."""

from typing import ClassVar, cast

from xdsl.dialects.builtin import I32, ArrayAttr, NoneAttr, TensorType, i32
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import (
    AnyAttr,
    AttrConstraint,
    BaseAttr,
    EqAttrConstraint,
    IRDLOperation,
    ParamAttrConstraint,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.hints import isa

from ...provenance import texts_of
from ...symbolic_sizes import DIMS, Size, SymbolicShape
from ...tensors import DENSE_TENSOR, DYNAMIC, f32_tensor, shape_of, shape_text, verify_bias
from ..axis_maps import FixedAxes, RowMajor
from .aggregate import NOTHING, AtTargets, CombinesEdges

IndexTensor = TensorType[I32]
"""The type of numbers of nodes and edges: `tensor<?xi32>`."""

INDEX_TENSOR = cast(
    "AttrConstraint[IndexTensor]",
    ParamAttrConstraint.get(TensorType, AnyAttr(), EqAttrConstraint(i32), BaseAttr(NoneAttr)),
)


def is_index_tensor(kind: Attribute) -> bool:
    """Return whether a type is that of numbers of nodes or edges."""
    return isinstance(kind, TensorType) and cast("TensorType[Attribute]", kind).element_type == i32


def _indices(size: int) -> IndexTensor:
    return TensorType(i32, [size])


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
        super().__init__(
            operands=[nodes, from_nodes, to_nodes, factors],
            result_types=[_indices(DYNAMIC), _indices(DYNAMIC), f32_tensor((DYNAMIC,))],
        )

    @property
    def shapes(self) -> list[SymbolicShape]:
        """The shapes of the results: the edges of all have one name."""
        entries = self.attributes.get(DIMS)
        words = texts_of(next(iter(entries))) if isa(entries, ArrayAttr[Attribute]) and len(entries) else ()
        return [(Size.symbol(words[0] if words and words[0] else "edges"),)] * 3

    def verify_(self) -> None:
        if len(shape_of(self.nodes)) != 2:
            raise VerifyException(f"nodes {shape_text(shape_of(self.nodes))}, expected rank 2")
        for value in self.results:
            if shape_of(value) != (DYNAMIC,):
                raise VerifyException(f"result {shape_text(shape_of(value))}, expected ?")


@irdl_op_definition
class SortEdgesOp(IRDLOperation):
    """Edges sorted by their targets, those of one in their order: a counting sort.

    sources [E], targets [E], weights [E] -> the first edge of each node [N], the one behind its last [N], and sources
    [E] and weights [E] in the new order. Of `nodes` [N, F] only the size is read. The numbers are those of
    `pebble.edge_list`, checked.

    ```mlir
    %b, %e, %s, %w = pebble.sort_edges of %x, %i, %j, %v
        : (tensor<?x8xf32>, tensor<?xi32>, tensor<?xi32>, tensor<?xf32>)
        -> (tensor<?xi32>, tensor<?xi32>, tensor<?xi32>, tensor<?xf32>)
    ```
    """

    name = "pebble.sort_edges"

    nodes = operand_def(DENSE_TENSOR)
    sources = operand_def(INDEX_TENSOR)
    targets = operand_def(INDEX_TENSOR)
    weights = operand_def(DENSE_TENSOR)
    begins = result_def(INDEX_TENSOR)
    ends = result_def(INDEX_TENSOR)
    sorted_sources = result_def(INDEX_TENSOR)
    sorted_weights = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), FixedAxes("nf, e, e, e -> n, n, e, e", fixed="nfe"), RowMajor())
    assembly_format: ClassVar = (
        "`of` $nodes `,` $sources `,` $targets `,` $weights attr-dict `:` functional-type(operands, results)"
    )

    def __init__(self, nodes: SSAValue, edges: EdgeListOp) -> None:
        count, edge_count = shape_of(nodes)[0], shape_of(edges.weights)[0]
        super().__init__(
            operands=[nodes, *edges.results],
            result_types=[_indices(count), _indices(count), _indices(edge_count), f32_tensor((edge_count,))],
        )

    def verify_(self) -> None:
        nodes = shape_of(self.nodes)
        if len(nodes) != 2:
            raise VerifyException(f"nodes {shape_text(nodes)}, expected rank 2")
        for given in (self.sources, self.targets, self.weights, self.sorted_sources, self.sorted_weights):
            if len(shape_of(given)) != 1 or shape_of(given) != shape_of(self.sources):
                raise VerifyException(f"edges {shape_text(shape_of(given))}, expected the same for all, of rank 1")
        for found in (self.begins, self.ends):
            if shape_of(found) != nodes[:1]:
                raise VerifyException(f"result {shape_text(shape_of(found))}, expected {shape_text(nodes[:1])}")


@irdl_op_definition
class AggregateSortedOp(CombinesEdges):
    """activation(sum of edges + bias) over sorted edges: x [N, F], begins [N], ends [N], sources [E], weights [E].

    Node t gets the sum of weights[e] x[sources[e]] over its edges, begins[t] to before ends[t]; with `maximum`, the
    largest x[sources[e]], whatever the weights. A node without edges gets 0. The result is [N, F].
    `order` is as that of `pebble.aggregate`.

    ```mlir
    %y = pebble.aggregate_sorted %x, %b, %e, %s, %w bias %c activation <relu> : (tensor<?x8xf32>, tensor<?xi32>,
        tensor<?xi32>, tensor<?xi32>, tensor<?xf32>, tensor<8xf32>) -> tensor<?x8xf32>
    ```
    """

    name = "pebble.aggregate_sorted"

    x = operand_def(DENSE_TENSOR)
    begins = operand_def(INDEX_TENSOR)
    ends = operand_def(INDEX_TENSOR)
    sources = operand_def(INDEX_TENSOR)
    weights = operand_def(DENSE_TENSOR)
    bias = opt_operand_def(DENSE_TENSOR)
    result = result_def(DENSE_TENSOR)

    traits = traits_def(Pure(), FixedAxes("sf, t, t, e, e, f -> tf", fixed="ste"), RowMajor())
    assembly_format: ClassVar = (
        "$x `,` $begins `,` $ends `,` $sources `,` $weights (`maximum` $maximum^)? (`bias` $bias^)? "
        "(`activation` $activation^)? (`order` $order^)? attr-dict `:` functional-type(operands, results)"
    )

    def __init__(self, x: SSAValue, edges: SortEdgesOp, after: AtTargets = NOTHING, *, maximum: bool = False) -> None:
        super().__init__(
            operands=[x, *edges.results, after.bias],
            properties=after.properties(maximum=maximum),
            result_types=[f32_tensor(shape_of(x))],
        )

    @property
    def edges(self) -> tuple[SSAValue, ...]:
        """The operands that a sort has made."""
        return self.begins, self.ends, self.sources, self.weights

    def verify_(self) -> None:
        shape = verify_sorted(self.x, self.edges)
        verify_bias(self.bias, shape[-1])
        if shape_of(self.result) != shape:
            raise VerifyException(f"result {shape_text(shape_of(self.result))}, expected {shape_text(shape)}")


def verify_sorted(x: SSAValue, edges: tuple[SSAValue, ...]) -> tuple[int, ...]:
    """Return the shape of x [N, F] behind checks of the sorted edges beside it: begins, ends, sources and weights.

    Raises:
        VerifyException: they do not fit.
    """
    shape, (begins, ends, sources, weights) = shape_of(x), edges
    if len(shape) != 2 or shape[-1] == DYNAMIC:
        raise VerifyException(f"input {shape_text(shape)}, expected nodes and a known last axis")
    for of_nodes in (begins, ends):
        if shape_of(of_nodes) != shape[:1]:
            raise VerifyException(f"nodes {shape_text(shape_of(of_nodes))}, expected {shape_text(shape[:1])}")
    if len(shape_of(sources)) != 1 or shape_of(sources) != shape_of(weights):
        raise VerifyException(f"weights {shape_text(shape_of(weights))}, expected {shape_text(shape_of(sources))}")
    return shape
