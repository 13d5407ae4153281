"""`redpebble.torch.compile`: modules that run sessions answer as the modules that they were made of."""

import copy
import io
import threading
import warnings
from typing import Any, NamedTuple

import pytest

torch: Any = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from torch.nn.utils import parametrize  # noqa: E402
from torch.nn.utils import prune as torch_prune  # noqa: E402

from redpebble import UnsupportedModelError, pytorch  # noqa: E402
from redpebble.ort.counters import counters  # noqa: E402
from tests.pytorch.networks import Module, Tensor  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    # pytree's own words when torch saves its specifications
    pytest.mark.filterwarnings("ignore:`isinstance:FutureWarning"),
]

nn = torch.nn


def sparse(module: Module, zeros: float = 0.9, seed: int = 1) -> Module:
    """The module, with zeros in all weights of layers."""
    generator = torch.Generator().manual_seed(seed)
    for one in module.modules():
        if isinstance(one, nn.Linear | nn.Conv2d):
            one.weight.data *= torch.rand(one.weight.shape, generator=generator) > zeros
    return module.eval()


def mlp() -> Module:
    torch.manual_seed(0)
    return sparse(nn.Sequential(nn.Linear(96, 256), nn.ReLU(), nn.Linear(256, 65), nn.Sigmoid()))


def close(got: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(got, expected.detach(), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("rows", [1, 17])
def test_batches_of_any_size_are_answered(rows: int) -> None:
    module, taken = mlp(), counters()["networks_compiled"] + counters()["networks_from_cache"]
    compiled = pytorch.compile(module, torch.randn(rows, 96))
    assert counters()["networks_compiled"] + counters()["networks_from_cache"] > taken
    for batch in (0, 1, 2, 7, 17, 130):
        x = torch.randn(batch, 96)
        close(compiled(x), module(x))
    x = torch.randn(5, 96)
    x[1], x[2] = torch.nan, torch.inf
    assert bool(torch.isnan(compiled(x)[1]).all())
    turned = torch.randn(96, 8).T
    close(compiled(turned), module(turned))


def test_a_transformer_layer_has_free_lengths_where_the_example_is_marked() -> None:
    torch.manual_seed(0)
    module = sparse(nn.TransformerEncoderLayer(64, 4, 256, batch_first=True))
    example = torch.randn(2, 12, 64)
    torch._dynamo.maybe_mark_dynamic(example, 1)
    compiled = pytorch.compile(module, example)
    for batch, length in ((1, 5), (3, 33), (2, 12)):
        x = torch.randn(batch, length, 64)
        close(compiled(x), module(x))


def test_a_convolutional_network_is_answered() -> None:
    torch.manual_seed(0)
    module = sparse(
        nn.Sequential(
            nn.Conv2d(16, 33, 3, padding=1),
            nn.BatchNorm2d(33),
            nn.ReLU(),
            nn.Conv2d(33, 32, 3, stride=2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, 10),
        )
    )
    compiled = pytorch.compile(module, torch.randn(1, 16, 20, 20))
    for batch in (1, 3):
        x = torch.randn(batch, 16, 20, 20)
        close(compiled(x), module(x))


class Pair(NamedTuple):
    first: Any
    rest: dict[str, Any]


class Structured(nn.Module):
    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.layers = mlp()

    def forward(self, x: Tensor, scale: float, more: dict[str, Tensor], flag: bool = False) -> Pair:
        y = self.layers(x) * scale
        return Pair(y, {"sum": y.sum(1) + more["shift"], "flag": flag, "none": None})


def test_arguments_and_results_keep_their_structure() -> None:
    module = Structured().eval()
    compiled = pytorch.compile(
        module, {"x": torch.randn(4, 96), "scale": 2.0, "more": {"shift": torch.randn(4)}, "flag": True}
    )
    x, shift = torch.randn(7, 96), torch.randn(7)
    got = compiled(x, 2.0, {"shift": shift}, flag=True)
    expected = module(x, 2.0, {"shift": shift}, flag=True)
    assert isinstance(got, Pair)
    assert got.rest["flag"] is True
    assert got.rest["none"] is None
    close(got.first, expected.first)
    close(got.rest["sum"], expected.rest["sum"])
    with pytest.raises(ValueError, match=r"argument: expected 2.0, as in the example, got 3.0"):
        compiled(x, 3.0, {"shift": shift}, True)
    with pytest.raises(ValueError, match="expected 4 values, as in the example, got 5 values"):
        compiled(x, 2.0, {"shift": shift, "other": shift}, True)
    with pytest.raises(ValueError, match=r"arguments: expected \(x.*missing a required argument: 'scale'"):
        compiled(x)


class Halved(nn.Module):
    def forward(self, weight: Tensor) -> Tensor:
        return weight * (torch.arange(weight.numel()).view_as(weight) % 8 == 0)


def test_masks_parametrizations_and_sparse_layouts_are_weights() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(96, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 64)).eval()
    torch_prune.l1_unstructured(module[0], "weight", 0.9)
    parametrize.register_parametrization(module[2], "weight", Halved())
    weight = module[4].weight.detach() * (torch.rand(64, 128) > 0.9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls its layouts a beta
        module[4].weight = nn.Parameter(weight.to_sparse_csr(), requires_grad=False)
    compiled = pytorch.compile(module, torch.randn(2, 96))
    x = torch.randn(5, 96)
    close(compiled(x), module(x))
    assert module[4].weight.layout == torch.sparse_csr
    assert hasattr(module[0], "weight_mask")


def test_the_module_stays_as_it_was_and_a_copy_of_its_weights_is_taken() -> None:
    module, x = mlp(), torch.randn(3, 96)
    module.train()
    module[0].eval()
    compiled, before = pytorch.compile(module, x), module(x)
    assert [one.training for one in module] == [False, True, True, True]
    with torch.no_grad():
        module[0].weight.mul_(2)
    close(compiled(x), before)
    assert not list(compiled.parameters())


def test_a_compiled_module_is_copied_and_saved() -> None:
    compiled, x, file = pytorch.compile(mlp(), torch.randn(3, 96), threads=1), torch.randn(3, 96), io.BytesIO()
    torch.save(compiled, file)
    file.seek(0)
    for other in (copy.deepcopy(compiled), torch.load(file, weights_only=False)):
        close(other(x), compiled(x))
    compiled.train()
    close(compiled(x), other(x))


def test_threads_share_a_compiled_module() -> None:
    module = mlp()
    compiled = copy.deepcopy(pytorch.compile(module, torch.randn(2, 96), threads=1))
    inputs = [torch.randn(1 + i % 5, 96) for i in range(40)]
    found: dict[int, Tensor] = {}

    def run(first: int) -> None:
        for i in range(first, 40, 2):
            found[i] = compiled(inputs[i])

    threads = [threading.Thread(target=run, args=(first,)) for first in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    for i, x in enumerate(inputs):
        close(found[i], module(x))


def test_wrong_inputs_are_told_in_a_line() -> None:
    compiled = pytorch.compile(mlp(), torch.randn(2, 96))
    with pytest.raises(
        ValueError, match=r"input 0: expected float32 \[\w+, 96\] on cpu, got float32 \[3, 95\] on cpu$"
    ):
        compiled(torch.randn(3, 95))
    with pytest.raises(ValueError, match=r"got float64 \[3, 96\] on cpu$"):
        compiled(torch.randn(3, 96, dtype=torch.float64))
    with pytest.raises(ValueError, match=r"got float32 \[3, 96\] on meta$"):
        compiled(torch.randn(3, 96, device="meta"))
    with pytest.raises(ValueError, match=r"inputs: expected tensors without gradients, or torch\.no_grad"):
        compiled(torch.randn(3, 96, requires_grad=True))
    with torch.no_grad():
        compiled(torch.randn(3, 96, requires_grad=True))
    with pytest.raises(ValueError, match="threads: expected 0 or more, got -1"):
        pytorch.compile(mlp(), torch.randn(2, 96), threads=-1)


class Branching(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x + 1 if float(x.sum()) > 0 else x - 1


def test_a_module_that_torch_cannot_export_is_named() -> None:
    with pytest.raises(UnsupportedModelError, match=r"^Branching: expected a module that torch exports, got .+"):
        pytorch.compile(Branching(), torch.randn(2, 96))


def test_a_dense_module_runs_in_onnxruntime() -> None:
    module = nn.Sequential(nn.Linear(64, 64), nn.Tanh()).eval()
    compiled, x = pytorch.compile(module, torch.randn(2, 64)), torch.randn(9, 64)
    close(compiled(x), module(x))


def test_sizes_that_the_caller_names_are_free() -> None:
    module = sparse(nn.Sequential(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 16, 3)))
    auto = torch.export.Dim.AUTO
    compiled = pytorch.compile(module, torch.randn(2, 16, 24, 24), dynamic_shapes=({0: auto, 2: auto, 3: auto},))
    for shape in ((1, 16, 24, 24), (2, 16, 17, 30)):
        x = torch.randn(*shape)
        close(compiled(x), module(x))
