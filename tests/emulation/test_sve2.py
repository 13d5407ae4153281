"""Code with SVE2, as LLVM makes it for CPUs that have it: that of NEON, but for the ends of rows."""

import re

import pytest

from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.driver import lower
from redpebble.runtime.jit import emit_assembly
from tests.emulation.test_arm import IN_SECONDS, SLOW
from tests.lowering.networks_of_every_kind import KINDS, MORE_IMAGES

OF_SVE = re.compile(r"^\t(\w+)\t.*\b[zp]\d+\b")

UNDER_A_MASK = {
    *("ld1w", "ld1b", "st1w", "st1b"),
    *("ptrue", "cmpgt", "cmpge", "cmpne", "index", "mov", "add", "str", "ldr"),
}
"""Loads and stores of some lanes, and what makes and keeps their masks."""


@pytest.mark.parametrize("kind", [*IN_SECONDS, *SLOW])
def test_sve2_loads_and_stores_the_ends_of_rows_and_multiplies_nothing(kind: str) -> None:
    target = CpuTarget.arm64_sve2()
    text = emit_assembly(lower((KINDS | MORE_IMAGES)[kind](target).module, target).llvm_ir, target)
    assert {found[1] for line in text.splitlines() if (found := OF_SVE.match(line))} <= UNDER_A_MASK
