"""Networks that differ only in weights have one code, and each its own constants."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest

from redpebble.lowering.code_key import code_key
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.driver import lower
from redpebble.lowering.shared_code import lower_to_share
from redpebble.models.zoo import build as zoo
from redpebble.options import Options
from redpebble.pipeline import build
from redpebble.runtime.code_memory import CodeMemory
from redpebble.runtime.jit import emit_object, host_target
from redpebble.runtime.network import Network
from redpebble.runtime.store.artefact import Artefact

FFNN, RESIDUAL = "ffnn(depth=2, width=48, density=0.1)", "resmlp(depth=1, width=32)"


def with_other_weights(model: onnx_ir.Model, shift: int = 1) -> onnx_ir.Model:
    """The same network with other numbers, and connections in other places where they are shifted."""
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is not None and tensor.dtype == onnx_ir.DataType.FLOAT:
            value.const_value = onnx_ir.tensor(1.5 * np.roll(tensor.numpy(), shift, axis=-1), name=value.name)
    return model


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spec", "shift", "threads", "target"),
    [
        pytest.param(FFNN, 1, 1, CpuTarget.generic(), marks=pytest.mark.slow),
        (FFNN, 1, 2, CpuTarget.avx2()),
        pytest.param(RESIDUAL, 0, 2, CpuTarget.avx512(), marks=pytest.mark.slow),
    ],
)
def test_a_program_for_the_code_of_another_network_is_the_one_it_would_have_had(
    spec: str, shift: int, threads: int, target: CpuTarget
) -> None:
    options = Options(threads=threads)
    first, second = build(zoo(spec), options), build(with_other_weights(zoo(spec), shift), options)
    assert code_key(first) == code_key(second) is not None
    known, shared = lower_to_share(first, target)
    program, expected = shared.program_of(second), lower(second, target)
    assert program is not None
    assert known.llvm_ir == expected.llvm_ir
    assert replace(program, constants=()) == replace(expected, llvm_ir="", constants=())
    assert len(program.constants) == len(expected.constants)
    for one, other in zip(program.constants, expected.constants, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype


def test_other_kernels_shapes_or_threads_are_other_code() -> None:
    specs = [
        "width=48, density=0.1",
        "width=48, density=0.9",
        "width=40, density=0.1",
        "depth=3, width=48, density=0.1",
    ]
    modules = [build(zoo(f"ffnn({'depth=2, ' * ('depth' not in spec)}{spec})"), Options()) for spec in specs]
    modules += [build(zoo("ffnn(depth=2, width=256, density=0.1)"), Options(threads=threads)) for threads in (1, 2)]
    assert len({code_key(module) for module in modules}) == len(modules)


@pytest.mark.slow
def test_networks_with_one_code_give_what_onnxruntime_gives() -> None:
    memory, artefacts = CodeMemory(), list[Artefact]()
    x = np.random.default_rng(0).standard_normal((37, 48), dtype=np.float32)
    for model in (zoo(FFNN), with_other_weights(zoo(FFNN))):
        artefacts.append(memory.artefact_of(build(model, Options(threads=2)), host_target()))
        network = Network(artefacts[-1].program, artefacts[-1].image, 2)
        feeds = {network.get_inputs()[0].name: x}
        session = onnxruntime.InferenceSession(onnx_ir.to_proto(model).SerializeToString())
        np.testing.assert_allclose(network.run(None, feeds)[0], session.run(None, feeds)[0], rtol=1e-5, atol=1e-5)
    assert artefacts[0].image is artefacts[1].image


@pytest.mark.slow
def test_tiles_that_differ_only_in_weights_have_one_code() -> None:
    rng, text = np.random.default_rng(0), ["x"]
    weights: list[onnx.TensorProto] = []
    nodes: list[onnx.NodeProto] = []
    for index in range(3):
        weight = np.where(rng.random((48, 48)) < 0.1, rng.standard_normal((48, 48)), 0).astype(np.float32)
        # so that the times of all three are the same: their values and the order of outputs differ
        weight = weight if not weights else np.roll(onnx.numpy_helper.to_array(weights[-1]), 1, axis=1) * 1.5
        weights.append(onnx.numpy_helper.from_array(weight.astype(np.float32), f"w{index}"))
        nodes.append(onnx.helper.make_node("MatMul", [text[-1], f"w{index}"], [f"m{index}"]))
        nodes.append(onnx.helper.make_node("Transpose", [f"m{index}"], [f"y{index}"], perm=[0, 2, 1]))
        text.append(f"y{index}")
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 48, 48]) for name in ("x", "y2")]
    graph = onnx.helper.make_graph(nodes, "layers", ends[:1], ends[1:], weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=10)
    program = lower(build(model, Options(threads=2)), host_target())
    assert len(program.steps) == 6
    assert set(re.findall(r"@.?(tile\d+)_w", program.llvm_ir)) == {"tile0"}
    artefact = Artefact(program, emit_object(program.llvm_ir, host_target()))
    network, x = Network(artefact.program, artefact.image, 2), rng.standard_normal((3, 48, 48), dtype=np.float32)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    expected = session.run(None, {"x": x})[0]
    np.testing.assert_allclose(network.run(None, {"x": x})[0], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_machine_code_is_kept_in_a_folder_for_networks_with_other_weights(tmp_path: Path) -> None:
    models = [zoo(FFNN), with_other_weights(zoo(FFNN))]
    made = [CodeMemory().artefact_of(build(model, Options()), host_target(), tmp_path) for model in models]
    (kept,) = tmp_path.glob("*.object")
    assert [kept.read_bytes().startswith(artefact.image) for artefact in made] == [True, True]
    kept.write_bytes(b"damaged")
    assert CodeMemory().artefact_of(build(models[0], Options()), host_target(), tmp_path).image == made[0].image
