"""Which vectors a CPU's features allow."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import pytest
from llvmlite import binding

from redpebble.kernels.byte_times import ALL_PRICES
from redpebble.kernels.dense_work import RUNTIMES
from redpebble.kernels.formats import bfloat_pairs
from redpebble.kernels.prices import PRICES, STREAMS
from redpebble.lowering.architectures import architecture_of, host_name, told_features
from redpebble.lowering.cpu_target import ARM_CPUS, CpuTarget
from redpebble.runtime.jit import missing_features

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    "features, lanes",
    [
        ("", 4),
        ("+sse4.1,+avx", 4),
        ("+avx2", 4),
        ("+avx2,-fma", 4),
        ("+avx2,+fma", 8),
        ("+avx2,+fma,-avx512f", 8),
        ("+avx2,+fma,+avx512vl", 8),
        ("+avx512f,+avx2,+fma", 16),
    ],
)
def test_lanes_follow_from_the_features_that_are_switched_on(features: str, lanes: int) -> None:
    assert CpuTarget.from_features("some-cpu", features) == CpuTarget("some-cpu", features, lanes)


def test_each_named_target_has_its_instructions() -> None:
    named = (CpuTarget.generic(), CpuTarget.avx2(), CpuTarget.avx512())
    assert [target.lanes for target in named] == [4, 8, 16]
    assert [target.has_fma for target in named] == [False, True, True]
    assert [target.has_avx512 for target in named] == [False, False, True]


def test_targets_that_multiply_bytes_have_all_that_those_below_have() -> None:
    for less, more in (
        (CpuTarget.avx2(), CpuTarget.avxvnni()),
        (CpuTarget.avx512(), CpuTarget.avx512vnni()),
        (CpuTarget.avx512vnni(), CpuTarget.zen4()),
    ):
        assert less.extensions < more.extensions
        assert less.lanes == more.lanes
    assert [target.has_bfloat for target in (CpuTarget.avx512vnni(), CpuTarget.zen4())] == [False, True]


def test_the_hosts_own_features_are_understood() -> None:
    features = binding.get_host_cpu_features()
    target = CpuTarget.from_features(binding.get_host_cpu_name(), features.flatten())
    assert target.has_avx512 == features.get("avx512f", False)
    assert target.has_fma or not (features.get("avx2", False) and features.get("fma", False))


def test_arm_has_vectors_of_four_floats_in_32_registers_and_multiplies_and_adds_at_once() -> None:
    for target in ARM_CPUS.values():
        assert (target.lanes, target.registers, target.has_fma) == (4, 32, True)
        assert not target.has_avx512


def test_each_named_arm_has_prices_of_all_kinds() -> None:
    for target in ARM_CPUS.values():
        assert target.stated is not None
        name = target.stated.prices
        assert 4 in PRICES[name]
        assert {name} <= set(STREAMS) & set(ALL_PRICES) & set(RUNTIMES)
        assert (bfloat_pairs.FAMILY.name in PRICES[name][4]) >= target.has_bfloat


def test_arm_multiplies_bytes_by_the_best_instruction_that_it_has() -> None:
    found = [target.byte_products for target in (CpuTarget.arm64(), CpuTarget.arm64_dot(), CpuTarget.arm64_i8mm())]
    names = ["", "llvm.aarch64.neon.sdot.v4i32.v16i8", "llvm.aarch64.neon.usdot.v4i32.v16i8"]
    assert [one and one.name for one in found] == names
    # what takes two signed operands has inputs less 128
    assert [one and one.center for one in found] == [128, 128, 0]


def test_code_for_arm_is_refused_elsewhere() -> None:
    assert host_name() == "aarch64" or missing_features(CpuTarget.arm64()) == ("aarch64",)


WORDS_OF_ARCHITECTURES = re.compile(r"platform\.machine|\"(x86_64|aarch64|amd64|arm64|avx[^\"]*)\"|\.extensions\b")

ASKING = {
    "lowering/architectures.py",
    "lowering/cpu_target.py",
    "ort/native/cpu.py",
    "ort/native/tables.py",
    "ort/custom_ops/library.py",
    "tools/benching/machine.py",
    "tools/cli_options.py",
    "tuning/calibration.py",
}
"""The targets, the levels of libraries and their names, and where a machine is described."""


def test_code_outside_the_targets_asks_what_a_cpu_can_do_and_not_which_one_it_is() -> None:
    folders = ("dialect", "kernels", "lowering", "ort", "passes", "runtime", "tools", "tuning", "driver")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    found = {str(file.relative_to(ROOT)) for file in files if WORDS_OF_ARCHITECTURES.search(file.read_text())}
    assert found <= ASKING


def test_the_system_tells_of_products_of_bytes_on_arm(tmp_path: Path) -> None:
    arm, told = architecture_of("aarch64"), tmp_path / "auxv"
    dot, more = 1 << 20, 1 << 13 | 1 << 14
    for first, second, features in (
        (0, dot, ()),
        (dot, dot, ("dotprod",)),
        (more, 0, ()),
        (dot, more, ("dotprod", "i8mm", "bf16")),
        (dot, more | 1 << 1, ("dotprod", "i8mm", "bf16", "sve2")),
        (0, 1 << 13, ("i8mm",)),
    ):
        told.write_bytes(struct.pack("<8Q", 6, 4096, 16, first, 26, second, 0, 0))
        assert told_features(arm, told) == features
        assert told_features(architecture_of("x86_64"), told) == ()
    assert told_features(arm, tmp_path / "none") == ()
