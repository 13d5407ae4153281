"""Attention as exporters write it, for random graphs: projections, heads, scores, masks, values."""

import numpy as np

from tests.end_to_end.graph_draft import Batch, Dim, GraphDraft, Value

HIDING = (float("-inf"), float(np.finfo(np.float32).min))


def attention(draft: GraphDraft, x: Value) -> Value | None:
    """Rows [batch, length, features] that attend to each other, and to what is given of a past, in a few heads.

    Samples or lengths may be free; several heads of queries may share keys and values, which are repeated for them.
    """
    if len(x.shape) != 3 or not isinstance(width := x.shape[2], int):
        return None
    samples, length = x.shape[:2]
    sharing = draft.choose((1, 1, 2, 3)) if draft.opset >= 13 else 1
    key_heads, size = draft.choose((1, 2)), draft.choose((4, 1, 9))
    heads, root = key_heads * sharing, draft.constant(np.array(size**0.5, dtype=np.float32))
    q = _heads(draft, x, (width, heads, size))
    k, v = (_heads(draft, x, (width, key_heads, size)) for _ in range(2))
    past = draft.choose((0, 0, 1, 5, 18)) if isinstance(length, int) and samples in (Batch(1), 1) else 0
    if past and isinstance(length, int):
        k, v = (_behind_past(draft, value, past, length) for value in (k, v))
    keys, values = (_repeated(draft, value, sharing) for value in (k, v))
    # without a past, they are as many as the rows
    count = keys.shape[2]
    swapped = draft.part("Transpose", [keys], (samples, heads, size, count), perm=[0, 1, 3, 2])
    shape = (samples, heads, length, count)
    scores = draft.part("MatMul", [q, swapped], shape)
    if draft.flip():
        scores = draft.part("Div", [scores, root], shape)
    scores = _masked(draft, scores)
    weights = draft.part("Softmax", [scores], shape, axis=3)
    result = draft.part("MatMul", [weights, values], (samples, heads, length, size))
    rows = draft.part("Transpose", [result], (samples, length, heads, size), perm=[0, 2, 1, 3])
    return draft.node("Reshape", [rows, draft.integers(0, 0, heads * size)], (samples, length, heads * size))


def _heads(draft: GraphDraft, x: Value, sizes: tuple[int, int, int]) -> Value:
    """A projection [batch, heads, length, size], whose heads are apart."""
    width, heads, size = sizes
    samples, length = x.shape[:2]
    weight = draft.constant(draft.weight(width, heads * size, width))
    rows = draft.part("MatMul", [x, weight], (samples, length, heads * size))
    split = draft.part("Reshape", [rows, draft.integers(0, 0, heads, size)], (samples, length, heads, size))
    return draft.part("Transpose", [split], (samples, heads, length, size), perm=[0, 2, 1, 3])


def _behind_past(draft: GraphDraft, own: Value, past: int, length: int) -> Value:
    """Keys or values behind those of a past, which are an input; sometimes an output, too, for the next step."""
    samples, heads, _, size = own.shape
    before = draft.given((samples, heads, past, size))
    shape = (samples, heads, past + length, size)
    joined = draft.part("Concat", [before, own], shape, axis=2)
    if draft.flip():
        draft.kept.append(joined)
    return joined


def _repeated(draft: GraphDraft, value: Value, sharing: int) -> Value:
    """Keys or values, each head of them as often as heads of queries share it."""
    if sharing == 1:
        return value
    samples, heads, count, size = value.shape
    one = draft.part("Unsqueeze", [value, draft.integers(2)], (samples, heads, 1, count, size))
    copies = draft.part("Expand", [one, draft.integers(1, 1, sharing, 1, 1)], (samples, heads, sharing, count, size))
    assert isinstance(heads, int)
    shape: tuple[Dim, ...] = (samples, heads * sharing, count, size)
    target = draft.integers(*(dim if isinstance(dim, int) else -1 for dim in shape))
    return draft.part("Reshape", [copies, target], shape)


def _masked(draft: GraphDraft, scores: Value) -> Value:
    """Scores with a mask: none, a constant or given one that is added, one that hides later keys, or several."""
    queries, keys = scores.shape[2:]
    if not isinstance(queries, int) or not isinstance(keys, int):
        return _added(draft, scores, draft.numbers(*draft.choose(((1,), (1, 1, 1))))) if draft.flip() else scores
    if draft.opset >= 9 and draft.flip():
        seen = draft.constant(np.tri(queries, keys, keys - queries, dtype=np.bool_))
        hiding = draft.constant(np.array(draft.choose(HIDING), dtype=np.float32))
        scores = draft.part("Where", [seen, scores, hiding], scores.shape)
    if draft.flip():
        scores = _added(draft, scores, draft.given(draft.choose(((queries, keys), (1, 1, 1, keys)))))
    if draft.flip():
        sizes = ((keys,), (1, 1, keys), (queries, keys), (queries, 1), (1,), (1, 1, 1))
        scores = _added(draft, scores, draft.numbers(*draft.choose(sizes)))
    return scores


def _added(draft: GraphDraft, scores: Value, mask: Value) -> Value:
    return draft.part("Add", [scores, mask] if draft.flip() else [mask, scores], scores.shape)
