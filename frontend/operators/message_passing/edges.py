"""Edges as nodes of ONNX have them, and as ops do: constants, or values of a call that are sorted by their targets."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple

import numpy as np
import onnx_ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from ....dialect.ops.constants import ConstantOp
from ....dialect.ops.graphs import LOWEST, EdgeListOp, SortEdgesOp
from ....dialect.provenance import value_name
from ....dialect.shape_inference import described_by
from ....dialect.symbolic_sizes import DIMS, Size
from ....sparse.edges import EdgeList
from ...folding.known_sizes import is_known
from ..conversion import Conversion, NotCovered
from ..patterns import Match, Pattern

Indices = NDArray[np.int64]

Ends = Indices | onnx_ir.Value
"""Nodes at one end of all edges: numbers, or the value that a call computes them in."""

SHAPING: Final = ("Identity", "Reshape", "Squeeze", "Unsqueeze")
"""Operators that leave the values of [edges] and [edges, 1] as they are."""


def is_zero(number: float) -> bool:
    """Return whether sums may start from a number."""
    return number == 0


def is_lowest(number: float) -> bool:
    """Return whether a number stands for nothing in a maximum: the lowest float, maybe in few digits (-3.4e38)."""
    return number <= LOWEST * (1 - 1e-3)


@dataclass(frozen=True)
class Listed(Pattern):
    """An index [edges], or [edges, 1] for rank 2: the hole gets `Ends`."""

    name: str
    rank: int = 1

    def meet(self, value: onnx_ir.Value | None, match: Match) -> None:
        value = match.behind(value)
        array = match.constant(value)
        shape = match.conversion.scope.inferred_shape(value) if array is None else array.shape
        is_index = array is None or array.dtype.kind == "i"
        if not is_index or shape is None or len(shape) != self.rank or any(size != 1 for size in list(shape)[1:]):
            raise match.mismatch("the node at one end of each edge", value)
        match.bind(self.name, _unshaped(match, value) if array is None else array.reshape(-1).astype(np.int64))


@dataclass(frozen=True)
class Spread(Pattern):
    """An index along an axis that all features share, as ScatterElements takes it: the hole gets `Ends`."""

    name: str
    axis: int
    width: str = ""
    """The hole of the number of features."""

    def meet(self, value: onnx_ir.Value | None, match: Match) -> None:
        value = match.behind(value)
        shape = match.conversion.scope.inferred_shape(value)
        if self.width and shape is not None and isinstance(shape[-1], int):
            match.bind(self.width, shape[-1])
        node = value.producer()
        if node is not None and (node.domain, node.op_type) == ("", "Expand"):
            match.nodes.append(node)
            value = match.behind(node.inputs[0])
        array = match.constant(value)
        ends = _column(match, value) if array is None else _rows(array, self.axis)
        if ends is None:
            raise match.mismatch("a target for each edge that all features share", value)
        match.bind(self.name, ends)


def _rows(array: NDArray[np.generic], axis: int) -> Indices | None:
    """Return the entry of each row of an index; None where the features of a row differ."""
    rows = np.moveaxis(array, axis, 0) if array.ndim > 1 and array.dtype.kind == "i" else None
    if rows is None or 0 in rows.shape[1:]:
        return None
    first = rows[(slice(None), *(0,) * (rows.ndim - 1))]
    return first.astype(np.int64) if (first == rows.T).all() else None


def _column(match: Match, value: onnx_ir.Value) -> onnx_ir.Value | None:
    """Return [edges] behind a value [edges, 1] or [edges, 1, 1], None for any other."""
    shape = match.conversion.scope.inferred_shape(value)
    is_column = shape is not None and len(shape) > 1 and all(size == 1 for size in list(shape)[1:])
    return _unshaped(match, value) if is_column else None


@dataclass(frozen=True)
class Uncut(Pattern):
    """A value that a Slice may cut to the shape of an index that was spread over it: nothing goes."""

    inside: Pattern

    def meet(self, value: onnx_ir.Value | None, match: Match) -> None:
        value = match.behind(value)
        node = value.producer()
        if node is not None and (node.domain, node.op_type) == ("", "Slice") and len(node.inputs) == 3:
            if not self._fits(node, match):
                raise match.mismatch("a Slice to the shape of the index", value)
            match.nodes.append(node)
            value = match.behind(node.inputs[0])
        self.inside.meet(value, match)

    def _fits(self, node: onnx_ir.Node, match: Match) -> bool:
        shape_of = match.conversion.scope.shape_value_of
        starts, ends = (None if value is None else shape_of(value) for value in node.inputs[1:])
        if starts is None or any(size != Size.known(0) for size in starts.sizes):
            return False
        if ends is not None and all(map(is_known, ends.sizes)):
            # edges are counted at both ends, and onnxruntime checks that updates are as large as their index
            return len(starts.sizes) == len(ends.sizes)
        spread = _shaped(node.inputs[2])
        expand = None if spread is None else spread.producer()
        return expand is not None and expand.op_type == "Expand" and _shaped(expand.inputs[1]) is node.inputs[0]


def _shaped(value: onnx_ir.Value | None) -> onnx_ir.Value | None:
    """Return whose sizes, all of them, are in a value; onnxruntime writes the first axis down."""
    node = None if value is None else value.producer()
    if node is None or node.op_type != "Shape" or "end" in node.attributes or node.attributes.get_int("start", 0):
        return None
    return node.inputs[0]


@dataclass(frozen=True)
class Weight(Pattern):
    """A number for each edge [edges, 1], or one for all: the hole gets a tuple of them."""

    name: str

    def meet(self, value: onnx_ir.Value | None, match: Match) -> None:
        value = match.behind(value)
        array = match.constant(value)
        if array is None:
            shape = match.conversion.scope.inferred_shape(value)
            is_weight = shape is not None and len(shape) == 2 and shape[1] == 1
            value = _unshaped(match, value) if is_weight else value
        else:
            is_column = array.ndim > 1 and array.shape[-1] == 1 and array.shape[-2] == array.size
            is_weight = array.dtype == np.float32 and (array.size == 1 or is_column)
        if not is_weight:
            raise match.mismatch("a weight for each edge", value)
        known = match.holes.get(self.name, ())
        match.holes[self.name] = (*(known if isinstance(known, tuple) else ()), value)


class Edges(NamedTuple):
    """Both ends of each edge, and its weights, which are multiplied."""

    sources: Ends
    targets: Ends
    weights: tuple[onnx_ir.Value, ...] = ()

    @staticmethod
    def of(match: Match) -> "Edges":
        """Return the edges at the holes "sources", "targets" and "weights"."""
        sources, targets, weights = match.holes["sources"], match.holes["targets"], match.holes.get("weights", ())
        assert isinstance(sources, np.ndarray | onnx_ir.Value)
        assert isinstance(targets, np.ndarray | onnx_ir.Value)
        assert isinstance(weights, tuple)
        return Edges(sources, targets, weights)

    @property
    def of_call(self) -> bool:
        """Whether a call brings the edges.

        Raises:
            NotCovered: it brings one end of them.
        """
        known = isinstance(self.sources, np.ndarray), isinstance(self.targets, np.ndarray)
        if any(known) and not all(known):
            raise NotCovered(
                f"expected two ends of the same kind, got a constant index of {'sources' if known[0] else 'targets'}"
            )
        return not all(known)

    def constant(self, conversion: Conversion, counts: tuple[int, int], *, unique: bool = False) -> SSAValue:
        """Return edges that are constants as a sparse one, among so many sources and targets.

        Raises:
            NotCovered: an edge is outside the nodes, or a weight is no constant.
        """
        assert isinstance(self.sources, np.ndarray)
        assert isinstance(self.targets, np.ndarray)
        count = len(self.targets)
        if len(self.sources) != count:
            raise NotCovered(f"expected {count} sources of edges, got {len(self.sources)}")
        weights = None
        for value in self.weights:
            array = conversion.scope.constant_of(value)
            if array is None or array.size not in (1, count):
                raise NotCovered(f"expected {count} constant weights of edges, got {value.name}")
            factor = np.broadcast_to(array.astype(np.float32, copy=False).reshape(-1), (count,))
            weights = factor if weights is None else weights * factor
        edges = EdgeList(_counted(self.sources, counts[0]), _counted(self.targets, counts[1]), weights)
        # edges that are there twice count once in a maximum, and the same edges may be those of larger graphs
        variant = f"{counts}{' unique' if unique else ''}"
        return conversion.emit_sparse(lambda: edges.matrix(counts, unique=unique), f"graph.{_digest(edges)}", variant)

    def sorted(self, conversion: Conversion, x: SSAValue) -> SSAValue:
        """Return edges of a call between the nodes of x, sorted by targets; an earlier layer may have them.

        Raises:
            NotCovered: a layer computes them, or they have several weights.
        """
        assert isinstance(self.sources, onnx_ir.Value)
        assert isinstance(self.targets, onnx_ir.Value)
        scope, nodes = conversion.scope, conversion.scope.argument_of_rows(x)
        constants = [scope.constant_of(value) for value in self.weights]
        if len(constants) > 1 or any(array is not None and array.size > 1 for array in constants):
            raise NotCovered("expected one weight that a call brings for each edge, got several, or constant ones")
        sources, targets = (scope.value_of(value) for value in (self.sources, self.targets))
        if sources is None or targets is None:
            raise NotCovered("expected edges that are known before the layers, got computed ones")
        weights = [conversion.tensor_of(value) for value in self.weights]
        for use in nodes.uses:
            known = use.operation
            if isinstance(known, EdgeListOp) and known.parent is not None:
                found = next((one.operation for one in known.sources.uses), None)
                if isinstance(found, SortEdgesOp) and _same(known.operands, [nodes, sources, targets, *weights]):
                    return found.result
        edges = EdgeListOp(nodes, sources, targets, next(iter(weights), None))
        name = f"edges.{value_name(sources) or self.sources.name}"
        edges.attributes[DIMS] = described_by([(Size.symbol(name),)] * 3)
        return conversion.emit(SortEdgesOp(nodes, conversion.emit(edges))).result


def _unshaped(match: Match, value: onnx_ir.Value) -> onnx_ir.Value:
    """Return what each edge has one entry of before it became [edges], [edges, 1] or [edges, 1, 1]."""
    while (node := value.producer()) is not None and node.domain == "" and node.op_type in SHAPING and node.inputs[0]:
        shape = match.conversion.scope.inferred_shape(node.inputs[0])
        if shape is None or len(shape) not in (1, 2, 3) or any(size != 1 for size in list(shape)[1:]):
            return value
        match.nodes.append(node)
        value = node.inputs[0]
    return value


def _same(left: Sequence[SSAValue], right: Sequence[SSAValue]) -> bool:
    """Return whether operands are the same; constants by their content."""
    return len(left) == len(right) and all(
        one is other
        or (
            isinstance(one.owner, ConstantOp)
            and isinstance(other.owner, ConstantOp)
            and one.owner.properties == other.owner.properties
        )
        for one, other in zip(left, right, strict=True)
    )


def _counted(index: Indices, count: int) -> Indices:
    """Return indices counted from the front.

    Raises:
        NotCovered: one is outside the nodes.
    """
    if len(index) and not -count <= index.min() <= index.max() < count:
        wrong = index.max() if index.max() >= count else index.min()
        raise NotCovered(f"expected indices of {count} nodes, {-count} to {count - 1}, got {wrong}")
    return np.where(index < 0, index + count, index)


def _digest(edges: EdgeList) -> str:
    """Return a name by which equal graphs share one constant."""
    found = blake2b(edges.sources.tobytes(), digest_size=6)
    found.update(edges.targets.tobytes())
    if edges.weights is not None:
        found.update(edges.weights.tobytes())
    return found.hexdigest()
