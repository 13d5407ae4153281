"""Torch's own attention, whose packed weight no layer holds: pruned, its heads dropped, trained, and exported."""

import copy
import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

torch: Any = pytest.importorskip("torch")

import redpebble  # noqa: E402
from redpebble import pytorch  # noqa: E402
from redpebble.pytorch.attentions.heads import heads_of  # noqa: E402
from redpebble.pytorch.batches import Run, call  # noqa: E402
from redpebble.pytorch.compiled.onnx_bytes import evaluating, onnx_bytes  # noqa: E402
from redpebble.pytorch.layer_inputs import seeing  # noqa: E402
from redpebble.pytorch.layers import prunable_weights  # noqa: E402
from tests.pytorch.networks import Module, Tensor  # noqa: E402
from tests.pytorch.test_heads import heads_that_run  # noqa: E402

nn = torch.nn

PARTS = ("q_proj", "k_proj", "v_proj", "out_proj")


def encoder(*, batch_first: bool = True, norm_first: bool = False, width: int = 128, depth: int = 2) -> Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=batch_first, norm_first=norm_first)
    # one seed: all layers of an encoder start alike otherwise
    found = nn.TransformerEncoder(layer, depth, enable_nested_tensor=batch_first and not norm_first).eval()
    for one in found.parameters():
        one.data += 0.05 * torch.randn_like(one)
    return found


def states(*, batch_first: bool = True, width: int = 128) -> list[Tensor]:
    generator = torch.Generator().manual_seed(1)
    found = [torch.randn(8, 10, width, generator=generator) for _ in range(4)]
    return found if batch_first else [one.transpose(0, 1) for one in found]


class Crossed(nn.Module):
    """Attention over another sequence, whose keys and values may be of other sizes."""

    def __init__(self, **options: int) -> None:
        nn.Module.__init__(self)
        torch.manual_seed(0)
        self.attention = nn.MultiheadAttention(96, 4, batch_first=True, **options)

    def forward(self, x: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return self.attention(x, keys, value=values, need_weights=False)[0]


@pytest.mark.parametrize("batch_first", [False, True])
def test_all_weights_of_an_attention_see_what_they_multiply(batch_first: bool) -> None:
    module, (x, *_) = encoder(batch_first=batch_first, depth=1), states(batch_first=batch_first)
    attention, seen = module.layers[0].self_attn, dict[str, Tensor]()
    weights = prunable_weights(module)
    assert [one.name for one in weights] == [
        *(f"layers.0.self_attn.{one}" for one in PARTS),
        "layers.0.linear1",
        "layers.0.linear2",
    ]

    def see(name: str, _: Module, x: Tensor) -> None:
        assert name not in seen
        seen[name] = x

    with seeing(module, weights, see), torch.no_grad():
        module(x)
    samples_first = x if batch_first else x.transpose(0, 1)
    named = {one.name.rpartition(".")[2]: one for one in weights}
    q, k, v = (
        nn.functional.linear(seen[one.name], one.matrix, one.bias).unflatten(-1, (4, 32)).transpose(1, 2)
        for one in (named[part] for part in PARTS[:3])
    )
    results = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    assert torch.allclose(seen["layers.0.self_attn.q_proj"], samples_first)
    assert torch.allclose(seen["layers.0.self_attn.out_proj"], results, atol=1e-5)
    answer = nn.functional.linear(results, named["out_proj"].matrix, named["out_proj"].bias)
    wanted = attention(x, x, x, need_weights=False)[0]
    assert torch.allclose(answer, wanted if batch_first else wanted.transpose(0, 1), atol=1e-5)


@pytest.mark.parametrize("options", [{}, {"kdim": 80, "vdim": 72}])
@pytest.mark.parametrize("method", ["magnitude", "wanda", "admm"])
def test_attention_over_another_sequence_is_pruned(options: dict[str, int], method: str) -> None:
    module, generator = Crossed(**options), torch.Generator().manual_seed(1)
    sizes = options.get("kdim", 96), options.get("vdim", 96)
    shapes = [(8, 6, 96), (8, 9, sizes[0]), (8, 9, sizes[1])]
    data = [tuple(torch.randn(*one, generator=generator) for one in shapes) for _ in range(3)]
    report = pytorch.prune(module, data, sparsity=0.5, method=method)
    assert [one.name for one in report.layers] == [f"attention.{one}" for one in PARTS]
    assert all(one.zeros == one.size // 2 for one in report.layers)
    assert list(pytorch.drop_heads(module, data, {"attention": [2]}).values()) == [(2,)]


def zeros_of(module: Module) -> dict[str, Tensor]:
    return {name: one == 0 for name, one in module.named_parameters() if name.endswith("weight") and one.dim() > 1}


def trained(module: Module, data: list[Tensor]) -> None:
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    for x in data:
        module.train()(x).square().mean().backward()
        optimizer.step()
    module.eval()


def test_zeros_of_the_packed_weight_stay_under_an_optimizer_in_copies_and_in_files(tmp_path: Path) -> None:
    module, data = encoder(), states()
    pytorch.prune(module, data, sparsity=0.7, structure="equal")
    zeros = zeros_of(module)
    packed = zeros["layers.0.self_attn.in_proj_weight"]
    assert packed.float().mean().item() == pytest.approx(0.7, abs=0.01)
    assert len({*packed.sum(1).tolist()}) == 1
    for one in (module, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        trained(one, data)
        assert all(torch.equal(found, zeros[name]) for name, found in zeros_of(one).items())
    # a training that goes on from a file has the masks again
    student, file = encoder(), tmp_path / "one.pt"
    options: dict[str, Any] = {"losses": [loss], "progress": False, "checkpoint": file}
    pytorch.distil(module, encoder(), data, steps=2, **options)
    pytorch.distil(student, encoder(), data, steps=4, **options)
    assert all(torch.equal(found, zeros[name]) for name, found in zeros_of(student).items())
    pytorch.keep_zeros(student)
    trained(student, data)
    assert all(torch.equal(found, zeros[name]) for name, found in zeros_of(student).items())


def loss(student: Any, teacher: Any) -> Tensor:  # noqa: ANN401
    return (student.tensor - teacher.tensor).square().mean()


@pytest.mark.parametrize("batch_first", [False, True])
def test_heads_of_torch_are_dropped_and_have_no_part_any_more(batch_first: bool) -> None:
    module, data = encoder(batch_first=batch_first), states(batch_first=batch_first)
    assert {one.name: shape for one, shape in heads_of(module, Run(data, call)).items()} == {
        f"layers.{index}.self_attn": (8, 10, 128) for index in range(2)
    }
    assert pytorch.drop_heads(module, data, {"layers.0.self_attn": [1]}) == {"layers.0.self_attn": (1,)}
    weights = {one.name: one for one in prunable_weights(module)}
    for part in PARTS[:3]:
        matrix = weights[f"layers.0.self_attn.{part}"].matrix
        assert not matrix[32:64].any()
        assert bool(matrix[:32].all())
    reader = weights["layers.0.self_attn.out_proj"].matrix
    assert not reader[:, 32:64].any()
    assert bool(reader[:, 64:].all())
    before = module(data[0])
    with torch.no_grad():
        # whatever a head that is gone makes of its biases is not read
        module.layers[0].self_attn.in_proj_bias[32:64] += 1
    assert torch.allclose(module(data[0]), before, atol=1e-5)


def test_a_speed_is_kept_by_heads_and_zeros_of_attentions() -> None:
    module, data = encoder(depth=1), states()
    with torch.no_grad():
        module.layers[0].self_attn.out_proj.weight[:, 32:] *= 1e-3
    report = pytorch.prune(module, data, speedup=1.5, heads=True, method="obs", rest_us=0.0)
    assert set(report.heads) <= {"layers.0.self_attn"}
    assert report.speedup is not None
    assert 1.4 < report.speedup < 1.8


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("norm_first", [False, True])
def test_what_is_exported_has_the_zeros_and_fewer_heads(batch_first: bool, norm_first: bool) -> None:
    module = encoder(batch_first=batch_first, norm_first=norm_first)
    data = states(batch_first=batch_first)
    pytorch.drop_heads(module, data, {"layers.0.self_attn": [0, 3], "layers.1.self_attn": [2]})
    pytorch.prune(module, data, sparsity=0.6)
    free = {0: torch.export.Dim("first"), 1: torch.export.Dim("second")}
    with evaluating(module):
        content = onnx_bytes(module, (data[0],), {}, (free,), "encoder")
    assert heads_that_run(content) == [2, 3]
    sparse, session = redpebble.compile(content), redpebble.session(content, onnxruntime.SessionOptions())
    plain = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (name,) = (one.name for one in plain.get_inputs())
    for shape in ((1, 1), (7, 17), (17, 3)):
        x = torch.randn(*shape, 128)
        wanted: NDArray[np.float32] = module(x).detach().numpy()
        for one in (sparse, session, plain):
            np.testing.assert_allclose(one.run(None, {name: x.numpy()})[0], wanted, atol=1e-4)


def test_the_exporter_that_traces_keeps_the_zeros() -> None:
    module, data, buffer = encoder(), states(), io.BytesIO()
    pytorch.prune(module, data, sparsity=0.6)
    axes = {"x": {0: "samples"}}
    torch.onnx.export(module, (data[0],), buffer, input_names=["x"], dynamic_axes=axes, dynamo=False)
    session = redpebble.session(buffer.getvalue(), onnxruntime.SessionOptions())
    x = torch.randn(5, 10, 128)
    np.testing.assert_allclose(session.run(None, {"x": x.numpy()})[0], module(x).detach().numpy(), atol=1e-4)


def test_layers_beside_an_attention_are_rounded_even_where_torch_does_not_call_them() -> None:
    padding = torch.zeros(8, 10, dtype=torch.bool)
    padding[:4, 6:] = True
    module, data = encoder(), [{"src": one, "src_key_padding_mask": padding} for one in states()]
    dense = copy.deepcopy(module)
    assert pytorch.quantize(module, data) == tuple(f"layers.{at}.linear{one}" for at in range(2) for one in (1, 2))
    with_gradients = module(**data[0])
    with torch.no_grad():
        without = module(**data[0])
    assert torch.allclose(with_gradients[~padding], without[~padding], atol=1e-5)
    assert (without - dense(**data[0]))[~padding].abs().max() > 1e-4
    with pytest.raises(ValueError, match=r"layer 'layers.0.self_attn.q_proj': expected nn.Linear .*, got Multi"):
        pytorch.quantize(dense, data, layers=["layers.0.self_attn.q_proj"])
    names = pytorch.round_weights(dense)
    assert "layers.0.self_attn.out_proj" in names
    assert "layers.0.self_attn.q_proj" not in names
