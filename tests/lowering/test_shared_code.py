"""Networks that differ only in weights have one code, and each its own constants."""

from dataclasses import replace

import numpy as np
import onnx_ir
import onnxruntime
import pytest

from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.driver import lower
from redpebble.lowering.shared_code import code_key, lower_to_share
from redpebble.models.zoo import build as zoo
from redpebble.options import Options
from redpebble.pipeline import build
from redpebble.runtime.code_memory import CodeMemory
from redpebble.runtime.jit import host_target
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


@pytest.mark.parametrize(
    ("spec", "shift", "threads", "target"),
    [
        (FFNN, 1, 1, CpuTarget.generic()),
        (FFNN, 1, 2, CpuTarget.avx2()),
        (RESIDUAL, 0, 2, CpuTarget.avx512()),
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
