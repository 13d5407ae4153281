"""Rounding to few bits, and differences of low rank: what is trained is what is stored."""

import copy
from typing import Any

import numpy as np
import pytest

torch: Any = pytest.importorskip("torch")

from redpebble import pytorch as sparse  # noqa: E402
from redpebble.pruning.solving.few_bits import Grid  # noqa: E402
from redpebble.pytorch.low_rank import LowRank, codes_of  # noqa: E402
from redpebble.pytorch.rounded_weights import rounded  # noqa: E402

Module = Any

nn, functional, parametrize = torch.nn, torch.nn.functional, torch.nn.utils.parametrize

torch.set_num_threads(1)


def network() -> Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(96, 80), nn.ReLU(), nn.Linear(80, 70, bias=False))


@pytest.mark.parametrize(("outputs", "inputs"), [(7, 96), (1, 32), (17, 33), (3, 5)])
def test_codes_are_those_that_prune_writes(outputs: int, inputs: int) -> None:
    weight = np.random.default_rng(inputs).standard_normal((outputs, inputs)).astype(np.float32)
    weight[:, ::3] = 0
    weight[0] = 0
    found = rounded(torch.from_numpy(weight)).numpy()
    np.testing.assert_array_equal(found, Grid().nearest(weight.T)[0].T)
    assert not found[weight == 0].any()


def test_weights_are_trained_through_their_rounding_and_zeros_stay() -> None:
    module = network()
    sparse.prune(module, sparsity=0.5)
    zeros = module[0].weight.detach() == 0
    assert sparse.round_weights(module) == ("0", "2")
    x, teacher = torch.randn(64, 96), network()
    optimizer = torch.optim.Adam(module.parameters(), 1e-3)
    losses = list[float]()
    for _ in range(30):
        loss = functional.mse_loss(module(x), teacher(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    wanted = module(x)
    torch.testing.assert_close(copy.deepcopy(module)(x), wanted)
    parametrize.remove_parametrizations(module[0], "weight")
    assert (module[0].weight[zeros] == 0).all()
    # a group of 32 has 16 values, and the mask lets none move away from zero
    assert max(len(group.unique()) for group in module[0].weight.detach().view(-1, 32)) <= 16
    torch.testing.assert_close(module(x), wanted)


def test_a_difference_of_low_rank_is_all_that_is_trained_and_keeps_zeros() -> None:
    module, teacher = network(), network()
    sparse.prune(module, sparsity=0.5)
    zeros = module[2].weight.detach() == 0
    before = module[2].weight.detach().clone()
    sparse.low_rank(module, 4)
    torch.testing.assert_close(module[2].weight, before)
    sparse.round_weights(module, group=16)
    history = sparse.distil(
        module, teacher, [torch.randn(64, 96)], losses=["outputs"], steps=60, rate=1e-2, every=20, progress=False
    )
    assert history.loss < history.points[0].loss
    assert module[2].weight[zeros].abs().max() == 0
    torch.testing.assert_close(module[2].parametrizations.weight.original, before)
    difference = module[2].parametrizations.weight[0]
    assert isinstance(difference, LowRank)
    codes = codes_of(difference.right.detach(), 1)
    assert codes.codes.abs().max() <= 127
    assert (codes.values - difference.right).abs().max() <= 0.51 * codes.steps.max()


def test_what_cannot_be_rounded_is_said() -> None:
    tied: Module = nn.Sequential(*network(), nn.Linear(80, 70))
    tied[3].weight = tied[2].weight
    with pytest.raises(ValueError, match=r"expected nn\.Linear that is not tied, got Linear"):
        sparse.round_weights(tied)
    with pytest.raises(ValueError, match=r"expected nn\.Linear that is not tied, got Linear"):
        sparse.low_rank(tied, 2)
    with pytest.raises(ValueError, match="expected 2 to 8 and 2 or more, got 1 and 32"):
        sparse.round_weights(network(), bits=1)
    with pytest.raises(ValueError, match="expected 1 or more, got 0"):
        sparse.low_rank(network(), 0)


@pytest.mark.parametrize("temperature", [1.0, 2.5])
@pytest.mark.parametrize("masked", [False, True])
def test_divergence_of_logits_is_that_of_torch(
    temperature: float, masked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redpebble.pytorch.losses.CHUNK", 40)
    torch.manual_seed(1)
    ours, theirs = torch.randn(3, 5, 17, requires_grad=True), torch.randn(3, 5, 17)
    mask = torch.rand(3, 5) < 0.6 if masked else torch.ones(3, 5, dtype=torch.bool)
    batch = {"attention_mask": mask} if masked else None
    loss = sparse.Logits(temperature)(sparse.Answer(ours, batch), sparse.Answer(theirs, batch))
    (gradient,) = torch.autograd.grad(loss, ours)
    softened = [(one / temperature).log_softmax(-1) for one in (ours, theirs)]
    each = functional.kl_div(*softened, log_target=True, reduction="none").sum(-1)
    wanted = temperature**2 * (each * mask).sum() / mask.sum()
    torch.testing.assert_close(loss, wanted)
    torch.testing.assert_close(gradient, torch.autograd.grad(wanted, ours)[0])
