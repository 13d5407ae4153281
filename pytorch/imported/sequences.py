"""Norms of rows, attention, and recurrences, as ONNX and onnxruntime's own operators have them."""

from math import sqrt

import torch
from torch.nn import functional

from .nodes import Node, Tensor, operator


@operator("LayerNormalization")
def _layer_norm(node: Node, x: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    if node.output_count > 1:
        raise ValueError("expected one output of LayerNormalization, got its statistics as well")
    axis = node.get("axis", -1) % x.dim()
    return functional.layer_norm(x, x.shape[axis:], scale, bias, node.get("epsilon", 1e-5))


@operator("SimplifiedLayerNormalization", "RMSNormalization", "com.microsoft.SimplifiedLayerNormalization")
def _rms_norm(node: Node, x: Tensor, scale: Tensor) -> Tensor:
    axis = node.get("axis", -1) % x.dim()
    return functional.rms_norm(x, x.shape[axis:], None, node.get("epsilon", 1e-5)) * scale


@operator("com.microsoft.SkipLayerNormalization")
def _skip_layer_norm(
    node: Node, x: Tensor, skip: Tensor, scale: Tensor, beta: Tensor | None = None, bias: Tensor | None = None
) -> tuple[Tensor | None, ...]:
    total = x + skip if bias is None else x + skip + bias
    found = functional.layer_norm(total, total.shape[-1:], scale, beta, node.get("epsilon", 1e-12))
    return found, None, None, total


@operator("com.microsoft.SkipSimplifiedLayerNormalization")
def _skip_rms_norm(
    node: Node, x: Tensor, skip: Tensor, scale: Tensor, bias: Tensor | None = None
) -> tuple[Tensor | None, ...]:
    total = x + skip if bias is None else x + skip + bias
    found = functional.rms_norm(total, total.shape[-1:], None, node.get("epsilon", 1e-12)) * scale
    return found, None, None, total


def rotated(x: Tensor, places: Tensor, cosines: Tensor, sines: Tensor, interleaved: bool) -> Tensor:
    """Return heads [batch, heads, tokens, features], turned by the angles of places [batch or 1, tokens]."""
    cos, sin = cosines[places][:, None], sines[places][:, None]
    turned = 2 * cos.shape[-1]
    own, rest = x[..., :turned], x[..., turned:]
    first, second = (own[..., ::2], own[..., 1::2]) if interleaved else own.chunk(2, -1)
    parts = (first * cos - second * sin, second * cos + first * sin)
    joined = torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1)
    return torch.cat((joined, rest), -1) if rest.shape[-1] else joined


@operator("com.microsoft.RotaryEmbedding")
def _rotary(node: Node, x: Tensor, places: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    features = node.get("rotary_embedding_dim", 0) and x.shape[-1] // node.get("num_heads", 0)
    features = features or 2 * cosines.shape[-1]
    heads = x if x.dim() == 4 else x.unflatten(-1, (-1, features)).transpose(1, 2)
    if places.numel() == 1:
        places = places.flatten()[0] + torch.arange(heads.shape[2], device=x.device)[None]
    found = rotated(heads, places, cosines, sines, bool(node.get("interleaved", 0)))
    return found if x.dim() == 4 else found.transpose(1, 2).flatten(-2)


@operator("com.microsoft.GroupQueryAttention")
def _grouped_attention(
    node: Node,
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    past_key: Tensor | None,
    past_value: Tensor | None,
    lengths: Tensor,
    total: Tensor,
    cosines: Tensor | None = None,
    sines: Tensor | None = None,
    *others: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the attention of new tokens, and keys and values; a past is as long for each sample."""
    if any(one is not None for one in others):
        raise ValueError("expected nine inputs of GroupQueryAttention, got more")
    own, shared = int(node.attributes["num_heads"]), int(node.attributes["kv_num_heads"])
    if key is None or value is None:
        parts = query.unflatten(-1, (own + 2 * shared, -1)).split([own, shared, shared], -2)
        q, k, v = (one.transpose(1, 2) for one in parts)
    else:
        q = query.unflatten(-1, (own, -1)).transpose(1, 2)
        k, v = (one.unflatten(-1, (shared, -1)).transpose(1, 2) for one in (key, value))
    tokens = q.shape[2]
    past = max(0, int(total) - tokens) if past_key is not None else 0
    places = past + torch.arange(tokens, device=q.device)
    if node.get("do_rotary", 0) and cosines is not None and sines is not None:
        turn = bool(node.get("rotary_interleaved", 0))
        q, k = (rotated(one, places[None], cosines, sines, turn) for one in (q, k))
    if past_key is not None and past_value is not None:
        k, v = torch.cat((past_key[:, :, :past], k), 2), torch.cat((past_value[:, :, :past], v), 2)
    seen = torch.arange(k.shape[2], device=q.device)
    mask = seen <= places[:, None]
    if (window := node.get("local_window_size", -1)) > 0:
        mask = mask & (seen > places[:, None] - window)
    wide = [one.repeat_interleave(own // shared, 1) for one in (k, v)]
    scale = node.get("scale", 0.0) or 1 / sqrt(q.shape[-1])
    scores = _capped(q @ wide[0].transpose(-1, -2) * scale, node.get("softcap", 0.0))
    found = scores.masked_fill(~mask, float("-inf")).softmax(-1) @ wide[1]
    return found.transpose(1, 2).flatten(-2), k, v


def _capped(scores: Tensor, cap: float) -> Tensor:
    return cap * torch.tanh(scores / cap) if cap else scores


@operator("com.microsoft.MultiHeadAttention")
def _many_heads(
    node: Node,
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    added: Tensor | None = None,
    *others: Tensor | None,
) -> Tensor:
    if key is None or value is None or key.dim() != 3 or any(one is not None for one in others):
        raise ValueError("expected query, key and value of three axes without a past")
    if bias is not None:
        width = query.shape[-1]
        query, key, value = query + bias[:width], key + bias[width : 2 * width], value + bias[2 * width :]
    return _attention(node, query, key, value, mask, added)


@operator("com.microsoft.Attention")
def _packed_attention(
    node: Node,
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    past: Tensor | None = None,
    added: Tensor | None = None,
    *others: Tensor | None,
) -> Tensor:
    if past is not None or any(one is not None for one in others) or node.ints("qkv_hidden_sizes"):
        raise ValueError("expected Attention without a past, with parts of equal widths")
    parts = (x @ weight if bias is None else x @ weight + bias).chunk(3, -1)
    return _attention(node, parts[0], parts[1], parts[2], mask, added)


def _attention(
    node: Node, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, added: Tensor | None
) -> Tensor:
    heads = int(node.attributes["num_heads"])
    q, k, v = (one.unflatten(-1, (heads, -1)).transpose(1, 2) for one in (query, key, value))
    scores = q @ k.transpose(-1, -2) * (node.get("scale", 0.0) or 1 / sqrt(q.shape[-1]))
    if added is not None:
        scores = scores + added
    if mask is not None:
        if mask.dim() != 2 or mask.shape != (k.shape[0], k.shape[2]):
            raise ValueError(f"expected a mask [samples, tokens], got one of shape {list(mask.shape)}")
        scores = scores.masked_fill(mask[:, None, None] == 0, node.get("mask_filter_value", -10000.0))
    if node.get("unidirectional", 0):
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        scores = scores.masked_fill(later, float("-inf"))
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(-2)


@operator("com.microsoft.EmbedLayerNormalization")
def _embedded(
    node: Node,
    ids: Tensor,
    kinds: Tensor | None,
    words: Tensor,
    places: Tensor,
    segments: Tensor | None,
    scale: Tensor,
    bias: Tensor,
    mask: Tensor | None = None,
    own_places: Tensor | None = None,
) -> tuple[Tensor | None, ...]:
    count = ids.shape[1]
    where = torch.arange(count, device=ids.device)[None] if own_places is None else own_places.to(torch.int64)
    total = words[ids.to(torch.int64)] + places[where]
    if segments is not None:
        total = total + (segments[0] if kinds is None else segments[kinds.to(torch.int64)])
    lengths = None if mask is None else mask.sum(1).to(torch.int32)
    return functional.layer_norm(total, total.shape[-1:], scale, bias, node.get("epsilon", 1e-12)), lengths, total


@operator("LSTM", "GRU", "RNN")
def _recurrence(
    node: Node,
    x: Tensor,
    weights: Tensor,
    recurrent: Tensor,
    biases: Tensor | None = None,
    lengths: Tensor | None = None,
    first_h: Tensor | None = None,
    first_c: Tensor | None = None,
    peepholes: Tensor | None = None,
) -> tuple[Tensor | None, ...]:
    """Return states [steps, directions, batch, hidden], and the last ones."""
    if peepholes is not None or node.get("clip") or node.get("layout", 0) or node.get("activations"):
        raise ValueError("expected a recurrence with its usual activations, without layout, clip and peepholes")
    steps, batch = x.shape[:2]
    if lengths is not None and bool((lengths != steps).any()):
        raise ValueError(f"sequence_lens: expected {steps} for all samples, got others")
    hidden, ways = int(node.attributes["hidden_size"]), list[list[Tensor]]()
    for number, way in enumerate(range(len(weights))):
        backward = str(node.get("direction", "forward")) == "reverse" or number == 1
        h = x.new_zeros(batch, hidden) if first_h is None else first_h[way]
        c = x.new_zeros(batch, hidden) if first_c is None else first_c[way]
        own, back = x.new_zeros(2, weights.shape[1]) if biases is None else biases[way].unflatten(0, (2, -1))
        inputs, found = x @ weights[way].T + own, list[Tensor]()
        for step in reversed(range(steps)) if backward else range(steps):
            h, c = _cell(node, inputs[step], h, c, recurrent[way], back)
            found.append(h)
        ways.append([torch.stack(found[::-1] if backward else found), h, c])
    states, last, cells = (torch.stack([one[part] for one in ways], 1 if part == 0 else 0) for part in range(3))
    return states, last, cells


def _cell(node: Node, inputs: Tensor, h: Tensor, c: Tensor, recurrent: Tensor, bias: Tensor) -> tuple[Tensor, Tensor]:
    """Return the state behind a step, and the cell's."""
    if node.operator == "RNN":
        return torch.tanh(inputs + h @ recurrent.T + bias), c
    if node.operator == "LSTM":
        inward, out, forget, new = (inputs + h @ recurrent.T + bias).chunk(4, -1)
        c = torch.sigmoid(forget) * c + torch.sigmoid(inward) * torch.tanh(new)
        return torch.sigmoid(out) * torch.tanh(c), c
    update, reset, new = inputs.chunk(3, -1)
    of_update, of_reset, of_new = recurrent.chunk(3, 0)
    bias_update, bias_reset, bias_new = bias.chunk(3, -1)
    update, reset = (
        torch.sigmoid(update + h @ of_update.T + bias_update),
        torch.sigmoid(reset + h @ of_reset.T + bias_reset),
    )
    if node.get("linear_before_reset", 0):
        new = torch.tanh(new + reset * (h @ of_new.T + bias_new))
    else:
        new = torch.tanh(new + (reset * h) @ of_new.T + bias_new)
    return (1 - update) * new + update * h, c
