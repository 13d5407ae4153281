"""Whole heads of attentions: found, judged, dropped by zeros that stay, and left out of what runs."""

import copy
import io
from typing import Any

import numpy as np
import onnxruntime
import pytest
from xdsl.passes import ModulePass

torch: Any = pytest.importorskip("torch")

import redpebble  # noqa: E402
from redpebble import pytorch  # noqa: E402
from redpebble.dialect.ops.attention import AttentionOp  # noqa: E402
from redpebble.frontend.import_model import import_model  # noqa: E402
from redpebble.passes.simplify.drop_dead_units import DropDeadUnits  # noqa: E402
from redpebble.pipeline import PIPELINE  # noqa: E402
from redpebble.pytorch.attentions.heads import heads_of, without_heads  # noqa: E402
from redpebble.pytorch.batches import Run, call  # noqa: E402
from redpebble.pytorch.layer_inputs import layer_inputs  # noqa: E402
from redpebble.pytorch.layers import prunable_weights  # noqa: E402
from tests.passes.pass_texts import all_of, run  # noqa: E402
from tests.pytorch.networks import Encoder, Module, Tensor, Transformer, token_batches, token_states  # noqa: E402


def removed(module: Module, heads: dict[str, tuple[int, ...]]) -> Module:
    """Return a copy in which heads have no part: their results are taken out before they are read."""
    copied = copy.deepcopy(module)
    for name, gone in heads.items():
        attention = copied.get_submodule(name)
        size = attention.size * attention.num_heads // attention.kv_heads

        def cut(_: object, arguments: tuple[Any], gone: tuple[int, ...] = gone, size: int = size) -> Tensor:
            x = arguments[0].clone()
            for head in gone:
                x[..., head * size : (head + 1) * size] = 0
            return (x,)

        attention.out_proj.register_forward_pre_hook(cut)
    return copied


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("kv_heads", [4, 2])
def test_named_heads_have_no_part_any_more_and_stay_so_under_an_optimizer(fused: bool, kv_heads: int) -> None:
    module, data = Transformer(fused=fused, kv_heads=kv_heads), token_states()
    wanted = removed(module, {"attentions.0": (1,), "attentions.1": (0,)})(data[0])
    assert pytorch.drop_heads(module, data, {"attentions.0": [1], "attentions.1": [0]}) == {
        "attentions.0": (1,),
        "attentions.1": (0,),
    }
    assert torch.allclose(module(data[0]), wanted, atol=1e-5)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-2)
    for x in data:
        module(x).square().mean().backward()
        optimizer.step()
    found = {one.name: one.dropped for one in heads_of(module, Run(data, call))}
    assert found == {"attentions.0": (1,), "attentions.1": (0,)}
    attention = module.attentions[0]
    values = attention.qkv.weight[-kv_heads * 16 :] if fused else attention.v_proj.weight
    assert not values[16:32].any()
    assert values[:16].all()


def test_the_head_goes_without_which_least_is_lost() -> None:
    module, data = Transformer(depth=1), token_states()
    with torch.no_grad():
        module.attentions[0].out_proj.weight[:, 32:48] *= 0.01
    wanted = module(data[0])
    assert pytorch.drop_heads(module, data, 1) == {"attentions.0": (2,)}
    assert (module(data[0]) - wanted).abs().max() < 0.02
    # of a second one the others make up for more than nothing
    other = Transformer(depth=1)
    (heads,) = heads_of(other, Run(data, call))
    (inputs,) = layer_inputs(other, [heads.reader], Run(data, call), "products").values()
    gone, matrix = without_heads(heads, inputs)[2]
    plain = heads.reader.matrix.clone()
    for head in gone:
        plain[:, heads.inputs_of(head)] = 0

    def lost(found: Tensor) -> float:
        return float(((found - heads.reader.matrix) @ inputs * (found - heads.reader.matrix)).sum())

    assert lost(matrix) < lost(plain)


@pytest.mark.parametrize("method", ["magnitude", "wanda", "obs", "sparsegpt", "admm"])
def test_zeros_come_on_top_of_heads_that_are_gone(method: str) -> None:
    module, data = Transformer(width=128), token_states(width=128)
    pytorch.drop_heads(module, data, 2)
    gone = {one.name: one.dropped for one in heads_of(module, Run(data, call))}
    report = pytorch.prune(module, data, sparsity=0.5, method=method)
    assert {one.name: one.dropped for one in heads_of(module, Run(data, call))} == gone
    (reader,) = (one for one in report.layers if one.name == "attentions.0.out_proj")
    # half of what is left
    assert reader.density == pytest.approx(0.25)
    (weight,) = prunable_weights(module, ["attentions.0.out_proj"], 0)
    assert weight.live.shape == (128, 64)
    kept = (weight.matrix != 0).sum(1)
    assert bool((kept == 32).all())


@pytest.mark.slow
@pytest.mark.parametrize("rest_us", [0.0, 300.0])
def test_prices_say_how_many_heads_go(rest_us: float) -> None:
    module, data = Transformer(width=128, heads=8, depth=2), token_states(width=128)
    with torch.no_grad():
        for attention in module.attentions:
            # six of eight heads are hardly read
            attention.out_proj.weight[:, 32:] *= 1e-3
    dense = copy.deepcopy(module)
    report = pytorch.prune(module, data, speedup=2.0, method="obs", heads=True, rest_us=rest_us)
    assert sum(map(len, report.heads.values())) >= 4
    assert all({0, 1}.isdisjoint(gone) for gone in report.heads.values())
    assert "heads dropped" in str(report)
    assert report.speedup is not None
    assert 1.95 < report.speedup < 2.8
    # time of scores is a part of the rest: zeros may take what heads leave
    assert (report.saved_us > 0) == (rest_us > 0)
    without = copy.deepcopy(dense)
    pytorch.prune(without, data, speedup=2.0, method="obs", rest_us=rest_us)
    wanted = dense(data[0])
    lost, otherwise = ((one(data[0]) - wanted).square().mean() for one in (module, without))
    assert lost < otherwise


@pytest.mark.slow
def test_heads_that_all_count_stay() -> None:
    module, data = Transformer(width=128, heads=2, depth=1), token_states(width=128)
    with torch.no_grad():
        module.attentions[0].out_proj.weight.mul_(30)
    report = pytorch.prune(module, data, speedup=1.3, method="obs", heads=True, rest_us=0.0)
    assert not report.heads
    assert "heads" not in str(report)
    assert all(weight.live.shape == tuple(weight.matrix.shape) for weight in prunable_weights(module))


def test_an_attention_of_ones_own_is_said() -> None:
    class Own(torch.nn.Module):
        def __init__(self) -> None:
            torch.nn.Module.__init__(self)
            self.inner = Transformer(width=128, depth=1).attentions[0]
            self.a, self.b, self.c, self.d = (
                self.inner.q_proj,
                self.inner.k_proj,
                self.inner.v_proj,
                self.inner.out_proj,
            )
            del self.inner.q_proj, self.inner.k_proj, self.inner.v_proj, self.inner.out_proj
            del self.inner

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (one(x).unflatten(-1, (4, 32)).transpose(1, 2) for one in (self.a, self.b, self.c))
            return self.d(torch.nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))

    module, data = torch.nn.Sequential(Own()), token_states(width=128)
    with pytest.raises(ValueError, match=r"heads: expected attentions .*register_attention.*, got none"):
        pytorch.prune(module, data, speedup=1.5, heads=True, rest_us=0.0)
    pytorch.register_attention(Own, lambda one: pytorch.HeadNames((one.a, one.b, one.c), one.d, 4))
    assert list(pytorch.drop_heads(module, data, 3)) == ["0"]
    assert len(heads_of(module, Run(data, call)).popitem()[0].dropped) == 3


def test_a_layout_that_is_another_one_is_not_taken() -> None:
    module, data = Transformer(depth=1, fused=True), token_states()
    # queries, keys and values of a head lie beside each other, as in GPT-NeoX
    attention = module.attentions[0]

    def forward(x: Tensor) -> Tensor:
        return attention.out_proj(attention.qkv(x).unflatten(-1, (4, 3, 16))[..., 2, :].flatten(-2))

    attention.forward = forward
    assert not heads_of(module, Run(data, call))


def test_what_cannot_be_dropped_is_said() -> None:
    module, data = Transformer(), token_states()
    with pytest.raises(ValueError, match=r"attention: expected one of attentions.0, attentions.1, got 'other'"):
        pytorch.drop_heads(module, data, {"other": [0]})
    with pytest.raises(ValueError, match=r"heads to drop: expected fewer than the 4 of attentions.0, got 4"):
        pytorch.drop_heads(module, data, 4)
    with pytest.raises(ValueError, match=r"expected data for drop_heads, .*, got none"):
        pytorch.drop_heads(module, [], 1)
    assert pytorch.drop_heads(Encoder(), token_batches(), 1) == {}


def exported(module: Module, x: Tensor) -> bytes:
    buffer = io.BytesIO()
    torch.onnx.export(
        module.eval(), (x,), buffer, input_names=["x"], dynamic_axes={"x": {0: "samples", 1: "tokens"}}, dynamo=False
    )
    return buffer.getvalue()


@pytest.mark.parametrize("fused", [False, True])
def test_what_runs_has_fewer_heads(fused: bool) -> None:
    module, data = Transformer(fused=fused), token_states()
    pytorch.drop_heads(module, data, {"attentions.0": [0, 3], "attentions.1": [2]})
    assert heads_that_run(exported(module, data[0])) == [2, 3]


def heads_that_run(content: bytes) -> list[int]:
    imported = import_model(content, foreign="prologue").module
    simplify = [one for one in PIPELINE[0].passes if isinstance(one, ModulePass)]
    passes = simplify[: [type(one) for one in simplify].index(DropDeadUnits) + 1]
    return [one.head_counts.queries for one in all_of(run(imported, *passes), AttentionOp)]


@pytest.mark.slow
@pytest.mark.parametrize("fused", [False, True])
def test_sessions_of_fewer_heads_answer_as_the_module(fused: bool) -> None:
    module, data = Transformer(width=128, heads=8, fused=fused), token_states(width=128)
    pytorch.drop_heads(module, data, 5)
    pytorch.prune(module, data, sparsity=0.8)
    content = exported(module, data[0])
    session = redpebble.session(content, onnxruntime.SessionOptions())
    for samples, tokens in ((0, 5), (1, 1), (7, 17)):
        x = torch.randn(samples, tokens, 128)
        (found,) = session.run(None, {"x": x.numpy()})
        np.testing.assert_allclose(found, module(x).detach().numpy(), atol=1e-4)
