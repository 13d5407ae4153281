"""Densities for a speed, by the prices of kernels."""

import copy
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from redpebble import pytorch  # noqa: E402
from redpebble.pytorch.batches import Run, call  # noqa: E402
from redpebble.pytorch.layers import prunable_weights  # noqa: E402
from redpebble.pytorch.prices import Call, Prices  # noqa: E402
from tests.pytorch.networks import Encoder, images, token_batches  # noqa: E402


def test_a_speed_is_reached_by_densities_that_differ() -> None:
    module = Encoder(width=96)
    with torch.no_grad():
        # outputs hardly depend on this block
        module.layers[2].down.weight.mul_(0.01)
    dense = copy.deepcopy(module)
    report = pytorch.prune(module, token_batches(), speedup=2.0, method="obs")
    assert report.speedup is not None
    assert 1.95 < report.speedup < 2.6
    assert len(report.layers) == 8
    densities = {one.name: one.density for one in report.layers}
    assert densities["layers.2.down"] == min(densities.values())
    assert {name for name, _ in module.named_parameters()} == {name for name, _ in dense.named_parameters()}
    again = pytorch.prune(dense, token_batches(), sparsity=0.7, rows=128)
    assert again.speedup is not None
    assert again.layers[0].dense_us == report.layers[0].dense_us


def test_a_shallow_module_loses_blocks_before_it_becomes_very_sparse() -> None:
    module = Encoder(width=96, depth=6)
    report = pytorch.prune(module, token_batches(), speedup=4.0, method="magnitude", shallow=True)
    assert report.blocks is not None
    assert 1 < len(report.blocks) == len(module.layers) < 6
    assert (report.blocks[0], report.blocks[-1]) == (0, 5)
    assert report.speedup is not None
    assert report.speedup >= 3.95


def test_what_is_out_of_reach_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected .* ms or more, .*, got"):
        pytorch.prune(Encoder(width=96), token_batches(), speedup=500.0, method="magnitude")
    with pytest.raises(ValueError, match=r"speedup: expected more than 1 and up to 1000, got 0\.5"):
        pytorch.prune(Encoder(), token_batches(), speedup=0.5)
    with pytest.raises(ValueError, match="speedup: expected no sparsity and a structure of any density"):
        pytorch.prune(Encoder(), token_batches(), speedup=2.0, structure="2:4")


def test_a_convolution_has_the_places_of_its_images() -> None:
    module, x = images(), torch.randn(4, 8, 32, 32)
    weights = prunable_weights(module)
    one, two = (Prices.of(module, weights, Run([x], call), "equal", Call(rows, 1)).dense_us("3") for rows in (None, 2))
    assert two == pytest.approx(2 * one)
    larger = Prices.of(module, weights, Run([torch.randn(4, 8, 60, 60)], call), "equal", Call(None, 1))
    # 14 x 14 places have become 28 x 28
    assert larger.dense_us("3") == pytest.approx(4 * one)
