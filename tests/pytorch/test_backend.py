"""`torch.compile(model, backend="redpebble")` answers as torch does, by sessions where they are faster."""

import logging
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
pytest.importorskip("onnxscript")

from torch.nn.utils import prune as torch_prune  # noqa: E402

from redpebble.pytorch.compiled.backend import redpebble  # noqa: E402
from tests.pytorch.networks import Module, Tensor  # noqa: E402
from tests.pytorch.test_compile import close, sparse  # noqa: E402

pytestmark = pytest.mark.slow

nn = torch.nn
TAKEN, KEPT = "a session runs a graph", "torch keeps a graph"


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "redpebble")
    return caplog


def mlp(zeros: float = 0.95) -> Module:
    """Layers that are several times as fast, however busy the machine is."""
    torch.manual_seed(0)
    return sparse(nn.Sequential(nn.Linear(768, 1536), nn.ReLU(), nn.Linear(1536, 768)), zeros)


def compiled(module: Module, options: dict[str, Any] | None = None) -> Module:
    return torch.compile(module, backend=redpebble, options=options)


def agree(module: Module, fast: Module, *inputs: Tensor) -> None:
    with torch.no_grad():
        for x in inputs:
            for _ in range(2):  # the first call is torch's
                close(fast(x), module(x))


def test_a_sparse_graph_runs_in_a_session_for_any_batch(said: pytest.LogCaptureFixture) -> None:
    module = mlp()
    agree(module, compiled(module), *(torch.randn(batch, 768) for batch in (4, 7, 0)))
    assert TAKEN in said.text


def test_masks_of_torch_are_multiplied_once(said: pytest.LogCaptureFixture) -> None:
    module = nn.Sequential(nn.Linear(768, 1536), nn.ReLU(), nn.Linear(1536, 768)).eval()
    for one in (module[0], module[2]):
        torch_prune.l1_unstructured(one, "weight", 0.95)
    agree(module, compiled(module), torch.randn(4, 768))
    assert TAKEN in said.text


def test_what_is_trained_stays_with_torch(said: pytest.LogCaptureFixture) -> None:
    module, x = mlp(), torch.randn(4, 768)
    fast = compiled(module)
    fast(x).sum().backward()
    assert f"{KEPT}: its outputs have gradients" in said.text
    assert TAKEN not in said.text
    expected = [one.grad.clone() for one in module.parameters()]
    module.zero_grad()
    module(x).sum().backward()
    for one, other in zip(module.parameters(), expected, strict=True):
        torch.testing.assert_close(one.grad, other)


def test_a_graph_without_gradients_inside_is_taken(said: pytest.LogCaptureFixture) -> None:
    module = mlp()

    @torch.compile(backend=redpebble)
    def answer(x: Tensor) -> Tensor:
        with torch.no_grad():
            return module(x)

    x = torch.randn(4, 768)
    close(answer(x), module(x))
    close(answer(x), module(x))
    assert TAKEN in said.text


def test_weights_that_change_are_torchs(said: pytest.LogCaptureFixture) -> None:
    module, x = mlp(), torch.randn(4, 768)
    fast = compiled(module)
    agree(module, fast, x)
    with torch.no_grad():
        module[0].weight.mul_(2)
    agree(module, fast, x)
    module[2].weight.data = torch.randn(768, 1536)
    agree(module, fast, x)
    assert said.text.count("weights have changed since they were compiled") == 1


class Noisy(nn.Module):
    """Sparse layers among what only torch does: random numbers, a count of calls, views that are returned."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.first, self.last = mlp(), mlp()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.calls.add_(1)
        y = nn.functional.dropout(self.first(x), 0.5, self.training)
        z = self.last(y)
        return z, z.view(-1)


def test_parts_of_a_graph_are_taken(said: pytest.LogCaptureFixture) -> None:
    module = Noisy().eval()
    fast = compiled(module)
    with torch.no_grad():
        for i, batch in enumerate((4, 4, 7, 9)):
            x = torch.randn(batch, 768)
            z, flat = fast(x)
            assert int(module.calls) == 2 * i + 1
            close(z, module(x)[0])
            assert flat.data_ptr() == z.data_ptr()
    assert f"{KEPT}: it changes an input" in said.text
    assert TAKEN in said.text


def test_random_numbers_are_drawn_as_ever(said: pytest.LogCaptureFixture) -> None:
    module, x = nn.Sequential(mlp(), nn.Dropout(0.5), mlp()), torch.randn(4, 768)
    module.train()
    fast, found = compiled(module), list[Tensor]()
    with torch.no_grad():
        fast(x)
        fast(x)
        for one in (fast, module):
            torch.manual_seed(7)
            found.append(one(x))
    close(*found)
    assert f"{KEPT}: it draws random numbers" in said.text
    assert said.text.count(TAKEN) == 2


@pytest.mark.parametrize("rest", ["eager", "aot_eager"])
def test_dense_graphs_go_to_the_other_backend(rest: str, said: pytest.LogCaptureFixture) -> None:
    module = nn.Sequential(nn.Linear(64, 64), nn.Tanh()).eval()
    agree(module, compiled(module, options={"rest": rest}), torch.randn(3, 64))
    assert not said.records


def test_layers_that_are_alike_share_a_graph_and_not_their_weights() -> None:
    module = nn.Sequential(*(mlp() for _ in range(3))).eval()
    for i, one in enumerate(module):
        one[0].weight.data *= i + 1
    x = torch.randn(4, 768)
    with torch.no_grad():
        expected = module(x)
        for one in module:
            one.compile(backend=redpebble)
        for _ in range(3):
            close(module(x), expected)


def test_half_floats_and_autocast_are_torchs(said: pytest.LogCaptureFixture) -> None:
    module = mlp().to(torch.bfloat16)
    agree(module, compiled(module), torch.randn(3, 768, dtype=torch.bfloat16))
    other = mlp()
    with torch.autocast("cpu", torch.bfloat16):
        agree(other, compiled(other), torch.randn(3, 768))
    assert TAKEN not in said.text


def test_threads_share_a_compiled_model() -> None:
    module = mlp()
    fast, inputs, found = compiled(module), [torch.randn(4, 768) for _ in range(20)], dict[int, Tensor]()

    def run(first: int) -> None:
        with torch.no_grad():
            for i in range(first, 20, 2):
                found[i] = fast(inputs[i])

    threads = [threading.Thread(target=run, args=(first,)) for first in range(2)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    for i, x in enumerate(inputs):
        close(found[i], module(x))


def test_a_transformer_and_a_convolutional_network_are_taken(
    said: pytest.LogCaptureFixture, request: pytest.FixtureRequest
) -> None:
    # torch's one function for a whole layer has no form in ONNX
    was_enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    request.addfinalizer(lambda: torch.backends.mha.set_fastpath_enabled(was_enabled))
    torch.manual_seed(0)
    encoder = sparse(nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True), 0.95)
    agree(encoder, compiled(encoder), torch.randn(2, 16, 256), torch.randn(2, 33, 256))
    assert said.text.count(TAKEN) >= 1
    said.clear()
    images = sparse(
        nn.Sequential(nn.Conv2d(64, 128, 3, padding=1), nn.BatchNorm2d(128), nn.ReLU(True), nn.Conv2d(128, 64, 3)), 0.95
    )
    agree(images, compiled(images), torch.randn(1, 64, 28, 28), torch.randn(2, 64, 28, 28))
    assert TAKEN in said.text


def test_an_unknown_option_is_told() -> None:
    with pytest.raises(Exception, match="option of the backend redpebble: expected one of rest, threads, got 'Rest'"):
        compiled(mlp(), options={"Rest": "eager"})(torch.randn(2, 768))


def test_the_backend_has_a_name_without_an_import(tmp_path: Path) -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    group = "torch_dynamo_backends"
    folder = tmp_path / "named-0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: named\nVersion: 0\n")
    lines = [f"{name} = {value}" for name, value in project["entry-points"][group].items()]
    (folder / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines]))
    look = "import torch; print(torch._dynamo.lookup_backend('redpebble'))"
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {look}"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "function redpebble" in done.stdout
