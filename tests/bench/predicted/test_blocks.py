"""How often blocks of a function run is counted as it runs, and llvm-mca's cycles of them have their names."""

import shutil

import pytest

from redpebble.bench.predicted.blocks import CountedCode, Model, cycles_of
from redpebble.lowering.cpu_target import CpuTarget

LOOP = """
define void @"sum"(i64 %"n", i64 %"most")
{
entry:
  br label %"body"
body:
  %"i" = phi  i64 [0, %"entry"], [%"next", %"body"]
  %"next" = add i64 %"i", 1
  %"more" = icmp slt i64 %"next", %"n"
  br i1 %"more", label %"body", label %"done"
done:
  ret void
}
"""

MCA = shutil.which("llvm-mca-22")


@pytest.mark.parametrize("times", [1, 2, 17])
def test_a_block_is_counted_as_often_as_it_runs(times: int) -> None:
    code = CountedCode(LOOP, {"sum": (0, 2)})
    for _ in range(2):
        counts = dict(zip(code.blocks, code.counts("sum", times, 0), strict=True))
        assert counts == {("sum", "entry"): 1, ("sum", "body"): times, ("sum", "done"): 1}


@pytest.mark.skipif(MCA is None, reason="needs llvm-mca-22")
def test_blocks_have_cycles_of_the_model_of_a_cpu() -> None:
    cycles = cycles_of(LOOP, CpuTarget.arm64(), Model("aarch64-unknown-linux-gnu", "neoverse-v2"), MCA or "")
    assert cycles["sum", "body"] >= 1
