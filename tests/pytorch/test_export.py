"""Files that torch's exporters write of pruned modules: zeros stay, and our runtimes compute the same."""

import copy
import io
import logging
import warnings
from typing import Any, cast

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
from onnx import numpy_helper

import redpebble

torch: Any = pytest.importorskip("torch")

from redpebble import pytorch  # noqa: E402
from tests.pytorch.networks import Batch, Encoder, Module, Tensor, images, token_batches  # noqa: E402


def exported(module: Module, batch: Batch, dynamo: bool) -> onnx.ModelProto:
    if dynamo:
        pytest.importorskip("onnxscript")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.getLogger("torch.onnx").setLevel(logging.ERROR)
        is_named = isinstance(batch, dict)
        arguments: tuple[Batch, ...] = () if is_named else (batch,)
        named = cast("Batch", batch if is_named else None)
        if dynamo:
            program = torch.onnx.export(module, arguments, kwargs=named, dynamo=True, verbose=False)
            model: onnx_ir.Model = program.model
            return onnx_ir.to_proto(model)
        file = io.BytesIO()
        torch.onnx.export(module, arguments, file, kwargs=named, dynamo=False)
        return onnx.load_model_from_string(file.getvalue())


def shares_of_zeros(model: onnx.ModelProto) -> list[float]:
    arrays = [numpy_helper.to_array(one) for one in model.graph.initializer]
    return [float((one == 0).mean()) for one in arrays if one.ndim > 1 and one.size > 4096]


@pytest.mark.parametrize("dynamo", [False, True])
def test_a_pruned_transformer_is_exported_with_its_zeros(dynamo: bool) -> None:
    module, (batch,) = Encoder(), token_batches(1)
    pytorch.prune(module, sparsity=0.75)
    module.eval()
    ids = {"ids": batch["ids"]}
    model = exported(module, ids, dynamo)
    shares = shares_of_zeros(model)
    assert sum(abs(share - 0.75) < 0.01 for share in shares) == 8
    expected = module(**ids)
    session = redpebble.session(model)
    outputs = session.run(None, {session.get_inputs()[0].name: batch["ids"].numpy()})
    for ours, theirs in zip(outputs, expected.values(), strict=True):
        np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dynamo", [False, True])
def test_a_pruned_perceptron_is_exported_and_compiled(dynamo: bool) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(96, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64)).eval()
    pytorch.prune(module, [torch.randn(256, 96)], sparsity=0.8)
    x = torch.randn(8, 96)
    model = exported(module, x, dynamo)
    assert all(share > 0.79 for share in shares_of_zeros(model))
    (ours,) = redpebble.compile(model).run(None, {model.graph.input[0].name: x.numpy()})
    np.testing.assert_allclose(ours, module(x).detach().numpy(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("leading", [(64,), (4, 16)])
def test_a_module_trained_with_the_rounding_of_eight_bits_runs_as_exported(leading: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(96, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64)).eval()
    x = torch.randn(*leading, 96)
    pytorch.prune(module, [x], sparsity=0.8)
    teacher = copy.deepcopy(module)
    names = [name for name, _ in module.named_parameters()]
    assert pytorch.quantize(module, [x]) == ("0", "2")
    module = copy.deepcopy(module)

    def lost() -> float:
        return float((module(x) - teacher(x)).detach().square().mean())

    before, zeros = lost(), module[0].weight == 0
    assert 0 < before < 0.01 * float(teacher(x).detach().var())
    pytorch.distil(module, teacher, [x], losses=[squares], steps=40, rate=3e-4)
    assert lost() < before
    assert torch.equal(module[0].weight == 0, zeros)
    assert [name for name, _ in module.named_parameters()] == names
    model = exported(module, x, dynamo=False)
    assert [node.op_type for node in redpebble.optimize(model).model.graph] == ["SparseNetwork_0"]
    (ours,) = redpebble.compile(model).run(None, {model.graph.input[0].name: x.numpy()})
    np.testing.assert_allclose(ours, module(x).detach().numpy(), rtol=1e-3, atol=1e-2 * float(ours.std()))


@pytest.mark.parametrize("leading", [(7,), (2, 5)])
def test_a_module_trained_with_the_rounding_of_four_bits_is_exported_as_codes(leading: tuple[int, ...]) -> None:
    """Inputs that fill no last group, a layer without bias, and a group of zeros alone."""
    torch.manual_seed(0)
    layers = torch.nn.Linear(200, 96), torch.nn.ReLU(), torch.nn.Linear(96, 64, bias=False)
    module, x = torch.nn.Sequential(*layers).eval(), torch.randn(*leading, 200)
    pytorch.prune(module, [torch.randn(64, 200)], sparsity=0.5)
    with torch.no_grad():
        module[0].weight[3, 32:64] = 0
    pytorch.keep_zeros(module)
    teacher = copy.deepcopy(module)
    names = [name for name, _ in module.named_parameters()]
    assert pytorch.quantize(module, bits=4, group=32) == ("0", "2")
    module = copy.deepcopy(module)

    def lost() -> float:
        return float((module(x) - teacher(x)).detach().square().mean())

    before, zeros = lost(), module[0].weight == 0
    assert 0 < before < 0.05 * float(teacher(x).detach().var())
    pytorch.distil(module, teacher, [x], losses=[squares], steps=60, rate=1e-3)
    assert lost() < 0.7 * before
    assert torch.equal(module[0].weight == 0, zeros)
    assert [name for name, _ in module.named_parameters()] == names
    model = exported(module, x, dynamo=False)
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("MatMulNBits") == 2
    assert "MatMul" not in kinds
    expected = module(x).detach().numpy()
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for runner in (session, redpebble.session(model)):
        (ours,) = runner.run(None, {model.graph.input[0].name: x.numpy()})
        np.testing.assert_allclose(ours, expected, rtol=1e-3, atol=1e-4)


def test_four_bits_take_linear_layers_and_groups_that_the_operator_has() -> None:
    assert pytorch.quantize(torch.nn.Sequential(torch.nn.Linear(96, 64), torch.nn.Conv2d(8, 64, 3)), bits=4) == ("0",)
    with pytest.raises(ValueError, match=r"layer '3': expected nn\.Linear that is not tied, got Conv2d"):
        pytorch.quantize(images(), bits=4, layers=["3"])
    with pytest.raises(ValueError, match=r"group: expected a power of two, 16 or more, got 24"):
        pytorch.quantize(torch.nn.Linear(96, 64), bits=4, group=24)
    with pytest.raises(ValueError, match=r"quantize: expected 4 bits, or 8 with data, got 8 and no data"):
        pytorch.quantize(torch.nn.Linear(96, 64))


def squares(student: pytorch.Answer, teacher: pytorch.Answer) -> Tensor:
    return (student.tensor - teacher.tensor).square().mean()


def test_convolutions_are_rounded_too_and_what_has_no_such_form_is_refused() -> None:
    module, x = images().eval(), torch.randn(2, 8, 16, 16)
    expected = module(x)
    assert pytorch.quantize(module, [x]) == ("3",)
    assert 0 < float((module(x) - expected).square().mean() / expected.var()) < 0.01
    with pytest.raises(ValueError, match=r"layer '3': expected .*, got QuantizedConv2d"):
        pytorch.quantize(module, [x])


@pytest.mark.parametrize("dynamo", [False, True])
def test_pruned_convolutions_are_exported(dynamo: bool) -> None:
    module, x = images().eval(), torch.randn(2, 8, 16, 16)
    pytorch.prune(module, [x], sparsity=0.75, layers=["3"])
    model = exported(module, x, dynamo)
    assert max(shares_of_zeros(model)) == pytest.approx(0.75, abs=0.01)
    (ours,) = redpebble.session(model).run(None, {model.graph.input[0].name: x.numpy()})
    np.testing.assert_allclose(ours, module(x).detach().numpy(), rtol=1e-3, atol=1e-4)
