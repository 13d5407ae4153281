"""Solvers against what they stand for: the best mask by enumeration, exact least squares, the published algorithms."""

from itertools import combinations

import numpy as np
import pytest
from numpy.typing import NDArray

from redpebble.pruning.solving.methods import METHODS, Method, Sparsity, method_of
from redpebble.pruning.solving.refit import DAMPING, damped, loss_of, moved_target, refitted
from redpebble.pruning.solving.structures import structure_of

Array = NDArray[np.float32]


def inputs_of(rows: int, width: int, seed: int = 0) -> Array:
    """Return correlated inputs [rows, width], as those of a layer behind others are."""
    rng = np.random.default_rng(seed)
    mixed = rng.standard_normal((rows, width)) @ (np.eye(width) + 0.5 * rng.standard_normal((width, width)))
    return np.maximum(mixed, 0).astype(np.float32)


def layer_of(rows: int, width: int, outputs: int, seed: int = 0) -> tuple[Array, Array, Array]:
    """Return inputs, weight and Hessian."""
    x = inputs_of(rows, width, seed)
    weight = np.random.default_rng(seed + 1).standard_normal((width, outputs)).astype(np.float32)
    return x, weight, mean_product(x, x)


def mean_product(left: NDArray[np.floating], right: NDArray[np.floating]) -> Array:
    return (left.T @ right / len(left)).astype(np.float32)


def exact_refit(weight: Array, hessian: Array, mask: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the least squares of the damped problem, an output at a time."""
    matrix = damped(hessian).astype(np.float64)
    result = np.zeros(weight.shape)
    for n in range(weight.shape[1]):
        kept = np.flatnonzero(mask[:, n])
        result[kept, n] = np.linalg.solve(matrix[np.ix_(kept, kept)], matrix[kept] @ weight[:, n])
    return result


def loss(weight: Array, pruned: NDArray[np.floating], hessian: Array) -> float:
    moved = pruned.astype(np.float64) - weight
    return float((moved * (damped(hessian) @ moved)).sum())


def solved(name: str, weight: Array, hessian: Array, structure: str, density: float) -> Array:
    return METHODS[name].solve(weight, hessian, Sparsity(structure_of(structure), density))


@pytest.mark.parametrize("density", [0.1, 0.3, 0.5])
def test_the_refit_loses_within_one_percent_of_exact_least_squares(density: float) -> None:
    _, weight, hessian = layer_of(300, 48, 40)
    mask = np.random.default_rng(3).random(weight.shape) < density
    found = refitted(weight, hessian, mask, steps=30)
    assert np.all(found[~mask] == 0)
    best = loss(weight, exact_refit(weight, hessian, mask), hessian)
    assert best <= loss(weight, found, hessian) <= 1.01 * best


@pytest.mark.parametrize("seed", range(4))
def test_admm_and_obs_are_close_to_the_best_of_all_masks(seed: int) -> None:
    _, weight, hessian = layer_of(200, 8, 6, seed)
    best = 0.0
    for n in range(weight.shape[1]):
        column, losses = weight[:, n : n + 1], list[float]()
        for kept in combinations(range(8), 4):
            mask = np.isin(np.arange(8), kept)[:, np.newaxis]
            losses.append(loss(column, exact_refit(column, hessian, mask), hessian))
        best += min(losses)
    found = {name: loss(weight, solved(name, weight, hessian, "equal", 0.5), hessian) for name in METHODS}
    assert best <= (1 + 1e-5) * min(found.values())
    assert found["admm"] <= 1.35 * best
    assert found["obs"] <= 2 * best
    assert found["admm"] <= found["magnitude"]


def test_wanda_keeps_the_largest_weights_times_the_norms_of_their_inputs() -> None:
    x, weight, hessian = layer_of(100, 32, 20)
    metric = np.abs(weight) * np.linalg.norm(x, axis=0)[:, np.newaxis]
    # as published: of each output the smallest half of the metric becomes zero
    expected = weight.copy()
    np.put_along_axis(expected, np.argsort(metric, axis=0, kind="stable")[:16], 0, axis=0)
    assert np.array_equal(solved("wanda", weight, hessian, "equal", 0.5), expected)


def published_sparsegpt(weight: Array, x: Array, density: float, prune_n: int, prune_m: int) -> NDArray[np.float64]:
    """Return the weights of the paper's algorithm, each step by an inverse of its own instead of a Cholesky factor."""
    hessian = 2 * x.T.astype(np.float64) @ x / len(x)
    hessian += DAMPING * np.diag(hessian).mean() * np.eye(len(hessian))
    w = weight.T.astype(np.float64)  # [outputs, inputs], as there
    keep = np.ones(w.shape, dtype=bool)
    width = w.shape[1]
    inverses: list[NDArray[np.float64]] = [np.linalg.inv(hessian[i:, i:]) for i in range(width)]
    d = np.array([float(inverse[0, 0]) for inverse in inverses])
    for i in range(width):
        if prune_n == 0 and i % 128 == 0:
            scores = w[:, i : i + 128] ** 2 / d[i : i + 128]
            threshold = np.sort(scores.ravel())[round(scores.size * (1 - density))]
            keep[:, i : i + 128] = scores >= threshold
        if prune_n and i % prune_m == 0:
            scores = w[:, i : i + prune_m] ** 2 / d[i : i + prune_m]
            for row, order in enumerate(np.argsort(scores, axis=1)):
                keep[row, i + order[:prune_n]] = False
        error = np.where(keep[:, i], 0, w[:, i]) / d[i]
        w[:, i:] -= error[:, np.newaxis] * inverses[i][0]
    return (w * keep).T


@pytest.mark.parametrize(("structure", "density", "n", "m"), [("free", 0.4, 0, 0), ("2:4", 0.5, 2, 4)])
def test_sparsegpt_loses_what_the_published_algorithm_loses(structure: str, density: float, n: int, m: int) -> None:
    x, weight, hessian = layer_of(600, 160, 24)
    found = loss_of(weight, solved("sparsegpt", weight, hessian, structure, density), hessian)
    published = published_sparsegpt(weight, x, density, n, m).astype(np.float32)
    assert found == pytest.approx(loss_of(weight, published, hessian), rel=0.01)


@pytest.mark.parametrize("structure", ["free", "equal", "2:4", "rows:4", "blocks:4", "8:2:8", "grouped:2:4:2"])
def test_every_method_takes_every_structure_and_refits_lose_less(structure: str) -> None:
    _, weight, hessian = layer_of(400, 32, 24)
    lost = {name: loss_of(weight, solved(name, weight, hessian, structure, 0.5), hessian) for name in METHODS}
    assert lost["admm"] < lost["sparsegpt"] < lost["wanda"]
    assert lost["obs"] < lost["wanda"]


def test_weights_are_moved_to_make_up_for_other_inputs() -> None:
    x, weight, _ = layer_of(500, 24, 16)
    moved = x + np.float32(0.3) * x[:, ::-1]
    target = moved_target(weight, mean_product(moved, moved), mean_product(moved, x))
    exact = np.linalg.lstsq(moved, x @ weight, rcond=None)[0]
    before, after, best = (np.square(moved @ one - x @ weight).sum() for one in (weight, target, exact))
    assert best <= after <= 1.05 * best + 1e-3 * before


def test_inputs_that_are_always_zero_do_no_harm() -> None:
    x, weight, _ = layer_of(100, 16, 8)
    x[:, 3] = 0
    hessian = mean_product(x, x)
    for name in METHODS:
        found = solved(name, weight, hessian, "equal", 0.5)
        assert np.isfinite(found).all()
        assert loss_of(weight, found, hessian) < 0.9


def test_a_method_of_ones_own_has_a_name() -> None:
    with METHODS.extended({"none": Method(lambda weight, _, __: weight)}):
        assert method_of("none").refits
    with pytest.raises(ValueError, match="method: expected one of admm, sparsegpt, obs, wanda, magnitude, got 'none'"):
        method_of("none")
