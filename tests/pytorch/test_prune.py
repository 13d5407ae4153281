import copy
import pickle
from typing import Any

import numpy as np
import pytest

from redpebble.pruning.solving.methods import METHODS
from redpebble.pruning.solving.methods import Sparsity as ArraySparsity
from redpebble.pruning.solving.structures import structure_of as array_structure_of

torch: Any = pytest.importorskip("torch")

from redpebble import pytorch  # noqa: E402
from redpebble.pytorch.batches import Run, call  # noqa: E402
from redpebble.pytorch.layer_inputs import layer_inputs  # noqa: E402
from redpebble.pytorch.layers import prunable_weights  # noqa: E402
from redpebble.pytorch.sparsifiers import SPARSIFIERS, loss_of, sparsifier_of  # noqa: E402
from redpebble.pytorch.structures import STRUCTURES, Sparsity, structure_of  # noqa: E402
from tests.pytorch.networks import Batch, Encoder, Module, Tensor, images, token_batches  # noqa: E402


def layer(outputs: int = 48, inputs: int = 64) -> tuple[Any, Any]:
    """A weight, and the products of correlated inputs."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(512, inputs, generator=generator) @ torch.randn(inputs, inputs, generator=generator)
    return torch.randn(outputs, inputs, generator=generator), x.T @ x / len(x)


@pytest.mark.parametrize("method", ["magnitude", "wanda", "obs", "sparsegpt", "admm"])
def test_a_method_makes_the_weights_that_it_makes_of_arrays(method: str) -> None:
    weight, hessian = layer()
    solver = sparsifier_of(method)
    inputs = {"nothing": hessian[:0], "norms": hessian.diagonal(), "products": hessian}[solver.reads]
    ours = solver.solve(weight, inputs, Sparsity(structure_of("equal"), 0.3))
    arrays = METHODS[method].solve(
        weight.T.numpy().copy(), hessian.numpy(), ArraySparsity(array_structure_of("equal"), 0.3)
    )
    theirs = torch.from_numpy(arrays).T
    if method == "magnitude":
        torch.testing.assert_close(ours, theirs)
    assert (ours != 0).sum() == (theirs != 0).sum()
    assert loss_of(weight, ours, hessian) == pytest.approx(loss_of(weight, theirs, hessian), rel=0.05)


def test_methods_that_know_more_lose_less() -> None:
    weight, hessian = layer()
    sparsity, inputs = Sparsity(structure_of("equal"), 0.3), {"norms": hessian.diagonal()}
    losses = [
        loss_of(weight, one.solve(weight, inputs.get(one.reads, hessian), sparsity), hessian)
        for one in map(sparsifier_of, ("magnitude", "obs", "admm"))
    ]
    assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize("text", ["equal", "free", "n:32", "2:4", "blocks:4", "blocks:4:4", "blocks:1:8", "rows:4"])
def test_a_structure_is_that_of_arrays(text: str) -> None:
    scores = torch.rand(48, 64, generator=torch.Generator().manual_seed(0))
    ours = structure_of(text).choose(scores, 0.3)
    theirs = array_structure_of(text).choose(scores.T.numpy().copy(), 0.3)
    np.testing.assert_array_equal(ours.numpy(), theirs.T)


def test_outputs_beside_each_other_share_inputs_in_v_n_m() -> None:
    mask = structure_of("16:2:8").choose(torch.rand(40, 64), 1.0)
    assert (mask.view(40, 8, 8).sum(2) == 2).all()
    for first in range(0, 40, 16):
        assert (mask[first : first + 16].any(0).view(8, 8).sum(1) <= 4).all()


@pytest.mark.parametrize("convolution", [{}, {"stride": 2, "padding": 1}, {"dilation": 2, "padding": "same"}])
def test_inputs_of_a_convolution_are_its_windows(convolution: dict[str, Any]) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Conv2d(8, 64, 3, bias=False, **convolution))
    weights = prunable_weights(module)
    x = torch.randn(2, 8, 9, 11)
    found = layer_inputs(module, weights, Run([x], call), "products")["0"]
    outputs = module(x).movedim(1, -1).reshape(-1, 64)
    matrix = weights[0].matrix
    torch.testing.assert_close(matrix @ found @ matrix.T, outputs.T @ outputs / len(outputs), rtol=1e-3, atol=1e-4)


def test_tokens_that_fill_up_do_not_count_and_layers_of_one_input_share_it() -> None:
    module = torch.nn.ModuleDict({"q": torch.nn.Linear(80, 80), "k": torch.nn.Linear(80, 80)})

    def forward(one: Module, batch: Batch) -> Tensor:
        return one["q"](batch["x"]) + one["k"](batch["x"])

    x, mask = torch.randn(3, 5, 80), torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]])
    batches = [{"x": x, "attention_mask": mask}, {"x": 2 * x, "attention_mask": mask}]
    found = layer_inputs(module, prunable_weights(module), Run(batches, forward), "products")
    rows = x[mask.bool()]
    torch.testing.assert_close(found["q"], 2.5 * rows.T @ rows / len(rows), rtol=1e-4, atol=1e-4)
    assert found["q"] is found["k"]


def test_a_tied_embedding_stays_dense_and_names_choose_layers() -> None:
    module = Encoder()
    report = pytorch.prune(module, sparsity=0.5, layers=["layers.*.up"])
    assert [one.name for one in report.layers] == [f"layers.{index}.up" for index in range(4)]
    assert report.sparsity == pytest.approx(0.5)
    everything = pytorch.prune(module, token_batches(), sparsity=0.75)
    assert len(everything.layers) == 8
    assert not (module.head.weight == 0).any()
    assert all(one.loss is not None and 0 < one.loss < 1 for one in everything.layers)


OPTIMIZERS: dict[str, dict[str, float]] = {
    "SGD": {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1},
    "AdamW": {"lr": 0.01},
    "RMSprop": {"lr": 0.01, "momentum": 0.9},
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_zeros_stay_under_an_optimizer_that_had_momentum_before(name: str) -> None:
    module, batches = Encoder(), token_batches()
    optimizer = getattr(torch.optim, name)(module.parameters(), **OPTIMIZERS[name])

    def step(batch: Batch) -> None:
        optimizer.zero_grad()
        module(**batch)["last_hidden_state"].square().mean().backward()
        optimizer.step()

    step(batches[0])
    pytorch.prune(module, sparsity=0.7)
    before = [one.up.weight.detach().clone() for one in module.layers]
    for batch in batches:
        step(batch)
        for block, old in zip(module.layers, before, strict=True):
            assert torch.equal(block.up.weight == 0, old == 0)
            assert not (block.up.weight.grad[old == 0]).any()
    assert not torch.equal(module.layers[0].up.weight, before[0])


@pytest.mark.parametrize("pickles", [False, True])
def test_a_copy_has_masks_of_its_own(pickles: bool) -> None:
    module = Encoder()
    names = list(module.state_dict())
    pytorch.prune(module, sparsity=0.7)
    other = pickle.loads(pickle.dumps(module)) if pickles else copy.deepcopy(module)
    assert list(other.state_dict()) == names
    pytorch.remove_masks(module)
    assert pytorch.mask_of(module.layers[0].up.weight) is None
    mask = pytorch.mask_of(other.layers[0].up.weight)
    assert mask is not None
    assert torch.equal(mask != 0, other.layers[0].up.weight != 0)


def test_zeros_of_a_file_are_kept() -> None:
    module, loaded = Encoder(), Encoder()
    pytorch.prune(module, sparsity=0.7)
    loaded.load_state_dict(module.state_dict())
    report = pytorch.keep_zeros(loaded)
    assert len(report.layers) == 8
    with torch.no_grad():
        loaded.layers[0].up.weight.fill_(1.0)
    pytorch.apply_masks(loaded.parameters())
    assert torch.equal(loaded.layers[0].up.weight == 0, module.layers[0].up.weight == 0)


def test_a_schedule_becomes_sparser_step_by_step() -> None:
    seen = list[float]()
    module = Encoder()
    report = pytorch.prune(
        module, token_batches(), sparsity=0.8, schedule=[0.4, 0.6], between=lambda _, one: seen.append(one.sparsity)
    )
    assert seen == pytest.approx([0.4, 0.6], abs=0.02)
    assert report.sparsity == pytest.approx(0.8, abs=0.02)


def test_a_layer_that_no_batch_reaches_stays_dense() -> None:
    module = torch.nn.ModuleDict({"read": torch.nn.Linear(80, 80), "beside": torch.nn.Linear(80, 80)})
    report = pytorch.prune(module, [torch.randn(64, 80)], sparsity=0.5, forward=lambda one, x: one["read"](x))
    assert [one.name for one in report.layers] == ["read"]
    assert not (module["beside"].weight == 0).any()
    with pytest.raises(
        ValueError, match="expected data that the module is called with, got no batch that reaches a layer to prune"
    ):
        pytorch.prune(module, [torch.randn(64, 80)], sparsity=0.5, forward=lambda one, x: x)


def test_convolutions_are_pruned() -> None:
    module = images()
    report = pytorch.prune(module, [torch.randn(4, 8, 16, 16)], sparsity=0.6)
    assert [one.name for one in report.layers] == ["3"]
    assert report.sparsity == pytest.approx(0.6, abs=0.01)


def test_convolutions_of_one_image_in_other_windows_have_inputs_of_their_own() -> None:
    torch.manual_seed(0)

    class Beside(torch.nn.Module):
        """The ways of a residual network's first block of a stage."""

        def __init__(self) -> None:
            torch.nn.Module.__init__(self)
            self.way = torch.nn.Conv2d(16, 40, 3, stride=2, padding=1)
            self.past = torch.nn.Conv2d(16, 300, 1, stride=2)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.way(x), self.past(x)

    module = Beside()
    report = pytorch.prune(module, [torch.randn(4, 16, 8, 8)], sparsity=0.5, method="obs")
    assert [one.inputs for one in report.layers] == [144, 16]
    assert all(one.loss is not None and 0 < one.loss < 0.5 for one in report.layers)


def test_methods_and_structures_of_ones_own_have_names() -> None:
    def every_second(scores: Tensor, density: float) -> Tensor:
        del density
        mask = torch.zeros_like(scores, dtype=torch.bool)
        mask[:, ::2] = True
        return mask

    pytorch.register_structure("second", lambda: every_second)
    pytorch.register_sparsifier("doubled", lambda w, _, sparsity: 2 * w * sparsity.mask(w.abs()), reads="nothing")
    try:
        module, dense = Encoder(), Encoder()
        pytorch.prune(module, sparsity=0.5, method="doubled", structure="second")
        torch.testing.assert_close(module.layers[0].up.weight[:, ::2], 2 * dense.layers[0].up.weight[:, ::2])
        assert not module.layers[0].up.weight[:, 1::2].any()
    finally:
        del STRUCTURES["second"], SPARSIFIERS["doubled"]


def is_odd(name: str, _: object) -> bool:
    return name == "odd"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "goal: expected sparsity or speedup, got neither"),
    ({"sparsity": 1.0}, "sparsity: expected more than 0 and up to 0.99, got 1.0"),
    ({"sparsity": 0.5, "structure": "1:4"}, "sparsity: expected 0.75, that of the structure, got 0.5"),
    ({"sparsity": 0.5, "structure": "odd"}, "structure: expected one of free, equal, .*, got 'odd'"),
    ({"sparsity": 0.5, "structure": "4:2"}, "structure '4:2': expected one such as 2:4"),
    ({"sparsity": 0.5, "method": "odd"}, "method: expected one of magnitude, .*, got 'odd'"),
    (
        {"sparsity": 0.5, "method": "admm"},
        "expected data for method 'admm', speedup or rows, which look at inputs of layers, got none",
    ),
    ({"sparsity": 0.5, "layers": "odd"}, "layer to prune: expected one of layers.0.up.*, got 'odd'"),
    ({"sparsity": {"odd": 0.5}}, "layer to prune: expected one of layers.0.up.*, got 'odd'"),
    ({"sparsity": 0.5, "schedule": 0}, "schedule: expected 1 step or more, got 0"),
    ({"sparsity": 0.5, "schedule": [0.4, 0.3]}, r"schedule: expected sparsities that rise to 0.5, got \[0.4, 0.3\]"),
    ({"sparsity": 0.5, "layers": is_odd}, "expected nn.Linear or nn.Conv .*, got no layer to prune"),
]


@pytest.mark.parametrize("options, message", REFUSED)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pytorch.prune(Encoder(), **options)


def test_blocks_of_a_transformer_are_dropped() -> None:
    module = Encoder()
    kept = [module.layers[0], module.layers[3]]
    assert pytorch.drop_layers(module, [0, 3]) is module
    assert list(module.layers) == kept
    with pytest.raises(ValueError, match=r"layers to keep: expected ascending numbers from 0 to 1, got \[2\]"):
        pytorch.drop_layers(module, [2])
    with pytest.raises(ValueError, match="expected a transformer"):
        pytorch.drop_layers(images(), [0])


def test_weights_that_training_moves_towards_zero_go_first() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(96, 64, bias=False))
    wanted = torch.zeros(64, 96)
    # half of the inputs are to lose their weights, though these are the larger ones
    with torch.no_grad():
        module[0].weight[:, :48] *= 3
        wanted[:, 48:] = 4 * module[0].weight[:, 48:]
    x = torch.randn(256, 96)

    def train(network: Module, report: pytorch.PruneReport) -> None:
        del report
        optimizer = torch.optim.SGD(network.parameters(), 0.05)
        for _ in range(10):
            optimizer.zero_grad()
            (network(x) - x @ wanted.T).square().mean(0).sum().backward()
            optimizer.step()

    report = pytorch.prune(module, sparsity=0.5, method="movement", schedule=[0.01, 0.5], between=train)
    kept = (module[0].weight != 0).float().mean(0)
    assert report.sparsity == pytest.approx(0.5, abs=0.01)
    assert kept[48:].mean() > 0.9 > 0.1 > kept[:48].mean()
    with pytest.raises(ValueError, match="movement: expected a schedule of 2 steps or more, and between that trains"):
        pytorch.prune(module, sparsity=0.6, method="movement")


@pytest.mark.parametrize("method", ["magnitude", "wanda", "obs", "sparsegpt", "admm"])
def test_a_pruned_weight_has_no_denormals(method: str) -> None:
    """They would take a hundred times as long as other numbers; weights of dead inputs are such."""
    torch.manual_seed(0)
    module, x = torch.nn.Linear(96, 64), torch.randn(400, 96)
    with torch.no_grad():
        module.weight[:, :20] *= 1e-38
    x[:, :20] = 0
    pytorch.prune(module, [x], sparsity=0.05, method=method)
    weight = module.weight.detach().abs()
    assert not bool(((weight > 0) & (weight < torch.finfo(torch.float32).tiny)).any())
    assert bool((weight[:, 20:] > 0).all())
