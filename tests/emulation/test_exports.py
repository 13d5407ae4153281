"""Libraries for ARM of real architectures, as exporters write them: onnxruntime for ARM runs them under qemu."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir
import pytest
from numpy.typing import NDArray

from redpebble.driver.compiler import optimized
from redpebble.export.save_model import save_model
from redpebble.lowering.cpu_target import ARM_CPUS
from redpebble.models.exports.stored import random_feeds, stored_export
from redpebble.options import Options
from redpebble.ort.session import write_library
from redpebble.tuning.measure_kernels import Tuning
from redpebble.verification.decoder_inputs import DecoderInputs
from redpebble.verification.oracle import Oracle
from tests.emulation.arm_program import calls_in
from tests.emulation.on_arm import count, needs_qemu, on_arm, save_calls
from tests.end_to_end.test_exports import sizes_of
from tests.support.few_bits import FewBits
from tests.support.quantized_models import statically_quantized

Feeds = Mapping[str, NDArray[Any]]


class Held(NamedTuple):
    """A model, the inputs of calls, and what results may differ by, beside the greatest one."""

    model: onnx.ModelProto
    calls: list[Feeds]
    tolerance: float = 2e-5


def of_sizes(name: str, sparsity: float = 0.9) -> Held:
    model = stored_export(name, sparsity)
    return Held(model, [random_feeds(model, sizes, seed) for seed, sizes in enumerate(sizes_of(model))])


def in_bytes(name: str, folder: Path) -> Held:
    """Return a network of images that was quantized statically."""
    floats = of_sizes(name, 0.8)
    model = statically_quantized(floats.model, floats.calls, folder, None)
    # a sum in another order may turn a code to the next one, and layers behind it follow
    return Held(model, floats.calls, 0.03)


def decoder(name: str) -> Held:
    model = stored_export(name)
    inputs = DecoderInputs.of(onnx_ir.from_proto(model))
    assert inputs is not None
    return Held(model, list(steps(inputs)), 2e-3)


def steps(inputs: DecoderInputs) -> Iterator[Feeds]:
    for batch, length, past in ((1, 7, 0), (1, 1, 17), (4, 1, 5)):
        rng = np.random.default_rng(length)
        yield inputs.feeds(rng.integers(0, inputs.vocabulary, (batch, length)), past, rng)


def few_bits() -> Held:
    """Return a layer of four bits with zeros, whose inputs may be rounded to eight bits."""
    case, rng = FewBits(512, 384, zeros=0.9), np.random.default_rng(0)
    calls: list[Feeds] = [{"x": rng.standard_normal((rows, case.inputs), dtype=np.float32)} for rows in (1, 7, 41)]
    return Held(case.model, calls, 1e-2)


HELD: dict[str, Callable[[Path], Held]] = {
    "bert": lambda _: of_sizes("bert.dynamo"),
    "resnet_18": lambda _: of_sizes("resnet_18.dynamo"),
    "mobilenet_v3 in bytes": lambda folder: in_bytes("mobilenet_v3.classic", folder),
    "lstm": lambda _: of_sizes("lstm.dynamo"),
    "mistral": lambda _: decoder("mistral.genai"),
    "4 bits": lambda _: few_bits(),
}


@needs_qemu
@pytest.mark.slow
@pytest.mark.parametrize("cpu", ["neoverse-v2", "cortex-a76"])
@pytest.mark.parametrize("name", HELD)
def test_a_library_for_arm_gives_what_onnxruntime_gives_here(name: str, cpu: str, tmp_path: Path) -> None:
    held = HELD[name](tmp_path)
    tuning = Tuning.predicted(ARM_CPUS[cpu], None)
    result = optimized(held.model, Options("optimize", sparse_networks=True, tuning=tuning))
    assert result.networks
    folder = tmp_path / "models"
    folder.mkdir()
    save_model(result.model, folder / "m.onnx")
    assert write_library(result.model, folder / "m.so", "aarch64")
    save_calls(folder / "m.npz", held.calls)
    on_arm(folder)
    oracle = Oracle(onnx_ir.from_proto(held.model), exact=True)
    for feeds, found in zip(held.calls, calls_in(folder / "m.out.npz"), strict=True):
        for one, right in zip(found.values(), oracle.run(feeds), strict=True):
            assert one.shape == right.shape
            scale = float(np.abs(right).max(initial=1e-30))
            np.testing.assert_allclose(one / scale, right / scale, atol=held.tolerance, rtol=0)
    count("exports in onnxruntime", cpu, len(held.calls))
