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
h is made of, where that takes less time.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import onnx_ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from redpebble.dialect.attributes.activations import ActivationAttr
from redpebble.dialect.ops.graphs.attend_edges import AttendEdgesOp, EdgeSoftmax
from redpebble.dialect.ops.layers import LinearOp
from redpebble.dialect.symbolic_sizes import Size
from redpebble.frontend.folding.known_sizes import is_known
from redpebble.frontend.operators.conversion import Conversion, NotCovered
from redpebble.frontend.operators.message_passing.edge_lists import Indices, counted, digest
from redpebble.sparse.edges import EdgeList

DEFAULT_SLOPE = 0.01
"""Slope of a LeakyRelu that names none."""


class _Scores(NamedTuple):
    """Scores of nodes, as targets or as sources: the values and what these are multiplied by."""

    view: onnx_ir.Value
    factors: NDArray[np.float32]
    """[H, C]."""
    ends: Indices


class _Softmax(NamedTuple):
    """A softmax over edges: what it reads, and the steps of its own."""

    logits: onnx_ir.Value
    epsilon: float
    from_zero: bool


class _NoAttention(NotCovered):
    """The nodes are no attention over edges."""


def convert_edge_attention(conversion: Conversion) -> Sequence[SSAValue] | None:
    """Return what the last ScatterElements of an attention over edges yields; None where it is none.

    Raises:
        NotCovered: it is one, of edges that are outside the nodes.
    """
    found = _Pattern(conversion)
    try:
        return found.converted()
    except _NoAttention:
        return None


class _Pattern:
    """The nodes behind a ScatterElements, from there to the values of nodes."""

    def __init__(self, conversion: Conversion) -> None:
        self.conversion = conversion
        self.nodes: list[onnx_ir.Node] = []

    def converted(self) -> list[SSAValue]:
        """Return the sums.

        Raises:
            _NoAttention: the nodes are no attention over edges.
            NotCovered: an edge is outside the nodes.
        """
        conversion = self.conversion
        targets = self._ends(self._given(conversion.input(1)))
        shares, messages = self._operands(self._operator(conversion.input(2), "Mul"), self._is_spread)
        gathered = self._operator(messages, "Gather")
        view, sources = self._given(gathered.inputs[0]), self._index(gathered)
        softmax = self._softmax(self._input_of(shares), targets)
        activation, logits = self._activation(softmax.logits)
        pair = [self._scores(value) for value in self._operator(logits, "Add").inputs]
        origin, target = self._sorted(pair, sources, targets)
        if not (origin.view is target.view is view) or origin.factors.shape != target.factors.shape:
            raise _NoAttention
        return self._emitted(view, origin, target, EdgeSoftmax(len(origin.factors), activation, *softmax[1:]))

    def _emitted(self, view: onnx_ir.Value, origin: _Scores, target: _Scores, softmax: EdgeSoftmax) -> list[SSAValue]:
        conversion, (heads, size) = self.conversion, origin.factors.shape
        reshaped = self._operator(view, "Reshape")
        x = conversion.tensor_of(self._given(reshaped.inputs[0]))
        sizes = conversion.sizes(x)
        if len(sizes) != 2 or not is_known(sizes[0]) or sizes[1] != Size.known(heads * size):
            raise _NoAttention
        count = int(sizes[0].coefficient)
        edges = EdgeList(counted(origin.ends, count), counted(target.ends, count))
        counts = count, count
        graph = conversion.emit_sparse(lambda: edges.matrix(counts), f"graph.{digest(edges)}", f"{counts}")
        factors = np.zeros((heads, size, 2 * heads), np.float32)
        for head in range(heads):
            factors[head, :, head], factors[head, :, heads + head] = origin.factors[head], target.factors[head]
        weight = conversion.emit_constant(factors.reshape(heads * size, 2 * heads), "")
        scores = conversion.emit(LinearOp(x, weight)).result
        result = conversion.emit(AttendEdgesOp(x, scores, graph, softmax)).result
        conversion.replaces(self.nodes)
        return [conversion.reshape(result, (sizes[0], Size.known(heads), Size.known(size)))]

    def _softmax(self, value: onnx_ir.Value, targets: Indices) -> _Softmax:
        division = self._operator(value, "Div")
        powers = self._operator(division.inputs[0], "Exp")
        total = self._gathered(division.inputs[1], targets)
        epsilon, total = self._added(total)
        sums = self._operator(total, "ScatterElements")
        difference = self._operator(powers.inputs[0], "Sub")
        logits = self._given(difference.inputs[0])
        largest = self._operator(self._gathered(difference.inputs[1], targets), "ScatterElements")
        self._scattered(sums, targets, powers.outputs[0], "add")
        self._scattered(largest, targets, logits, "max")
        if not self._is_zero(sums.inputs[0]):
            raise _NoAttention
        return _Softmax(logits, epsilon, self._starts_from_zero(largest.inputs[0], targets, logits))

    def _starts_from_zero(self, start: onnx_ir.Value | None, targets: Indices, logits: onnx_ir.Value) -> bool:
        """Return whether the largest score is 0 at least; otherwise it starts from the lowest float."""
        lowest, array = float(np.finfo(np.float32).min), self._constant(start)
        # nodes where no edge ends are not read
        if (array is not None and array.ndim == 2 and (array[targets] == np.float32(lowest)).all()) or (
            array is None and start is not None and self._is_filled(start, lowest)
        ):
            return False
        node = self._operator(start, "ScatterElements")
        before = self._given(node.inputs[2])
        match self._text(node, "reduction"):
            case "max":
                # zeros, or the least score of all where that is larger: no score is less
                for name in ("Expand", "Add", "ReduceMin"):
                    maker = self._operator(before, name)
                    others = [value for value in maker.inputs if value is not None]
                    before = others[-1] if name == "Add" else others[0]
                is_least = before is logits
                from_zero = True
            case "min":
                is_least, from_zero = self._is_filled(before, lowest), False
            case _:
                raise _NoAttention
        if not is_least or not self._is_zero(node.inputs[0]) or not self._same(self._given(node.inputs[1]), targets):
            raise _NoAttention
        return from_zero

    def _scores(self, value: onnx_ir.Value | None) -> _Scores:
        """Return the scores of nodes that are gathered along edges."""
        gathered = self._operator(value, "Gather")
        summed = self._operator(gathered.inputs[0], "ReduceSum")
        axes = summed.attributes.get("axes")
        constant = None if len(summed.inputs) < 2 else self._constant(summed.inputs[1])
        known = list(axes.as_ints()) if axes is not None else [] if constant is None else constant.tolist()
        keeps = summed.attributes.get("keepdims")
        if known not in ([-1], [2]) or keeps is None or keeps.as_int():
            raise _NoAttention
        factor, view = self._operands(self._operator(summed.inputs[0], "Mul"), self._is_factor)
        array = self._constant(factor)
        if array is None:
            raise _NoAttention
        return _Scores(view, array.reshape(array.shape[-2:]).astype(np.float32), self._index(gathered))

    def _sorted(self, pair: Sequence[_Scores], sources: Indices, targets: Indices) -> tuple[_Scores, _Scores]:
        """Return the scores of sources, and those of targets."""
        for origin, target in (pair, pair[::-1]):
            if np.array_equal(origin.ends, sources) and np.array_equal(target.ends, targets):
                return origin, target
        raise _NoAttention

    def _operands(self, node: onnx_ir.Node, is_first: object) -> tuple[onnx_ir.Value, onnx_ir.Value]:
        assert callable(is_first)
        left, right = (self._given(value) for value in node.inputs)
        if is_first(left):
            return left, right
        if is_first(right):
            return right, left
        raise _NoAttention

    def _is_spread(self, value: onnx_ir.Value) -> bool:
        """Return whether a value is that of edges and heads with an axis of size 1 behind these."""
        node = value.producer()
        if node is None or node.op_type != "Unsqueeze" or node.domain != "":
            return False
        axes = node.attributes.get("axes")
        constant = None if len(node.inputs) < 2 else self._constant(node.inputs[1])
        known = list(axes.as_ints()) if axes is not None else [] if constant is None else constant.tolist()
        self.nodes.append(node)
        return known in ([-1], [2])

    def _is_factor(self, value: onnx_ir.Value) -> bool:
        array = self._constant(value)
        return array is not None and array.dtype == np.float32 and array.ndim == 3 and array.shape[0] == 1

    def _input_of(self, value: onnx_ir.Value) -> onnx_ir.Value:
        node = value.producer()
        return self._given(node.inputs[0] if node is not None else None)

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
            array = None if second is None else self._constant(second)
            if array is not None and array.size == 1 and float(array.reshape(-1)[0]) >= 0:
                self.nodes.append(node)
                return float(array.reshape(-1)[0]), self._given(first)
        raise _NoAttention

    def _gathered(self, value: onnx_ir.Value | None, ends: Indices) -> onnx_ir.Value:
        node = self._operator(value, "Gather")
        if not np.array_equal(self._index(node), ends):
            raise _NoAttention
        return self._given(node.inputs[0])

    def _scattered(self, node: onnx_ir.Node, ends: Indices, wanted: onnx_ir.Value, reduction: str) -> None:
        updates = self._unsliced(self._given(node.inputs[2]), len(ends))
        same = self._same(self._given(node.inputs[1]), ends) and self._text(node, "reduction") == reduction
        if updates is not wanted or not same:
            raise _NoAttention

    def _operator(self, value: onnx_ir.Value | None, name: str) -> onnx_ir.Node:
        """Return the node that yields a value, behind what leaves it as it is."""
        node = self._unsliced(self._given(value), 1).producer()
        if node is None or (node.domain, node.op_type) != ("", name):
            raise _NoAttention
        axis = node.attributes.get("axis")
        if name in ("Gather", "ScatterElements") and axis is not None and axis.as_int() != 0:
            raise _NoAttention
        self.nodes.append(node)
        return node

    def _unsliced(self, value: onnx_ir.Value, count: int) -> onnx_ir.Value:
        """Return a value before an Identity, or a Slice that leaves nothing out: updates are cut to their index."""
        node = value.producer()
        if node is None or node.op_type not in ("Identity", "Slice"):
            return value
        if node.op_type == "Slice":
            starts, ends = (None if len(node.inputs) < 3 else self._constant(one) for one in node.inputs[1:3])
            whole = starts is not None and ends is not None and not starts.any() and ends[0] >= count
            # the updates have as many edges as the index, and as many features as the start: onnxruntime checks that
            if not whole or len(node.inputs) > 3:
                raise _NoAttention
        self.nodes.append(node)
        return self._unsliced(self._given(node.inputs[0]), count)

    def _index(self, node: onnx_ir.Node) -> Indices:
        array = self._constant(self._given(node.inputs[1]))
        if array is None or array.ndim != 1 or array.dtype.kind != "i":
            raise _NoAttention
        return array.astype(np.int64)

    def _ends(self, value: onnx_ir.Value) -> Indices:
        """Return the node of each row of an index that all features share."""
        node = value.producer()
        if node is not None and node.op_type == "Expand":
            self.nodes.append(node)
            value = self._given(node.inputs[0])
        array = self._constant(value)
        if array is None or array.ndim < 2 or array.dtype.kind != "i" or not array.size:
            raise _NoAttention
        rows = array.reshape(len(array), -1)
        if not (rows == rows[:, :1]).all():
            raise _NoAttention
        return rows[:, 0].astype(np.int64)

    def _same(self, index: onnx_ir.Value, ends: Indices) -> bool:
        return np.array_equal(self._ends(index), ends)

    def _is_zero(self, value: onnx_ir.Value | None) -> bool:
        return value is not None and self._is_filled(value, 0.0)

    def _is_filled(self, value: onnx_ir.Value, number: float) -> bool:
        sparse, array = self.conversion.scope.sparse_matrix_of(value), self._constant(value)
        if sparse is not None:
            return number == 0.0 and not len(sparse.entries().values)
        if array is not None:
            return bool((array == np.float32(number)).all())
        node = value.producer()
        if node is None or node.op_type != "ConstantOfShape":
            return False
        self.nodes.append(node)
        fill = node.attributes.get("value")
        return number == (0.0 if fill is None else float(fill.as_tensor().numpy().reshape(-1)[0]))

    def _constant(self, value: onnx_ir.Value | None) -> NDArray[np.generic] | None:
        return None if value is None else self.conversion.scope.constant_of(value)

    def _text(self, node: onnx_ir.Node, name: str) -> str:
        attribute = node.attributes.get(name)
        return "none" if attribute is None else attribute.as_string()

    def _given(self, value: onnx_ir.Value | None) -> onnx_ir.Value:
        if value is None:
            raise _NoAttention
        return value
