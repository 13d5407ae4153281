from collections.abc import Callable
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from torch.nn.utils import prune as torch_prune  # noqa: E402

from redpebble import pytorch  # noqa: E402
from redpebble.pytorch.torch_zeros import adopt_zeros  # noqa: E402
from tests.pytorch.networks import Module, images  # noqa: E402


def masked(amount: float = 0.75) -> Module:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.ReLU(), torch.nn.Linear(96, 64))
    for one in (module[0], module[2]):
        torch_prune.l1_unstructured(one, "weight", amount)
    return module


@pytest.mark.parametrize("make", [masked, images])
def test_a_module_answers_as_before_with_plain_weights(make: Callable[[], Module]) -> None:
    module = make()
    if make is images:
        torch_prune.random_unstructured(module[0], "weight", 0.5)
    x = torch.randn(3, 64) if make is masked else torch.randn(2, 8, 12, 12)
    expected = module(x)
    adopt_zeros(module)
    torch.testing.assert_close(module(x), expected, rtol=0, atol=0)
    assert "0.weight" in module.state_dict()
    assert not [name for name in module.state_dict() if name.endswith(("_orig", "_mask"))]


def test_masks_of_torch_hold_under_an_optimizer_from_before() -> None:
    module = masked()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    zeros = module[0].weight_mask == 0
    report = pytorch.keep_zeros(module)
    assert [one.density for one in report.layers] == [0.25, 0.25]
    for _ in range(2):
        module(torch.randn(8, 64)).square().sum().backward()
        optimizer.step()
    assert bool((module[0].weight[zeros] == 0).all())
    assert bool((module[0].weight[~zeros] != 0).any())
    assert any(one is module[0].weight for group in optimizer.param_groups for one in group["params"])


def test_a_pruned_module_of_torch_is_pruned_further() -> None:
    module = masked()
    report = pytorch.prune(module, sparsity=0.9)
    assert [one.name for one in report.layers] == ["0", "2"]
    assert int((module[0].weight != 0).sum()) <= 0.11 * 64 * 96


@pytest.mark.parametrize("layout", ["to_sparse", "to_sparse_csr", "to_sparse_csc"])
def test_weights_in_a_sparse_layout_are_masked(layout: str) -> None:
    module = masked()
    torch_prune.remove(module[0], "weight")
    dense = module[0].weight.detach().clone()
    module[0].weight = torch.nn.Parameter(getattr(dense, layout)(), requires_grad=False)
    pytorch.keep_zeros(module)
    torch.testing.assert_close(module[0].weight.detach(), dense)
    torch.testing.assert_close(pytorch.mask_of(module[0].weight) != 0, dense != 0)


def test_tied_weights_in_a_sparse_layout_stay_tied() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64))
    weight = module[0].weight.detach() * (torch.rand(64, 64) > 0.8)
    module[0].weight = module[1].weight = torch.nn.Parameter(weight.to_sparse_csr(), requires_grad=False)
    adopt_zeros(module)
    assert module[0].weight is module[1].weight
    pytorch.remove_masks(module)
    assert pytorch.mask_of(module[0].weight) is None


def test_a_module_without_zeros_of_torch_stays_as_it_is() -> None:
    module = images()
    before = list(module.parameters())
    adopt_zeros(module)
    assert all(one is other for one, other in zip(before, module.parameters(), strict=True))
