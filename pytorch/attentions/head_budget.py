"""Numbers of heads that attentions keep within a time: dropped ones against zeros in the layers of those that stay."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

import torch
from torch import Tensor

from ...pruning.budgets import Option, allocated
from ...theory.attention_cost import AttentionSize, attention_work
from ..layers import PrunableWeight
from .heads import Heads, without_heads

SHARES: Final = (0.25, 0.5, 0.75)
"""Shares of an attention's heads whose loss is measured."""

LossWith = Callable[[Mapping[PrunableWeight, Tensor]], float]


class Dropped(NamedTuple):
    """Heads to drop, and the matrix of the layer that reads the others."""

    heads: tuple[int, ...]
    reader: Tensor


def attention_us(heads: Heads, shape: Sequence[int], dense_us: float) -> float:
    """Return the microseconds of scores and weighted sums, from those of the dense reader.

    `shape` [..., tokens, features] is that of the results in a batch.
    """
    tokens, features = shape[-2:]
    samples, outputs = torch.Size(shape[:-2]).numel(), heads.reader.matrix.shape[0]
    size = features // heads.heads_of_queries
    work = attention_work(AttentionSize(samples, heads.heads_of_queries, tokens, tokens, size, size))
    return dense_us * work / (samples * tokens * features * outputs)


def heads_to_drop(
    attentions: Mapping[Heads, Sequence[int]],
    hessians: Mapping[str, Tensor],
    options: Mapping[str, Sequence[Option]],
    loss_with: LossWith,
    budget_us: float,
) -> dict[Heads, Dropped]:
    """Return the heads without which the module loses least within a time for its layers.

    Layers of the heads that stay may have zeros: the same share of those of an attention. Losses are taken to add up,
    times to fall with the number of heads. `options` are those of all layers by name, `hessians` the products of the
    inputs of readers.
    """
    choices = dict[Heads, list[tuple[Option, Dropped]]]()
    own = set[str]()
    for heads, shape in attentions.items():
        names = [one.name for one in heads.weights if one.name in options]
        dense_us = options[heads.reader.name][0].us
        scores_us, steps = attention_us(heads, shape, dense_us), without_heads(heads, hessians[heads.reader.name])
        budget_us += scores_us
        own.update(names)
        found = choices.setdefault(heads, [])
        for gone, matrix in _some(steps):
            share = 1 - (len(gone) - len(heads.dropped)) / (heads.count - len(heads.dropped))
            lost = loss_with(_matrices(heads, gone, matrix)) if share < 1 else 0.0
            for densities in _together([options[name] for name in names]):
                us = scores_us + sum(one.us for one in densities)
                loss = lost + share * sum(one.loss for one in densities)
                found.append((Option(densities[0].density, us * share, loss), Dropped(gone, matrix)))
    others = [those for name, those in options.items() if name not in own]
    chosen = allocated([*([one for one, _ in found] for found in choices.values()), *others], budget_us)
    if chosen is None:
        return {}
    pairs = zip(choices.items(), chosen[: len(choices)], strict=True)
    kept = {heads: next(gone for one, gone in found if one is option) for (heads, found), option in pairs}
    return {heads: gone for heads, gone in kept.items() if len(gone.heads) > len(heads.dropped)}


def _some(steps: Sequence[tuple[tuple[int, ...], Tensor]]) -> list[tuple[tuple[int, ...], Tensor]]:
    count = len(steps)
    return [
        steps[at]
        for at in dict.fromkeys([0, *(min(count - 1, max(1, round(one * count))) for one in SHARES)])
        if at < count
    ]


def _together(options: Sequence[Sequence[Option]]) -> list[list[Option]]:
    """Return options of several layers of about the same density, those of the first one in turn."""
    return [[min(some, key=lambda one: abs(one.density - first.density)) for some in options] for first in options[0]]


def _matrices(heads: Heads, gone: Sequence[int], reader: Tensor) -> dict[PrunableWeight, Tensor]:
    """Return the weights of an attention without some heads."""
    found = {one: one.matrix.clone() for one in heads.weights}
    for part in heads.makers:
        size = part.outputs // heads.count
        for head in gone:
            found[part.weight][part.first + head * size : part.first + (head + 1) * size] = 0
    return found | {heads.reader: reader}
