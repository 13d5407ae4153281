"""Attention over edges (GAT) as exporters write it: a softmax over the edges that end at a node, then a weighted sum.

```
view = Reshape(h, [N, H, C])
from, to = ReduceSum(view * a, -1)                           a [1, H, C], one for sources and one for targets
e    = LeakyRelu(Gather(from, sources) + Gather(to, targets))
p    = Exp(e - Gather(ScatterElements(start, targets, e, "max"), targets))
q    = p / Gather(ScatterElements(zeros, targets, p, "add") + epsilon, targets)
y    = ScatterElements(zeros, targets, Unsqueeze(q, -1) * Gather(view, sources), "add")
```

The last node becomes `pebble.attend_edges` on h and on scores h a, a linear layer: `pebble-associate` lets it read what
h is made of, where that takes less time. Edges that a call brings are sorted, for `pebble.attend_sorted`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from ....dialect.attributes.activations import ActivationAttr
from ....dialect.ops.graphs.aggregate import SUMS_SINCE
from ....dialect.ops.graphs.attend_edges import AttendEdgesOp, EdgeSoftmax
from ....dialect.ops.graphs.attend_sorted import AttendSortedOp
from ....dialect.ops.layers import LinearOp
from ....dialect.symbolic_sizes import Size
from ....sparse.edges import EdgeList
from ...folding.known_sizes import is_known
from ..conversion import Conversion
from .edge_lists import counted, digest
from .edge_pattern import EdgePattern, Ends, NoPattern, same_ends
from .edges_of_call import EdgesOfCall, sorted_edges

DEFAULT_SLOPE = 0.01
"""Slope of a LeakyRelu that names none."""


class _Scores(NamedTuple):
    """Scores of nodes, as targets or as sources, gathered along edges."""

    values: onnx_ir.Value
    """The values that they are computed from, or in which they lie side by side."""
    ends: Ends
    factors: NDArray[np.float32] | None = None
    """Factors of the values, [H, C]; None for scores themselves."""
    heads: tuple[int, int] = (0, 0)
    """The first of the scores, and the one behind the last."""


class _Edges(NamedTuple):
    """Edges as nodes of ONNX have them."""

    sources: Ends
    targets: Ends
    weights: onnx_ir.Value | None


class _Softmax(NamedTuple):
    """A softmax over edges: what it reads, and the steps of its own."""

    logits: onnx_ir.Value
    weights: onnx_ir.Value | None
    """Count of each edge, [E, 1]; None for 1."""
    epsilon: float
    from_zero: bool


def convert_edge_attention(conversion: Conversion) -> Sequence[SSAValue] | None:
    """Return what the last ScatterElements of an attention over edges yields; None where it is none.

    Raises:
        NotCovered: it is one, of edges that are outside the nodes.
    """
    found = _Pattern(conversion)
    try:
        return found.converted()
    except NoPattern:
        return None


class _Pattern(EdgePattern):
    """The nodes behind a ScatterElements, from there to the values of nodes."""

    def converted(self) -> list[SSAValue]:
        """Return the sums.

        Raises:
            NoPattern: the nodes are no attention over edges.
            NotCovered: an edge is outside the nodes.
        """
        conversion = self.conversion
        targets = self.ends(self.given(conversion.input(1)))
        shares, messages = self.operands(self.operator(conversion.input(2), "Mul"), self._is_spread)
        gathered = self.operator(messages, "Gather")
        view, sources = self.given(gathered.inputs[0]), self.index(gathered)
        softmax = self._softmax(self._input_of(shares), targets)
        activation, logits = self._activation(softmax.logits)
        pair = [self._scores(value) for value in self.operator(logits, "Add").inputs]
        origin, target = self._sorted(pair, sources, targets)
        sizes = self.sizes_of(conversion.input(0))
        if origin.values is not target.values or not self.is_zero(conversion.input(0)) or sizes is None:
            raise NoPattern
        x = conversion.tensor_of(self.given(self.operator(view, "Reshape").inputs[0]))
        count = conversion.sizes(x)[0]
        if len(sizes) != 3 or not is_known(sizes[1]) or not is_known(sizes[2]) or sizes[0] != count:
            raise NoPattern
        heads, size = (int(one.coefficient) for one in sizes[1:])
        if conversion.sizes(x) != (count, Size.known(heads * size)):
            raise NoPattern
        scores = self._scores_of_nodes(x, origin, target, (heads, size, origin.values is view))
        steps = EdgeSoftmax(heads, activation, softmax.epsilon, softmax.from_zero)
        result = self._attended(x, scores, _Edges(sources, targets, softmax.weights), steps)
        conversion.replaces(self.nodes)
        return [conversion.reshape(result, sizes)]

    def _scores_of_nodes(self, x: SSAValue, origin: _Scores, target: _Scores, known: tuple[int, int, bool]) -> SSAValue:
        """Return the scores of nodes as sources and as targets, [N, 2 H]: h a, or where they lie side by side."""
        conversion, (heads, size, is_view) = self.conversion, known
        if origin.factors is None or target.factors is None:
            scores = conversion.tensor_of(origin.values)
            sides = origin.heads == (0, heads) and target.heads == (heads, 2 * heads)
            if not sides or conversion.sizes(scores) != (conversion.sizes(x)[0], Size.known(2 * heads)):
                raise NoPattern
            return scores
        if not is_view or not origin.factors.shape == target.factors.shape == (heads, size):
            raise NoPattern
        factors = np.zeros((heads, size, 2 * heads), np.float32)
        for head in range(heads):
            factors[head, :, head], factors[head, :, heads + head] = origin.factors[head], target.factors[head]
        weight = conversion.emit_constant(factors.reshape(heads * size, 2 * heads), "")
        return conversion.emit(LinearOp(x, weight)).result

    def _attended(self, x: SSAValue, scores: SSAValue, given: _Edges, softmax: EdgeSoftmax) -> SSAValue:
        """Return what nodes get along edges that are constants, or those of the call.

        Raises:
            NoPattern: one end is a constant and the other is none, or the number of nodes is not known.
            NotCovered: an edge is outside the nodes.
        """
        conversion, (sources, targets, weights) = self.conversion, given
        nodes = conversion.sizes(x)[0]
        if isinstance(sources, onnx_ir.Value) and isinstance(targets, onnx_ir.Value):
            if not conversion.scope.takes_edges(SUMS_SINCE):
                raise NoPattern
            of_call = sorted_edges(conversion, x, EdgesOfCall(sources, targets, weights))
            return conversion.emit(AttendSortedOp(x, scores, of_call, softmax)).result
        factors = self.constant(weights)
        is_weighted = factors is not None and factors.dtype == np.float32 and factors.shape[1:] == (1,)
        if not is_known(nodes) or isinstance(sources, onnx_ir.Value) or isinstance(targets, onnx_ir.Value):
            raise NoPattern
        if weights is not None and not (is_weighted and factors is not None and len(factors) == len(targets)):
            raise NoPattern
        counts = int(nodes.coefficient), int(nodes.coefficient)
        counts_of_edges = None if factors is None else factors.reshape(-1).astype(np.float32)
        edges = EdgeList(counted(sources, counts[0]), counted(targets, counts[1]), counts_of_edges)
        graph = conversion.emit_sparse(lambda: edges.matrix(counts), f"graph.{digest(edges)}", f"{counts}")
        return conversion.emit(AttendEdgesOp(x, scores, graph, softmax)).result

    def _softmax(self, value: onnx_ir.Value, targets: Ends) -> _Softmax:
        division = self.operator(value, "Div")
        shares = self.given(division.inputs[0])
        weights, powers = self._weighted(shares)
        total = self.gathered(division.inputs[1], targets)
        epsilon, total = self._added(total)
        sums = self.operator(total, "ScatterElements")
        difference = self.operator(powers.inputs[0], "Sub")
        logits = self.given(difference.inputs[0])
        largest = self.operator(self.gathered(difference.inputs[1], targets), "ScatterElements")
        self.scattered(sums, targets, shares, "add")
        self.scattered(largest, targets, logits, "max")
        start = self.fill_of(self.given(sums.inputs[0]))
        if start is None or start < 0:
            raise NoPattern
        return _Softmax(logits, weights, epsilon + start, self._starts_from_zero(largest.inputs[0], targets, logits))

    def _weighted(self, value: onnx_ir.Value) -> tuple[onnx_ir.Value | None, onnx_ir.Node]:
        """Return what edges count, and the node of the powers that it is a factor of."""
        node = self.unsliced(value, 1).producer()
        if node is None or (node.domain, node.op_type) != ("", "Mul"):
            return None, self.operator(value, "Exp")
        self.nodes.append(node)
        weights, powers = self.operands(node, self.is_column)
        return weights, self.operator(powers, "Exp")

    def _starts_from_zero(self, start: onnx_ir.Value | None, targets: Ends, logits: onnx_ir.Value) -> bool:
        """Return whether the largest score is 0 at least; otherwise it starts from the lowest float."""
        lowest, array = float(np.finfo(np.float32).min), self.constant(start)
        if start is not None and self.is_zero(start):
            return True
        # nodes where no edge ends are not read
        read = array if array is None or isinstance(targets, onnx_ir.Value) else array[targets]
        if (read is not None and read.ndim == 2 and (read == np.float32(lowest)).all()) or (
            array is None and start is not None and self.is_filled(start, lowest)
        ):
            return False
        node = self.operator(start, "ScatterElements")
        before = self.given(node.inputs[2])
        match self.text(node, "reduction"):
            case "max":
                # zeros, or the least score of all where that is larger: no score is less
                for name in ("Expand", "Add", "ReduceMin"):
                    maker = self.operator(before, name)
                    others = [value for value in maker.inputs if value is not None]
                    before = others[-1] if name == "Add" else others[0]
                is_least = before is logits
                from_zero = True
            case "min":
                is_least, from_zero = self.is_filled(before, lowest), False
            case _:
                raise NoPattern
        if (
            not is_least
            or not self.is_zero(node.inputs[0])
            or not same_ends(self.ends(self.given(node.inputs[1])), targets)
        ):
            raise NoPattern
        return from_zero

    def _scores(self, value: onnx_ir.Value | None) -> _Scores:
        """Return the scores of nodes that are gathered along edges."""
        gathered = self.operator(value, "Gather")
        of_nodes = self.unsliced(self.given(gathered.inputs[0]), 1)
        node = of_nodes.producer()
        if node is not None and node.op_type == "Slice":
            self.nodes.append(node)
            return _Scores(self.given(node.inputs[0]), self.index(gathered), heads=self._heads_of(node))
        summed = self.operator(of_nodes, "ReduceSum")
        axes = summed.attributes.get("axes")
        constant = None if len(summed.inputs) < 2 else self.constant(summed.inputs[1])
        known = list(axes.as_ints()) if axes is not None else [] if constant is None else constant.tolist()
        keeps = summed.attributes.get("keepdims")
        if known not in ([-1], [2]) or keeps is None or keeps.as_int():
            raise NoPattern
        factor, view = self.operands(self.operator(summed.inputs[0], "Mul"), self._is_factor)
        array = self.constant(factor)
        if array is None:
            raise NoPattern
        return _Scores(view, self.index(gathered), array.reshape(array.shape[-2:]).astype(np.float32))

    def _heads_of(self, node: onnx_ir.Node) -> tuple[int, int]:
        """Return the first column that a Slice takes, and the one behind the last."""
        bounds = [self.constant(value) for value in node.inputs[1:]]
        if len(bounds) < 3 or any(bound is None or bound.size != 1 for bound in bounds):
            raise NoPattern
        first, end, axis, *step = (int(bound.reshape(-1)[0]) for bound in bounds if bound is not None)
        if axis not in (1, -1) or step not in ([], [1]):
            raise NoPattern
        return first, end

    def _sorted(self, pair: Sequence[_Scores], sources: Ends, targets: Ends) -> tuple[_Scores, _Scores]:
        """Return the scores of sources, and those of targets."""
        for origin, target in (pair, pair[::-1]):
            if same_ends(origin.ends, sources) and same_ends(target.ends, targets):
                return origin, target
        raise NoPattern

    def _is_spread(self, value: onnx_ir.Value) -> bool:
        """Return whether a value is that of edges and heads with an axis of size 1 behind these."""
        node = value.producer()
        if node is None or node.op_type != "Unsqueeze" or node.domain != "":
            return False
        axes = node.attributes.get("axes")
        constant = None if len(node.inputs) < 2 else self.constant(node.inputs[1])
        known = list(axes.as_ints()) if axes is not None else [] if constant is None else constant.tolist()
        self.nodes.append(node)
        return known in ([-1], [2])

    def _is_factor(self, value: onnx_ir.Value) -> bool:
        array = self.constant(value)
        return array is not None and array.dtype == np.float32 and array.ndim == 3 and array.shape[0] == 1

    def _input_of(self, value: onnx_ir.Value) -> onnx_ir.Value:
        node = value.producer()
        return self.given(node.inputs[0] if node is not None else None)

    def _activation(self, value: onnx_ir.Value) -> tuple[ActivationAttr | None, onnx_ir.Value]:
        node = value.producer()
        if node is None or node.op_type != "LeakyRelu":
            return None, value
        self.nodes.append(node)
        slope = node.attributes.get("alpha")
        return ActivationAttr.of("leaky_relu", DEFAULT_SLOPE if slope is None else slope.as_float()), self._input_of(
            value
        )

    def _added(self, value: onnx_ir.Value) -> tuple[float, onnx_ir.Value]:
        """Return a number that is added to a value, 0 where there is none, and the value without it."""
        node = value.producer()
        if node is None or node.op_type != "Add":
            return 0.0, value
        for first, second in (node.inputs, node.inputs[::-1]):
            array = None if second is None else self.constant(second)
            if array is not None and array.size == 1 and float(array.reshape(-1)[0]) >= 0:
                self.nodes.append(node)
                return float(array.reshape(-1)[0]), self.given(first)
        raise NoPattern
