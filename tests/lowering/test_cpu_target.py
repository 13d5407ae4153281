"""Which vectors a CPU's features allow."""

from __future__ import annotations

import pytest
from llvmlite import binding

from redpebble.lowering.cpu_target import CpuTarget


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
