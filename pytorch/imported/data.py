"""Samples of an ONNX model as batches: shuffled, of texts of about one length, inputs that can be told filled in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import onnx_ir
import torch
from numpy.typing import NDArray
from torch import Tensor

from ...pruning.runs.calibration_data import MASK, check_feeds
from ...pruning.runs.folds import HELD_OUT
from ...verification.decoder_inputs import DecoderInputs

Array = NDArray[Any]

LEAST_HELD_OUT: Final = 4
"""Samples below which none are held out."""


@dataclass(frozen=True)
class Samples:
    """Arrays by input, samples along their first axes, and labels of as many."""

    arrays: Mapping[str, Array]
    labels: Array | None
    batch: int
    is_fixed: bool
    """Whether the model takes batches of this size alone."""
    free: frozenset[str]
    """Inputs whose second axis may have any length."""

    @staticmethod
    def of(model: onnx_ir.Model, feeds: Mapping[str, Array], labels: Array | None, batch: int) -> "Samples":
        """Return the samples for a model; masks, positions, kinds of tokens and an empty past need not be among them.

        Raises:
            ValueError: names, types, shapes or values do not fit.
        """
        held = {*model.graph.initializers}
        inputs = [onnx_ir.to_proto(one) for one in model.graph.inputs if one.name not in held]
        decoder = DecoderInputs.of(model)
        arrays = _completed(inputs, feeds, 0 if decoder is None else decoder.features)
        check_feeds(inputs, arrays)
        every: list[Array] = [*arrays.values()] if labels is None else [*arrays.values(), labels]
        counts = {int(one.shape[0]) if one.ndim else 0 for one in every}
        if len(counts) != 1 or not (count := counts.pop()):
            raise ValueError("data: expected one or more samples along the first axes of all arrays, got other numbers")
        dims = {one.name: one.type.tensor_type.shape.dim for one in inputs}
        firsts = {dim[0].dim_value for dim in dims.values() if dim and dim[0].HasField("dim_value")}
        fixed = firsts.pop() if firsts else None
        if fixed is not None and count < fixed:
            raise ValueError(f"data: expected {fixed} samples or more, those of a call, got {count}")
        free = {name for name, dim in dims.items() if len(dim) > 1 and not dim[1].HasField("dim_value")}
        return Samples(arrays, labels, fixed or batch, fixed is not None, frozenset(free))

    def __len__(self) -> int:
        return len(next(iter(self.arrays.values())))

    def chosen(self, which: NDArray[np.int64]) -> "Samples":
        """Return some samples."""
        arrays = {name: value[which] for name, value in self.arrays.items()}
        labels = None if self.labels is None else self.labels[which]
        return Samples(arrays, labels, self.batch, self.is_fixed, self.free)

    def split(self, seed: int) -> tuple["Samples", "Samples"]:
        """Return samples to train on, and an eighth to measure on; all for both where that is too few."""
        count = len(self)
        held = count // HELD_OUT // (self.batch if self.is_fixed else 1) * (self.batch if self.is_fixed else 1)
        if held < LEAST_HELD_OUT:
            return self, self
        order = np.random.default_rng(seed).permutation(count)
        return self.chosen(np.sort(order[held:])), self.chosen(np.sort(order[:held]))

    def orders(self, rng: np.random.Generator | None) -> list[NDArray[np.int64]]:
        """Return the samples of each batch; those of texts are about as long. Without a generator they are in order."""
        count, lengths = len(self), self._lengths()
        order = np.arange(count) if rng is None else rng.permutation(count)
        if rng is not None and lengths is not None:
            order = order[np.argsort(lengths[order], kind="stable")]
        whole = count - count % self.batch if self.is_fixed else count
        parts = [order[start : min(start + self.batch, whole)] for start in range(0, whole, self.batch)]
        # the last one may be so small that its gradient says little
        if rng is not None and len(parts) > 1 and 2 * len(parts[-1]) < self.batch:
            parts.pop()
        return parts if rng is None else [parts[index] for index in rng.permutation(len(parts))]

    def feeds(self, which: NDArray[np.int64]) -> dict[str, Array]:
        """Return the inputs of a batch, without the padding that all its texts have."""
        found, lengths = {name: value[which] for name, value in self.arrays.items()}, self._lengths()
        if lengths is None:
            return found
        longest, width = int(lengths[which].max(initial=1)), self.arrays[MASK].shape[1]
        return {
            name: value[:, : max(1, longest)] if name in self.free and value.shape[1:2] == (width,) else value
            for name, value in found.items()
        }

    def batches(self, rng: np.random.Generator) -> Iterator[dict[str, Tensor]]:
        """Yield the batches of an epoch, labels among them where there are any."""
        for which in self.orders(rng):
            batch = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in self.feeds(which).items()}
            yield batch if self.labels is None else batch | {LABELS: torch.from_numpy(self.labels[which])}

    def _lengths(self) -> NDArray[np.int64] | None:
        """Return the lengths of texts that are padded behind; None where there is no mask that says so."""
        mask = self.arrays.get(MASK)
        if mask is None or mask.ndim != 2 or MASK not in self.free:
            return None
        is_token = mask.astype(np.bool_)
        return is_token.shape[1] - is_token[:, ::-1].argmax(1) if is_token.any(1).all() else None


LABELS: Final = "labels"
"""The key of labels in a batch, where losses look for them."""


def _completed(inputs: list[Any], feeds: Mapping[str, Array], features: int) -> dict[str, Array]:
    """Return feeds with the inputs that those that are there tell: in the order of the model's inputs.

    A past of a file that gives the size of its heads but a name has so many `features`.
    """
    found, names = dict(feeds), [one.name for one in inputs]
    ids = next((feeds[name] for name in names if name in feeds and feeds[name].ndim == 2), None)
    if ids is not None:
        mask = found.setdefault(MASK, np.ones(ids.shape, np.int64)) if MASK in names else np.ones(ids.shape, np.int64)
        told = {
            "position_ids": lambda: np.maximum(0, np.cumsum(mask, 1) - 1).astype(np.int64),
            "token_type_ids": lambda: np.zeros(ids.shape, np.int64),
        }
        found |= {name: make() for name, make in told.items() if name in names and name not in found}
        for one in inputs:
            dims = one.type.tensor_type.shape.dim
            if one.name not in found and one.name.startswith("past") and len(dims) == 4:
                _, heads, past, size = (dim.dim_value if dim.HasField("dim_value") else 0 for dim in dims)
                # a past of no tokens
                found[one.name] = np.zeros((len(ids), heads, past, size or features), np.float32)
    return {name: found[name] for name in names if name in found} | {
        name: value for name, value in found.items() if name not in names
    }
