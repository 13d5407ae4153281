"""Inputs of a decoder's step: token ids, the mask of all places so far, and keys and values of the past.

Their sizes depend on each other: the mask is as long as the past and the new tokens together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

Feeds = Mapping[str, NDArray[Any]]

IDS, MASK, POSITIONS, PAST = "input_ids", "attention_mask", "position_ids", "past"


@dataclass(frozen=True)
class DecoderInputs:
    """The inputs of a decoder as onnxruntime-genai's builder, torch's exporters and optimum name them."""

    ids: ir.Value
    """[texts, tokens]."""
    others: tuple[ir.Value, ...]
    """The mask [texts, past + tokens] and positions [texts, tokens], where the decoder reads them."""
    past: tuple[ir.Value, ...]
    """Keys and values [texts, heads, past, features]."""
    features: int
    """Features of a head."""
    vocabulary: int
    one_text_only: bool
    """Whether several tokens behind a past are taken of a single text alone, as GroupQueryAttention wants it."""

    @staticmethod
    def of(model: ir.Model) -> DecoderInputs | None:
        """Return the inputs of a decoder; None for a model that is none, or has inputs of other kinds."""
        constants = model.graph.initializers
        inputs = {value.name or "": value for value in model.graph.inputs if value.name not in constants}
        past = tuple(one for name, one in inputs.items() if PAST in name and _rank(one) == 4)
        others = tuple(inputs[name] for name in (MASK, POSITIONS) if name in inputs)
        ids = inputs.get(IDS)
        if ids is None or not past or any(_rank(one) != 2 for one in (ids, *others)):
            return None
        if len(inputs) != 1 + len(others) + len(past):
            return None
        features = _features(past[0])
        (logits, *_) = model.graph.outputs
        vocabulary = logits.shape[-1] if logits.shape is not None and len(logits.shape) else None
        if features is None:
            return None
        grouped = any(node.op_type == "GroupQueryAttention" for node in model.graph)
        return DecoderInputs(ids, others, past, features, vocabulary if isinstance(vocabulary, int) else 2, grouped)

    @property
    def axes(self) -> tuple[str, ...]:
        """The names of the axes of tokens and of the past, where they are free."""
        return tuple(filter(None, (_axis(self.ids, 1), _axis(self.past[0], 2))))

    @property
    def computed_axis(self) -> str | None:
        """The name of the mask's axis, whose size follows from the others."""
        mask = next((one for one in self.others if one.name == MASK), None)
        return None if mask is None else _axis(mask, 1)

    def random(self, batch: int, rng: np.random.Generator, dims: Mapping[str, int], otherwise: int) -> Feeds:
        """Return random tokens and a random past; axes have the sizes in `dims` by name, or one for all others.

        Raises:
            ValueError: the size of the mask is not that of the past and the tokens together.
        """
        batch = dims.get(_axis(self.ids, 0) or "", batch)
        past = dims.get(_axis(self.past[0], 2) or "", otherwise)
        alone = self.one_text_only and batch > 1 and past > 0
        length = _fixed(self.ids, 1) or dims.get(_axis(self.ids, 1) or "", 1 if alone else otherwise)
        total = dims.get(self.computed_axis or "", past + length)
        if total != past + length:
            axis = self.computed_axis
            raise ValueError(f"dimension {axis!r}: expected {past + length}, the past and the tokens, got {total}")
        ids = rng.integers(0, self.vocabulary, (_fixed(self.ids, 0) or batch, length))
        return self.feeds(ids, _fixed(self.past[0], 2) or past, rng)

    def feeds(self, ids: NDArray[np.integer], past: int = 0, rng: np.random.Generator | None = None) -> dict[str, Any]:
        """Return the inputs of tokens [texts, tokens] behind a past, random or zero, of so many places."""
        texts, length = ids.shape
        mask = np.ones((texts, past + length))
        positions = np.tile(np.arange(past, past + length, dtype=np.int64), (texts, 1))
        content: dict[str, NDArray[Any]] = {IDS: ids, MASK: mask, POSITIONS: positions}
        feeds: dict[str, Any] = {
            one.name or "": np.ascontiguousarray(content[one.name or ""], _dtype(one))
            for one in (self.ids, *self.others)
        }
        for one in self.past:
            shape = (texts, _fixed(one, 1) or 1, past, self.features)
            values = np.zeros(shape) if rng is None else rng.standard_normal(shape, np.float32)
            feeds[one.name or ""] = values.astype(_dtype(one))
        return feeds


def _rank(value: ir.Value) -> int:
    return -1 if value.shape is None else len(value.shape)


def _fixed(value: ir.Value, axis: int) -> int | None:
    size = None if value.shape is None else value.shape[axis]
    return size if isinstance(size, int) else None


def _axis(value: ir.Value, axis: int) -> str | None:
    size = None if value.shape is None else value.shape[axis]
    return size.value if isinstance(size, ir.SymbolicDim) else None


def _dtype(value: ir.Value) -> np.dtype[Any]:
    return (value.dtype or ir.DataType.FLOAT).numpy()


def _features(past: ir.Value) -> int | None:
    """Return the features of a head; genai's builder gives them a name, and the size to what its attention reads."""
    fixed = _fixed(past, 3)
    if fixed is not None:
        return fixed
    for node, _ in past.uses():
        if node.op_type != "GroupQueryAttention" or node.inputs[0] is None:
            continue
        heads, shared = (node.attributes.get_int(name, 0) for name in ("num_heads", "kv_num_heads"))
        if _rank(node.inputs[0]) < 1:
            return None
        width, packed = _fixed(node.inputs[0], -1), node.inputs[1] is None
        return None if width is None else width // (heads + 2 * shared if packed else heads)
    return None
