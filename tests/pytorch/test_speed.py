"""Densities for a speed, by the prices of kernels."""

import copy
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")

from redpebble import pytorch  # noqa: E402
from redpebble.pytorch.batches import Run, call  # noqa: E402
from redpebble.pytorch.compiled.rehearsal import Rehearsal  # noqa: E402
from redpebble.pytorch.layers import prunable_weights  # noqa: E402
from redpebble.pytorch.prices import Call, Prices  # noqa: E402
from redpebble.pytorch.structures import structure_of  # noqa: E402
from tests.pytorch.networks import Encoder, images, token_batches  # noqa: E402


def test_a_speed_is_reached_by_densities_that_differ() -> None:
    module = Encoder(width=96)
    with torch.no_grad():
        # outputs hardly depend on this block
        module.layers[2].down.weight.mul_(0.01)
    dense = copy.deepcopy(module)
    report = pytorch.prune(module, token_batches(), speedup=2.0, method="obs", rest_us=0.0)
    assert report.speedup is not None
    assert 1.95 < report.speedup < 2.6
    assert len(report.layers) == 8
    densities = {one.name: one.density for one in report.layers}
    assert {*sorted(densities, key=lambda one: densities[one])[:2]} == {"layers.2.up", "layers.2.down"}
    assert {name for name, _ in module.named_parameters()} == {name for name, _ in dense.named_parameters()}
    again = pytorch.prune(dense, token_batches(), sparsity=0.7, rows=128)
    assert again.speedup is not None
    assert again.layers[0].dense_us == report.layers[0].dense_us


def test_a_shallow_module_loses_blocks_before_it_becomes_very_sparse() -> None:
    module = Encoder(width=96, depth=6)
    report = pytorch.prune(module, token_batches(), speedup=4.0, method="magnitude", shallow=True, rest_us=0.0)
    assert report.blocks is not None
    assert 1 < len(report.blocks) == len(module.layers) < 6
    assert (report.blocks[0], report.blocks[-1]) == (0, 5)
    assert report.speedup is not None
    assert report.speedup >= 3.95


def test_what_is_out_of_reach_is_refused() -> None:
    with pytest.raises(ValueError, match=r"expected .* ms or more, .*, got"):
        pytorch.prune(Encoder(width=96), token_batches(), speedup=500.0, method="magnitude", rest_us=0.0)
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


class Simulated:
    """A session that takes its time by prices, times a factor, and as much for all else."""

    inputs = "x"

    def __init__(self, prices: Prices, factor: float, rest_us: float) -> None:
        self.prices, self.factor, self.rest_us, self.calls = prices, factor, rest_us, 0
        self.original_us = self._of({})

    def replace_sessions(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def of(*_: object) -> "Simulated":
            return self

        monkeypatch.setattr(Rehearsal, "of", of)

    def us(self, module: object, weights: object, densities: dict[str, float], structure: object) -> float:
        self.calls += 1
        return self._of(densities)

    def _of(self, densities: dict[str, float]) -> float:
        layers = sum(
            self.layer_us(name, densities.get(name, 1.0)) * (1 if densities else 0.9) for name in self.prices.layers
        )
        return self.factor * layers + self.rest_us

    def layer_us(self, name: str, density: float) -> float:
        return self.prices.us(name, density)


class Stepped(Simulated):
    """A session that takes code of ours for a layer only once it is much faster, and then faster than prices say."""

    def layer_us(self, name: str, density: float) -> float:
        dense_us, us = self.prices.dense_us(name), self.prices.us(name, density)
        return dense_us if us > 0.6 * dense_us else 0.8 * us


@pytest.mark.parametrize("speedup", [1.5, 2.2])
@pytest.mark.parametrize("kind", ["tokens", "images"])
def test_the_speed_that_is_asked_for_is_that_of_sessions(
    kind: str, speedup: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "tokens":
        module, data = Encoder(width=96), token_batches()
    else:
        torch.manual_seed(0)
        module = torch.nn.Sequential(
            *(one for _ in range(4) for one in (torch.nn.Conv2d(32, 32, 3, padding=1), torch.nn.ReLU()))
        )
        data = [torch.randn(8, 32, 16, 16)]
    prices = Prices.of(module, prunable_weights(module), Run(data, call), "equal", Call(None, 1))
    dense_us = sum(map(prices.dense_us, prices.layers))
    session = Simulated(prices, 3.0, 0.3 * dense_us)
    session.replace_sessions(monkeypatch)
    report = pytorch.prune(module, data, speedup=speedup, method="magnitude")
    assert report.speedup is not None
    assert 0.98 * speedup < report.speedup < 1.05 * speedup
    # prices alone are wrong here, so one session is not enough
    assert 2 <= session.calls <= 6
    assert "rehearsed with x" in str(report)


@pytest.mark.parametrize("speedup", [1.5, 2.0, 2.5, 3.0])
def test_a_speed_that_jumps_with_densities_is_met(speedup: float, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    module, data = Encoder(width=96, depth=6), token_batches()
    prices = Prices.of(module, prunable_weights(module), Run(data, call), "equal", Call(None, 1))
    session = Stepped(prices, 1.0, 0.1 * sum(map(prices.dense_us, prices.layers)))
    session.replace_sessions(monkeypatch)
    report = pytorch.prune(module, data, speedup=speedup, method="magnitude")
    assert report.speedup is not None
    assert 0.98 * speedup < report.speedup < 1.05 * speedup


def test_a_speed_beyond_that_of_sessions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Encoder(width=96)
    prices = Prices.of(module, prunable_weights(module), Run(token_batches(), call), "equal", Call(None, 1))
    session = Simulated(prices, 1.0, sum(map(prices.dense_us, prices.layers)))
    session.replace_sessions(monkeypatch)
    with pytest.raises(ValueError, match=r"speedup: expected up to 1\.\d+, .* with x, got 3"):
        pytorch.prune(module, token_batches(), speedup=3.0, method="magnitude")


@pytest.mark.slow
def test_a_session_rehearses_what_a_batch_is() -> None:
    pytest.importorskip("onnxscript")
    module, batches = Encoder(width=96), token_batches()
    run, weights = Run(batches, call), prunable_weights(module)
    dense = copy.deepcopy(module.state_dict())
    rehearsal = Rehearsal.of(module, run, (32, 160), 1)
    assert rehearsal is not None
    assert rehearsal.inputs.endswith("3x10")
    assert rehearsal.us(module, weights, {one.name: 0.1 for one in weights}, structure_of("equal")) > 0
    assert all(torch.equal(dense[name], value) for name, value in module.state_dict().items())
    # a sample has 10 rows
    assert Rehearsal.of(module, run, (8, 160), 1) is None
