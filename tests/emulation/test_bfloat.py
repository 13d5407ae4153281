"""Products of bfloat16 on ARM: layers under qemu beside sums in float64 of values that `ml_dtypes` has rounded."""

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

from redpebble.driver.compiler import optimized
from redpebble.export.save_model import save_model
from redpebble.kernels.formats.bfloat_pairs import WIDTHS
from redpebble.lowering.cpu_target import ARM_CPUS, CpuTarget
from redpebble.lowering.driver import lower
from redpebble.options import Options
from redpebble.ort.session import write_library
from redpebble.runtime.jit import emit_assembly, emit_object
from redpebble.runtime.store.artefact import Artefact, write_artefact
from redpebble.tuning.measure_kernels import Tuning
from tests.emulation.arm_program import calls_in
from tests.emulation.on_arm import count, needs_qemu, on_arm, save_calls
from tests.end_to_end.test_bfloat import SIZES, by_numpy
from tests.lowering.kernels.test_bfloat_pairs import layer, matrix, rounded
from tests.support.kernel_cases import PATTERNS, rounding_of
from tests.support.lowering_modules import Floats
from tests.support.quantized_models import pruned_network

SHAPES = ((1, 1), (93, 45), (600, 70), (2500, 9))
BATCHES = (0, 1, 7, 17, 64, 100)


class Case(NamedTuple):
    """A layer in tiles of `width` columns."""

    name: str
    weight: Floats
    bias: Floats
    width: int


def cases(patterns: list[str]) -> Iterator[Case]:
    for number, (pattern, shape) in enumerate(product(patterns, SHAPES)):
        bias = np.random.default_rng(number).standard_normal(shape[1]).astype(np.float32)
        yield Case(f"case{number}", matrix(pattern, shape, number), bias, WIDTHS[number % len(WIDTHS)])


def rows(batch: int, inputs: int) -> Floats:
    return np.random.default_rng(batch).standard_normal((batch, inputs)).astype(np.float32)


def special(inputs: int) -> Floats:
    """Return ones, in one row each a number that is none, infinities, the greatest number, and a denormal one."""
    x = np.ones((70, inputs), np.float32)
    x[:5, inputs // 2] = np.nan, np.inf, -np.inf, np.finfo(np.float32).max, 1e-39
    return x


def exact(weight: Floats, bias: Floats, x: Floats) -> NDArray[np.float64]:
    """Return relu(x w + b) of rounded values, over the connections alone: no zero meets an infinity."""
    found = np.zeros((len(x), len(bias))) + bias
    columns = rounded(x)
    for output in range(len(bias)):
        read = weight[:, output] != 0
        with np.errstate(invalid="ignore"):
            found[:, output] += columns[:, read] @ rounded(weight[read, output])
    return np.where(np.isnan(found), found, np.maximum(found, 0))


def test_products_are_made_by_its_instructions() -> None:
    module = layer(matrix("uniform", (93, 45), 0), np.zeros(45, np.float32), 64)
    target = CpuTarget.arm64_i8mm()
    text = emit_assembly(lower(module, target).llvm_ir, target)
    assert {"bfdot", "bfcvtn", "zip1", "zip2"} <= {line.split()[0] for line in text.splitlines() if line.strip()}


@needs_qemu
@pytest.mark.slow
def test_sums_are_those_of_rounded_values(tmp_path: Path) -> None:
    assert_sums(sorted(PATTERNS), tmp_path)


@needs_qemu
def test_sums_of_a_pattern_are_those_of_rounded_values(tmp_path: Path) -> None:
    assert_sums(["uniform"], tmp_path)


def assert_sums(patterns: list[str], folder: Path) -> None:
    target, known = CpuTarget.arm64_i8mm(), list(cases(patterns))
    for case in known:
        program = lower(layer(case.weight, case.bias, case.width), target)
        write_artefact(folder / f"{case.name}.pebble", Artefact(program, emit_object(program.llvm_ir, target)))
        inputs = len(case.weight)
        calls = [*(rows(batch, inputs) for batch in BATCHES), special(inputs)]
        save_calls(folder / f"{case.name}.npz", [{"x0": x} for x in calls])
    on_arm(folder)
    for case in known:
        found = [next(iter(one.values())) for one in calls_in(folder / f"{case.name}.out.npz")]
        for batch, y in zip(BATCHES, found, strict=False):
            x = rows(batch, len(case.weight))
            difference = np.abs(y - exact(case.weight, case.bias, x))
            # products are rounded to odd before they are added
            assert np.all(difference <= 2 * rounding_of(rounded(x), case.weight, case.bias)), case.name
        right = exact(case.weight, case.bias, special(len(case.weight)))
        with np.errstate(over="ignore"):
            np.testing.assert_allclose(found[-1], right.astype(np.float32), rtol=2e-5, atol=2e-5, err_msg=case.name)
        count("bfloat_pairs", "i8mm", len(found))


CPUS = ("neoverse-v2", "apple-m2")


@needs_qemu
@pytest.mark.slow
@pytest.mark.parametrize("cpu", CPUS)
def test_a_model_in_bfloat16_runs_in_onnxruntime_on_arm(cpu: str, tmp_path: Path) -> None:
    model, tuning = pruned_network(SIZES, 0.1), Tuning.predicted(ARM_CPUS[cpu], None)
    result = optimized(model, Options("optimize", bfloat=True, sparse_networks=True, tuning=tuning))
    assert result.quantized.startswith(("1 of 2", "2 of 2"))
    save_model(result.model, tmp_path / "m.onnx")
    assert write_library(result.model, tmp_path / "m.so", "aarch64")
    calls = [rows(batch, SIZES[0]) for batch in (1, 17, 128)]
    save_calls(tmp_path / "m.npz", [{"x": x} for x in calls])
    found: dict[str, list[Floats]] = {}
    for emulated_cpu in ("max", "cortex-a72"):
        on_arm(tmp_path, emulated_cpu)
        found[emulated_cpu] = [one["0"] for one in calls_in(tmp_path / "m.out.npz")]
        for x, y in zip(calls, found[emulated_cpu], strict=True):
            expected, slack = by_numpy(model, x)
            # what is not rounded misses what rounding changes
            assert np.all(np.abs(y - expected) <= slack + np.abs(expected).max() * 2.0**-4)
        count("models in bfloat16 in onnxruntime", emulated_cpu, len(calls))
    # rows that fill no tile are floats on all CPUs, those of whole tiles where a CPU has no bfloat16
    changes = [float(np.abs(one - other).max()) for one, other in zip(*found.values(), strict=True)]
    assert max(changes[:2]) < 1e-5
    assert changes[2] > 1e-4


def test_cpus_without_a_gain_are_left_with_floats() -> None:
    tuning = Tuning.predicted(ARM_CPUS["cortex-a76"], None)
    result = optimized(pruned_network(SIZES, 0.1), Options("optimize", bfloat=True, tuning=tuning))
    assert result.quantized.endswith("; this CPU has no instructions for it (avx512_bf16, or bf16 on ARM)")
