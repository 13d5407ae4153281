"""Attention as exporters write it, for random graphs: projections, heads, scores, masks, values."""

import numpy as np

from tests.end_to_end.graph_draft import Dim, GraphDraft, Value

HIDING = (float("-inf"), float(np.finfo(np.float32).min))


def attention(draft: GraphDraft, x: Value) -> Value | None:
    """Rows [batch, length, features] that attend to each other, in one or two heads; one of the former may be free."""
    if len(x.shape) != 3 or not isinstance(width := x.shape[2], int):
        return None
    length = x.shape[1]
    heads, size = draft.choose((1, 2)), draft.choose((4, 1, 9))
    samples: Dim = x.shape[0]
    q, k, v = (_heads(draft, x, (width, heads, size), order) for order in ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)))
    shape = (samples, heads, length, length)
    scores = draft.part("MatMul", [q, k], shape)
    if draft.flip():
        root = draft.constant(np.array(size**0.5, dtype=np.float32))
        scores = draft.part("Div", [scores, root], shape)
    scores = _masked(draft, scores, length)
    weights = draft.part("Softmax", [scores], shape, axis=3)
    result = draft.part("MatMul", [weights, v], (samples, heads, length, size))
    rows = draft.part("Transpose", [result], (samples, length, heads, size), perm=[0, 2, 1, 3])
    return draft.node("Reshape", [rows, draft.integers(0, 0, heads * size)], (samples, length, heads * size))


def _heads(draft: GraphDraft, x: Value, sizes: tuple[int, int, int], order: tuple[int, ...]) -> Value:
    """A projection whose heads are apart."""
    width, heads, size = sizes
    samples, length = x.shape[:2]
    weight = draft.constant(draft.weight(width, heads * size, width))
    rows = draft.part("MatMul", [x, weight], (samples, length, heads * size))
    apart = (samples, length, heads, size)
    split = draft.part("Reshape", [rows, draft.integers(0, 0, heads, size)], apart)
    return draft.part("Transpose", [split], [apart[axis] for axis in order], perm=list(order))


def _masked(draft: GraphDraft, scores: Value, length: Dim) -> Value:
    """Scores with a constant mask: none, one that is added, one that hides later keys, or both."""
    if isinstance(length, int) and draft.opset >= 9 and draft.flip():
        seen = draft.constant(np.tri(length, dtype=np.bool_))
        hiding = draft.constant(np.array(draft.choose(HIDING), dtype=np.float32))
        scores = draft.part("Where", [seen, scores, hiding], scores.shape)
    if draft.flip():
        one = ((1,), (1, 1, 1))
        known = ((length,), (1, 1, length), (length, length), (length, 1)) if isinstance(length, int) else ()
        mask = draft.numbers(*draft.choose((*known, *one)))
        scores = draft.part("Add", [scores, mask] if draft.flip() else [mask, scores], scores.shape)
    return scores
