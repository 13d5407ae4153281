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
h is made of, where that takes less time. Edges that a call brings are sorted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import onnx_ir
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from ....dialect.attributes.activations import ActivationAttr
from ....dialect.ops.graphs import SUMS_SINCE, AttendEdgesOp, EdgeSoftmax
from ....dialect.ops.layers import LinearOp
from ....dialect.symbolic_sizes import Size, SymbolicShape
from ...folding.known_sizes import is_known
from ..conversion import Conversion
from ..patterns import ANY, Choice, Fill, Filled, Hole, Match, Mismatch, NodePattern, Number, Pattern, op
from .edges import Edges, Listed, Spread, Uncut, Weight, is_lowest, is_zero

LAST: Final = [(-1,), (2,)]
"""Axes behind heads."""


@dataclass(frozen=True)
class _Factor(Pattern):
    """Factors [1, H, C] of a view of nodes."""

    name: str

    def meet(self, value: onnx_ir.Value | None, match: Match) -> None:
        array = match.constant(value)
        if array is None or array.dtype != np.float32 or array.ndim != 3 or array.shape[0] != 1:
            raise match.mismatch("factors [1, heads, features]", value)
        match.bind(self.name, array[0])


@dataclass(frozen=True)
class _LowestWhereRead(Pattern):
    """A constant that is the lowest float where an edge ends."""

    def meet(self, value: onnx_ir.Value | None, match: Match) -> None:
        array, targets = match.constant(value), match.holes["targets"]
        # nodes where no edge ends are not read
        read = array[targets] if array is not None and isinstance(targets, np.ndarray) else array
        if read is None or read.ndim != 2 or not is_lowest(read.max(initial=-np.inf)):
            raise match.mismatch("the lowest float", value)


def _at(values: Pattern, end: str) -> NodePattern:
    return op.Gather(values, Listed(end), axis=0)


def _scattered(start: Pattern, values: Pattern, reduction: str) -> NodePattern:
    return op.ScatterElements(start, Spread("targets", 0), Uncut(values), axis=0, reduction=reduction)


def _scores(end: str) -> NodePattern:
    """Return the pattern of scores of nodes at one end of edges: computed, or where they lie side by side."""
    computed = op.ReduceSum(op.Mul(Hole("view"), _Factor(f"factors of {end}")), axes=LAST, keepdims=0)
    bounds = Number(f"first of {end}"), Number(f"behind {end}")
    axis, step = Number("", "axis 1", lambda axis: axis in (1, -1)), Number("", "step 1", lambda step: step == 1, 1)
    return _at(op.Slice(Hole("scores"), *bounds, axis, step) | computed, end)


ZEROS: Final = Filled("", "zeros", is_zero)
LOGITS: Final = Hole(
    "logits", op.LeakyRelu.optional(op.Add(_scores("sources"), _scores("targets")), alpha=Hole("slope"))
)
# zeros, or the least score of all where that is larger: no score is less
LEAST: Final = op.Expand(op.Add(op.ReduceMin(LOGITS, ANY), ANY), ANY)
LARGEST: Final = _scattered(
    Choice(
        {
            True: ZEROS | _scattered(ZEROS, LEAST, "max"),
            False: Filled("", "the lowest float", is_lowest)
            | _LowestWhereRead()
            | _scattered(ZEROS, Filled("", "the lowest float", is_lowest), "min"),
        },
        "from zero",
    ),
    LOGITS,
    "max",
)
POWERS: Final = Hole("powers", op.Mul.optional(op.Exp(op.Sub(LOGITS, _at(LARGEST, "targets"))), Weight("weights")))
TOTAL: Final = _scattered(Filled("none", "zeros, or a little more", lambda fill: fill >= 0), POWERS, "add")
EPSILON: Final = Number("epsilon", "a number from 0 on", lambda number: number >= 0)
SHARES: Final = op.Div(POWERS, _at(op.Add.optional(TOTAL, EPSILON), "targets"))
VIEW: Final = Hole("view", op.Reshape(Hole("x"), ANY))
ATTENTION: Final = _scattered(
    Filled("start", "zeros", is_zero), op.Mul(op.Unsqueeze(SHARES, axes=LAST), _at(VIEW, "sources")), "add"
)


def convert_edge_attention(conversion: Conversion) -> Sequence[SSAValue] | None:
    """Return what the last ScatterElements of an attention over edges yields; None where it is none.

    Raises:
        NotCovered: it is one, of edges that are outside the nodes.
    """
    match = Match(conversion)
    try:
        match.root(ATTENTION)
        return [_attended(match)]
    except Mismatch:
        return None


def _attended(match: Match) -> SSAValue:
    conversion, sizes = match.conversion, match.get("start", Fill).sizes
    x = conversion.tensor_of(match.value("x"))
    count = conversion.sizes(x)[0]
    if sizes is None or len(sizes) != 3 or sizes[0] != count or not is_known(sizes[1]) or not is_known(sizes[2]):
        raise Mismatch("zeros for each node, head and feature", f"{sizes}")
    heads, size = (int(one.coefficient) for one in sizes[1:])
    if conversion.sizes(x) != (count, Size.known(heads * size)):
        raise Mismatch(f"{heads * size} features", f"{conversion.sizes(x)}")
    scores, slope = _scores_of_nodes(match, x, sizes), match.holes.get("slope")
    activation = ActivationAttr("leaky_relu", (slope,)) if isinstance(slope, float) else None
    epsilon = match.get("none", Fill).number + match.number("epsilon", 0.0)
    softmax = EdgeSoftmax(heads, activation, epsilon, match.get("from zero", bool))
    edges = Edges.of(match)
    if edges.of_call:
        if not conversion.scope.takes_edges(SUMS_SINCE):
            raise Mismatch("edges that are constants", "those of a call")
        graph = edges.sorted(conversion, x)
    elif not is_known(count):
        raise Mismatch("a known number of nodes", f"{count}")
    else:
        graph = edges.constant(conversion, (int(count.coefficient), int(count.coefficient)))
    result = conversion.emit(AttendEdgesOp(x, scores, graph, softmax)).result
    conversion.replaces(match.nodes)
    return conversion.reshape(result, sizes)


def _scores_of_nodes(match: Match, x: SSAValue, sizes: SymbolicShape) -> SSAValue:
    """Return the scores of nodes as sources and as targets, [N, 2 H]: h a, or where they lie side by side."""
    conversion, (heads, size) = match.conversion, (int(one.coefficient) for one in sizes[1:])
    if "scores" in match.holes:
        scores = conversion.tensor_of(match.value("scores"))
        bounds = [
            match.holes.get(name) for end in ("sources", "targets") for name in (f"first of {end}", f"behind {end}")
        ]
        if bounds != [0, heads, heads, 2 * heads] or conversion.sizes(scores) != (sizes[0], Size.known(2 * heads)):
            raise Mismatch("scores of sources beside those of targets", f"those from and to {bounds}")
        return scores
    factors = np.zeros((heads, size, 2 * heads), np.float32)
    for offset, end in enumerate(("sources", "targets")):
        given: NDArray[np.float32] = match.get(f"factors of {end}", np.ndarray)
        if given.shape != (heads, size):
            raise Mismatch(f"factors {[heads, size]}", f"{list(given.shape)}")
        for head in range(heads):
            factors[head, :, offset * heads + head] = given[head]
    weight = conversion.emit_constant(factors.reshape(heads * size, 2 * heads), "")
    return conversion.emit(LinearOp(x, weight)).result
