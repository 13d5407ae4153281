# pyright: basic, reportMissingImports=false, reportMissingModuleSource=false
"""The weights that stay: as many in each output (row) of a layer, chosen at once by ADMM or little by little."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .encoder import Encoder


def largest(scores: torch.Tensor, sparsity: float) -> torch.Tensor:
    """The mask [outputs, inputs] that keeps the largest scores of each row, 1.0 or 0.0."""
    kept = max(1, round(scores.shape[1] * (1 - sparsity)))
    best = scores.topk(kept, dim=1).indices
    return torch.zeros_like(scores).scatter_(1, best, 1.0)


def cubic(progress: float, target: float) -> float:
    """Sparsity along the cubic schedule: fast first, slow last; all of it from progress 1 on."""
    return target * (1 - (1 - min(1.0, max(0.0, progress))) ** 3)


def second_moments(encoder: Encoder, batches: list[tuple[torch.Tensor, torch.Tensor | None]]) -> list[torch.Tensor]:
    """X^T X [inputs, inputs] of each linear layer's inputs over the tokens of batches, float32."""
    sums = [
        torch.zeros(linear.in_features, linear.in_features, device=linear.weight.device) for linear in encoder.linears()
    ]
    mask: torch.Tensor | None = None

    def hook(total: torch.Tensor) -> Callable[[object, tuple[torch.Tensor, ...]], None]:
        def add(_module: object, inputs: tuple[torch.Tensor, ...]) -> None:
            x = inputs[0].float()
            x = x.flatten(0, 1) if mask is None else x[mask]
            total.addmm_(x.T, x)

        return add

    handles = [linear.register_forward_pre_hook(hook(s)) for linear, s in zip(encoder.linears(), sums, strict=True)]
    with torch.no_grad():
        for ids, mask in batches:
            encoder(ids, mask)
    for handle in handles:
        handle.remove()
    return sums


def admm(
    weight: torch.Tensor, moments: torch.Tensor, sparsity: float, *, search: int = 20, refit: int = 30
) -> tuple[torch.Tensor, torch.Tensor]:
    """(weights, mask) that keep the layer's outputs: ADMM on |(W - W0) X|^2, a mask that gets sparser, a refit.

    Inputs are scaled to one norm first, so that rho = 1 suits every layer (Boza: Fast and Effective Weight Update).
    """
    norm = moments.diagonal().clamp_min(1e-12).sqrt()
    scaled = moments / norm[:, None] / norm
    dense = weight * norm
    unit = torch.eye(len(norm), device=weight.device)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(scaled + 1.1 * unit))
    aim = dense @ (scaled + 0.1 * unit)
    dual = torch.zeros_like(dense)
    mask = torch.ones_like(dense)
    kept = dense
    for i in range(search + refit):
        values = (aim + kept - dual) @ inverse
        if i < search:
            mask = largest((values + dual).abs(), cubic((i + 1) / (0.75 * search), sparsity))
        kept = mask * (values + dual)
        dual = dual + values - kept
    return kept / norm, mask
