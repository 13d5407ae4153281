"""Code for 64-bit ARM: what LLVM makes of each kind of network, and its results under qemu beside x86's."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from redpebble.driver.compiler import optimized
from redpebble.export.save_model import save_model
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.driver import lower
from redpebble.models import zoo
from redpebble.options import Options
from redpebble.ort.elf.linker import Code, Data, link
from redpebble.ort.elf.object_file import EM_AARCH64
from redpebble.ort.session import write_library
from redpebble.runtime.jit import emit_object
from redpebble.runtime.network import Network
from redpebble.runtime.store.artefact import Artefact, write_artefact
from redpebble.tuning.measure_kernels import Tuning
from redpebble.verification.feeds import inputs_for
from redpebble.verification.oracle import Oracle
from tests.emulation.arm_program import calls_in
from tests.emulation.on_arm import TARGETS, Arrays, Feeds, assert_alike, count, needs_qemu, on_arm, save_calls
from tests.lowering.networks_of_every_kind import KINDS, MORE_IMAGES, Example
from tests.support.command_line import exit_code

EVERY_KIND = KINDS | MORE_IMAGES

IN_SECONDS = ("row_panels", "attention", "quantized layers", "floats squares 16x16")
"""Kinds whose code is made in the default suite."""


def artefact(kind: str, target: CpuTarget) -> tuple[Artefact, Example]:
    example = EVERY_KIND[kind](target)
    program = lower(example.module, target)
    return Artefact(program, emit_object(program.llvm_ir, target)), example


SLOW = [pytest.param(kind, marks=pytest.mark.slow) for kind in EVERY_KIND if kind not in IN_SECONDS]


@pytest.mark.parametrize("kind", [*IN_SECONDS, *SLOW])
def test_code_for_arm_needs_nothing_but_itself(kind: str) -> None:
    """A call of libm, or a relocation that the linker does not know, would be refused."""
    image = artefact(kind, CpuTarget.arm64())[0].image
    assert link([Code(image), Data("nothing", bytes(8))], [], "libarm.so")[18] == EM_AARCH64


@pytest.mark.slow
def test_the_command_writes_a_library_for_arm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model, output = tmp_path / "m.onnx", tmp_path / "o.onnx"
    zoo.save(zoo.build("ffnn(depth=2, width=64, density=0.1)"), model)
    words = ("--library", "--target", "ort", "--cpu", "cortex-a76")
    assert exit_code(monkeypatch, "optimize", model, output, *words) == 0
    assert output.with_suffix(".so").read_bytes()[18] == EM_AARCH64


@pytest.mark.parametrize("command", ["check", "bench"])
def test_what_would_run_code_of_arm_here_is_refused(
    command: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    zoo.save(zoo.build("ffnn(depth=2, width=64, density=0.1)"), tmp_path / "m.onnx")
    assert exit_code(monkeypatch, command, tmp_path / "m.onnx", "--cpu", "neoverse-v2") == 2
    assert "expected a CPU with aarch64, got" in capfd.readouterr().err


@needs_qemu
@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_every_kind_of_code_gives_on_arm_what_it_gives_on_x86(target: str, tmp_path: Path) -> None:
    assert_alike_on_arm(list(EVERY_KIND), target, tmp_path)


@needs_qemu
def test_a_sample_of_code_gives_on_arm_what_it_gives_on_x86(tmp_path: Path) -> None:
    assert_alike_on_arm(["row_panels", "quantized layers"], "i8mm", tmp_path)


def assert_alike_on_arm(kinds: Sequence[str], target: str, tmp_path: Path) -> None:
    """Floats to 2e-5, as sums are fused there; integers to the bit. NaN and infinities stand in the last call."""
    expected: dict[str, list[Arrays]] = {}
    for kind in kinds:
        made, example = artefact(kind, TARGETS[target]())
        calls = [*example.calls, *with_strange_numbers(example.calls[-1])]
        here = EVERY_KIND[kind](CpuTarget.generic("x86_64"))
        program = lower(here.module, CpuTarget.generic("x86_64"))
        network = Network(program, emit_object(program.llvm_ir, program.target))
        expected[kind] = [network.run(None, feeds) for feeds in calls]
        file = tmp_path / f"{kind.replace(' ', '-')}.pebble"
        write_artefact(file, made)
        save_calls(file.with_suffix(".npz"), calls)
    on_arm(tmp_path)
    for kind, right in expected.items():
        for number, found in enumerate(calls_in(tmp_path / f"{kind.replace(' ', '-')}.out.npz")):
            assert_alike(list(found.values()), right[number], f"{kind}, call {number}")
        count(kind, target, len(right))


def with_strange_numbers(feeds: Feeds) -> list[Feeds]:
    """The same inputs with some that are no numbers, where they are floats."""
    if any(array.dtype != np.float32 for array in feeds.values()):
        return []
    strange = {name: array.copy() for name, array in feeds.items()}
    for array in strange.values():
        array.reshape(-1)[[0, array.size // 3, array.size // 2]] = np.nan, np.inf, -np.inf
    return [strange]


MODELS = (
    "ffnn(depth=3, width=256, density=0.1)",
    "digits_cnn",
    "digits_int8",
    "resmlp(width=256, depth=2, density=0.05)",
    "graph_network",
)


@needs_qemu
@pytest.mark.slow
@pytest.mark.parametrize("cpu, threads", [("max", 2), ("cortex-a72", 1)])
def test_onnxruntime_on_arm_loads_a_library_made_here(cpu: str, threads: int, tmp_path: Path) -> None:
    tuning = Tuning.predicted(CpuTarget.arm64_dot(), None)
    expected: dict[str, list[Arrays]] = {}
    for number, spec in enumerate(MODELS):
        file, original = tmp_path / f"m{number}.onnx", zoo.build(spec)
        result = optimized(original, Options("optimize", sparse_networks=True, tuning=tuning))
        assert result.networks
        save_model(result.model, file)
        assert write_library(result.model, file.with_suffix(".so"), "aarch64")
        # else sums of bytes saturate where x86-64 cannot multiply bytes
        oracle, rng = Oracle(original, exact=True), np.random.default_rng(0)
        calls = [inputs_for(original, rows, rng) for rows in (0, 1, 7, 17, 70)]
        save_calls(file.with_suffix(".npz"), calls)
        expected[file.stem] = [oracle.run(feeds) for feeds in calls]
    on_arm(tmp_path, cpu, threads)
    for name, right in expected.items():
        for number, found in enumerate(calls_in(tmp_path / f"{name}.out.npz")):
            assert_alike(list(found.values()), right[number], f"{name}, call {number}")
        count("models in onnxruntime", cpu, len(right))
