"""Quality of a task by name, from outputs: more is better in the first number of each.

```
quality     1 - the share of the variance of the teacher's outputs that is lost
accuracy    the share of samples, or tokens, whose largest output is the label
recall@k    the share of samples with the right other one among the k nearest: of the same label, or without labels the
            one that is nearest for the teacher
perplexity  exp(mean -log p) of each next token of the input, and the likelihood that decides
cer         characters that are wrong, of sequences of classes in which 0 is no character, and the share that is right
```

Outputs are those of the first floating output; without labels those of the teacher are the right ones.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from .losses import variance_lost

Value = NDArray[Any]
Batches = Sequence[Mapping[str, Value]]


@dataclass(frozen=True)
class Answers:
    """Outputs and inputs by name, a mapping a batch; the teacher's outputs; labels of all samples in the same order."""

    outputs: Batches
    inputs: Batches
    teacher: Batches
    labels: Value | None = None

    def pairs(self) -> list[tuple[Value, Value]]:
        """Return the first floating output of each batch with that of the teacher."""
        name = next(name for name, value in self.teacher[0].items() if value.dtype.kind == "f")
        return [(ours[name], theirs[name]) for ours, theirs in zip(self.outputs, self.teacher, strict=True)]

    def labels_of_batches(self) -> list[Value]:
        """Return the labels of each batch."""
        assert self.labels is not None
        counts = [len(next(iter(batch.values()))) for batch in self.teacher]
        return np.split(self.labels, np.cumsum(counts)[:-1])


Metric = Callable[[Answers], dict[str, float]]


def metric_of(name: str) -> Metric:
    """Return the metric of a name such as `accuracy` or `recall@5`.

    Raises:
        ValueError: there is none.
    """
    word, _, number = name.partition("@")
    if word == "recall" and number.isdecimal() and int(number) > 0:
        return lambda answers: _recall(answers, int(number), name)
    if name not in METRICS:
        raise ValueError(f"metric: expected one of {', '.join(METRICS)} or recall@k, got {name!r}")
    return METRICS[name]


def quality(answers: Answers) -> dict[str, float]:
    """Return the share of the variance of the teacher's outputs that is left."""
    return {"quality": 1 - float(variance_lost(answers.outputs, answers.teacher).mean())}


def _accuracy(answers: Answers) -> dict[str, float]:
    pairs = answers.pairs()
    ours = [one.argmax(-1) for one, _ in pairs]
    wanted = [one.argmax(-1) for _, one in pairs] if answers.labels is None else answers.labels_of_batches()
    hits = total = 0
    for found, label in zip(ours, wanted, strict=True):
        if found.shape != label.shape:
            raise ValueError(f"labels: expected shape {found.shape} for a batch, got {label.shape}")
        # labels below zero stand for none
        hits += int((found == label)[label >= 0].sum())
        total += int((label >= 0).sum())
    return {"accuracy": hits / max(1, total)}


def _recall(answers: Answers, count: int, name: str) -> dict[str, float]:
    pairs = [
        [_embeddings(one, batch) for one in pair] for pair, batch in zip(answers.pairs(), answers.inputs, strict=True)
    ]
    ours, theirs = (np.concatenate([pair[side] for pair in pairs]) for side in range(2))
    if len(ours) < 2:
        raise ValueError(f"{name}: expected two samples or more, got {len(ours)}")
    nearest = np.argsort(-_similar(ours), axis=1, kind="stable")[:, :count]
    if answers.labels is None:
        hit = (nearest == _similar(theirs).argmax(1)[:, None]).any(1)
    else:
        hit = (answers.labels[nearest] == answers.labels[:, None]).any(1)
    cosine = (ours * theirs).sum(1).mean()
    return {name: float(hit.mean()), "cosine": float(cosine)}


def _embeddings(values: Value, inputs: Mapping[str, Value]) -> Value:
    """Return the embeddings [samples, features] of a length of one, pooled over tokens where there are such."""
    found, mask = values.astype(np.float64), inputs.get("attention_mask")
    if found.ndim > 2 and mask is not None and mask.shape == found.shape[:2]:
        found = (found * mask[..., None]).sum(1) / np.maximum(1, mask.sum(1, keepdims=True))
    elif found.ndim > 2:
        found = found.reshape(len(found), -1, found.shape[-1]).mean(1)
    return found / np.maximum(1e-30, np.linalg.norm(found, axis=1, keepdims=True))


def _similar(embeddings: Value) -> Value:
    found = embeddings @ embeddings.T
    np.fill_diagonal(found, -np.inf)
    return found


def _perplexity(answers: Answers) -> dict[str, float]:
    total, count = 0.0, 0
    labels = None if answers.labels is None else answers.labels_of_batches()
    for number, ((ours, _), inputs) in enumerate(zip(answers.pairs(), answers.inputs, strict=True)):
        # labels are the ids themselves where there are none: each token is told by those before it
        ids = _ids(inputs) if labels is None else labels[number]
        logits, wanted = ours[:, :-1].astype(np.float64), ids[:, 1:]
        mask = inputs.get("attention_mask", np.ones(ids.shape))[:, 1:].astype(bool) & (wanted >= 0)
        shifted = logits - logits.max(-1, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
        own = np.take_along_axis(logs, np.maximum(0, wanted)[..., None].astype(np.int64), -1)[..., 0]
        total, count = total + float(own[mask].sum()), count + int(mask.sum())
    likelihood = total / max(1, count)
    return {"log-likelihood": likelihood, "perplexity": float(np.exp(-likelihood))}


def _ids(inputs: Mapping[str, Value]) -> Value:
    found = inputs.get("input_ids")
    if found is None:
        raise ValueError(f"perplexity: expected an input input_ids, got {', '.join(inputs)}")
    return found


def _characters_right(answers: Answers) -> dict[str, float]:
    pairs = answers.pairs()
    wanted = (
        [text for _, theirs in pairs for text in read_characters(theirs)]
        if answers.labels is None
        else [[int(one) for one in row if one > 0] for row in answers.labels]
    )
    ours = [text for found, _ in pairs for text in read_characters(found)]
    wrong = sum(edits(text, right) for text, right in zip(ours, wanted, strict=True))
    rate = wrong / max(1, sum(map(len, wanted)))
    return {"characters right": 1 - rate, "cer": rate}


def read_characters(scores: Value) -> list[list[int]]:
    """Return the characters of scores [samples, places, classes]: equal neighbours are one, and 0 is none (CTC)."""
    classes = scores.argmax(-1)
    fresh = np.diff(classes, axis=1, prepend=-1) != 0
    return [[int(one) for one in row[kept & (row > 0)]] for row, kept in zip(classes, fresh, strict=True)]


def edits(found: Sequence[object], wanted: Sequence[object]) -> int:
    """Return how many characters have to be put in, left out or changed (Levenshtein)."""
    row = list(range(len(wanted) + 1))
    for number, one in enumerate(found, 1):
        before, row = row, [number]
        for place, other in enumerate(wanted, 1):
            row.append(min(before[place] + 1, row[-1] + 1, before[place - 1] + (one != other)))
    return row[-1]


METRICS: Final[dict[str, Metric]] = {
    "quality": quality,
    "accuracy": _accuracy,
    "perplexity": _perplexity,
    "cer": _characters_right,
}
