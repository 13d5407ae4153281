"""Inputs that a model is pruned for: from an .npz, or from any iterable, as batches that fit the model."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

import numpy as np
import onnx
from numpy.typing import NDArray

Value = NDArray[Any]
Feeds = Mapping[str, Value]

BATCH: Final = 64
"""Samples that run at once, at most."""

BATCH_TOKENS: Final = 1024
"""Tokens that run at once, at most, if it is more than one text: hidden layers have thousands of values for each."""

MASK: Final = "attention_mask"
"""The input [samples, tokens] that is 0 where a text is padded, as transformers call it."""

BATCH_VALUES: Final = 1 << 20
"""Values of an input that run at once, at most, if it is more than one sample: images are large."""


def batches_of(graph: onnx.GraphProto, feeds: Feeds | Iterable[Feeds]) -> list[Feeds]:
    """Return the batches of data for the inputs of a graph.

    One mapping, as of an .npz, has all samples along the first axes, and is cut; of an iterable each is a batch. Texts
    that an `attention_mask` pads are cut to their lengths: layers would learn the padding, which is often most of it.

    Raises:
        ValueError: there are none, or names, shapes, types or values do not fit.
    """
    constants = {one.name for one in graph.initializer}
    inputs = [value for value in graph.input if value.name not in constants]
    match feeds:
        case Mapping():
            whole = cast("Feeds", feeds)
            check_feeds(inputs, whole)
            batches = _by_lengths(inputs, whole) or _cut(inputs, whole)
        case _:
            batches = list(feeds)
            for batch in batches:
                check_feeds(inputs, batch)
    # the past of a text that begins has no places
    if not batches or not all(batch and all(map(_has_samples, batch.values())) for batch in batches):
        raise ValueError("expected some hundred samples in the data, got none")
    return batches


def _has_samples(value: Value) -> bool:
    return bool(value.size) or (value.ndim > 2 and len(value) > 0)


def _by_lengths(inputs: Sequence[onnx.ValueInfoProto], feeds: Feeds) -> list[Feeds] | None:
    """Return texts without their padding, those of one length together; None where nothing says what is padding."""
    mask = feeds.get(MASK)
    shapes = {value.shape for value in feeds.values()}
    free = all(not dim.HasField("dim_value") for value in inputs for dim in value.type.tensor_type.shape.dim)
    if mask is None or mask.ndim != 2 or len(shapes) > 1 or not free or not mask.size:
        return None
    is_token = np.asarray(mask, np.bool_)
    lengths = is_token.sum(axis=1)
    if not lengths.all() or not np.array_equal(np.sort(is_token, axis=1)[:, ::-1], is_token):
        return None
    batches = list[Feeds]()
    for length in np.unique(lengths):
        own, step = np.flatnonzero(lengths == length), _texts_at_once(int(length))
        batches += [
            {name: value[own[start : start + step], :length] for name, value in feeds.items()}
            for start in range(0, len(own), step)
        ]
    # some first ones stand for all where times and sensitivities are measured
    return sorted(batches, key=lambda batch: -len(batch[MASK]))


def _texts_at_once(length: int) -> int:
    return max(1, min(BATCH, BATCH_TOKENS // max(1, length)))


def _cut(inputs: Sequence[onnx.ValueInfoProto], feeds: Feeds) -> list[Feeds]:
    firsts = [value.type.tensor_type.shape.dim[:1] for value in inputs]
    fixed = {first[0].dim_value for first in firsts if first and first[0].HasField("dim_value")}
    counts = {len(value) if value.ndim else 0 for value in feeds.values()}
    if len(counts) > 1 or len(fixed) > 1:
        return [feeds]
    (count,) = counts
    widest = max((value.size for value in feeds.values()), default=0) // max(1, count)
    is_text = all(value.ndim == 2 and value.dtype.kind in "iu" for value in feeds.values() if value.size)
    most = _texts_at_once(widest) if is_text else min(BATCH, BATCH_VALUES // max(1, widest))
    size = fixed.pop() if fixed else max(1, most)
    whole = count - count % size if fixed else count
    starts = range(0, max(whole, 1), max(size, 1))
    return [{name: value[start : start + size] for name, value in feeds.items()} for start in starts]


def check_feeds(inputs: Sequence[onnx.ValueInfoProto], feeds: Feeds) -> None:
    """Check that there is an array of the right type and shape for each input, with finite values.

    Raises:
        ValueError: there is not.
    """
    names = [value.name for value in inputs]
    if sorted(feeds) != sorted(names):
        held = ", ".join(sorted(feeds)) or "none"
        raise ValueError(f"expected arrays for {', '.join(names)} in the data, got {held}")
    for described in inputs:
        value, kind = feeds[described.name], described.type.tensor_type
        expected = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        if value.dtype != expected:
            raise ValueError(f"input {described.name!r} of the data: expected {expected}, got {value.dtype}")
        dims = [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
        # samples along the first axis may be any number
        fits = len(dims) == value.ndim and all(
            dim in (None, size) for dim, size in zip(dims[1:], value.shape[1:], strict=True)
        )
        if kind.HasField("shape") and not fits:
            accepted = ", ".join("any" if dim is None else str(dim) for dim in dims)
            raise ValueError(f"input {described.name!r} of the data: expected shape ({accepted}), got {value.shape}")
        if np.issubdtype(value.dtype, np.floating) and not np.isfinite(value).all():
            raise ValueError(f"input {described.name!r} of the data: expected finite values, got NaN or infinity")
