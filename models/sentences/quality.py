# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false
# pyright: reportCallIssue=false
"""Nearness of a student's embeddings to the dense ones, and its finds: cosine, neighbours, ranks, recall."""

from __future__ import annotations

from typing import Final

import torch

from .encoder import Encoder, pooled

Texts = tuple[torch.Tensor, torch.Tensor]
"""(ids [texts, tokens], padded with 0; lengths [texts])."""

RETRIEVAL: Final = ("man", "ex", "word")


@torch.no_grad()
def embed(encoder: Encoder, texts: Texts, *, batch: int = 256) -> torch.Tensor:
    """Embeddings [texts, width] in float32."""
    ids, lengths = texts
    order = lengths.argsort()
    found = torch.empty(len(ids), encoder.norm.weight.numel(), device=ids.device)
    for part in order.split(batch):
        longest = int(lengths[part].max())
        some = ids[part, :longest]
        mask = torch.arange(longest, device=ids.device) < lengths[part, None]
        found[part] = pooled(encoder(some, mask)[-1], mask)
    return found


def similarities(embeddings: torch.Tensor) -> torch.Tensor:
    """Cosines of all pairs; a text's with itself is -2, so that it is no neighbour."""
    return (embeddings @ embeddings.T).fill_diagonal_(-2)


def agreement(dense: torch.Tensor, student: torch.Tensor, *, ranks: bool = True) -> dict[str, float]:
    """Cosine (mean, fifth percentile), same nearest neighbour, overlap of the five nearest, Spearman of all pairs."""
    cosine = (dense * student).sum(1)
    ours, theirs = similarities(student), similarities(dense)
    five, their_five = ours.topk(5).indices, theirs.topk(5).indices
    report = {
        "cos": cosine.mean().item(),
        "p5": cosine.quantile(0.05).item(),
        "nn": 100 * (five[:, 0] == their_five[:, 0]).float().mean().item(),
        "top5": (five[:, :, None] == their_five[:, None, :]).any(2).float().mean().item(),
    }
    if ranks:
        pairs = torch.triu_indices(len(dense), len(dense), 1, device=dense.device)
        report["rho"] = _correlation(_ranks(ours[pairs[0], pairs[1]]), _ranks(theirs[pairs[0], pairs[1]]))
    return report


def _ranks(values: torch.Tensor) -> torch.Tensor:
    ranks = torch.empty(len(values), device=values.device, dtype=torch.float64)
    ranks[values.argsort()] = torch.arange(len(values), device=values.device, dtype=torch.float64)
    return ranks


def _correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    a, b = a - a.mean(), b - b.mean()
    return (a @ b / (a.norm() * b.norm())).item()


def recall(queries: torch.Tensor, answers: torch.Tensor) -> tuple[float, float]:
    """Percent of queries whose own answer is the nearest, and among the ten nearest."""
    nearer = answers_nearer(queries, answers)
    return 100 * (nearer < 1).float().mean().item(), 100 * (nearer < 10).float().mean().item()


def answers_nearer(queries: torch.Tensor, answers: torch.Tensor) -> torch.Tensor:
    """For each query, how many answers are nearer than its own."""
    scores = queries @ answers.T
    return (scores > scores.diagonal()[:, None]).sum(1)


def hits(found: dict[str, torch.Tensor], dense: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Whether each sentence keeps its nearest neighbour, and whether each query finds its answer: first, or of ten."""
    nearest, wanted = (similarities(one["sentences"]).argmax(1) for one in (found, dense))
    right = {"nn": nearest == wanted}
    for name in (one for one in RETRIEVAL if f"{one}_query" in found):
        nearer = answers_nearer(found[f"{name}_query"], found[f"{name}_answer"])
        right |= {f"{name}_r1": nearer < 1, f"{name}_r10": nearer < 10}
    return right


def measured(
    encoder: Encoder, tests: dict[str, Texts], dense: dict[str, torch.Tensor] | None
) -> tuple[dict[str, float], dict[str, torch.Tensor]]:
    """(every figure on the tests given, the embeddings); without `dense` the encoder is compared with itself."""
    found = {name: embed(encoder, texts) for name, texts in tests.items()}
    report = agreement((dense or found)["sentences"], found["sentences"])
    for name in (one for one in RETRIEVAL if f"{one}_query" in tests):
        report[f"{name}_r1"], report[f"{name}_r10"] = recall(found[f"{name}_query"], found[f"{name}_answer"])
    return report, found
