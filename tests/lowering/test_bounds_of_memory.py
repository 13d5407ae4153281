"""Code touches no memory but what it is given: networks whose memory stands against pages that nobody may touch."""

import ctypes
import faulthandler
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pytest

from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.driver import lower
from redpebble.runtime.memory import address_of
from redpebble.runtime.network import Network
from tests.lowering.networks_of_every_kind import KINDS, MORE_IMAGES
from tests.support.guarded_memory import NOT_WRITTEN, Side, guard, guarded
from tests.support.lowering_modules import best_target_first, object_of

ROOT: Final = Path(__file__).parents[2]


def end_of(work: Callable[[], bool]) -> str:
    """How a process of its own ends that does some work: what it says, or the signal that ended it."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            faulthandler.disable()  # the stack of Python says nothing about native code
            code = 0 if work() else 1
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return signal.Signals(-code).name if code < 0 else ("right", "wrong", "an exception")[code]


@pytest.mark.parametrize("side", Side)
def test_a_guard_ends_who_touches_it(side: Side) -> None:
    block = guarded(70, side, 1)

    def read(offset: int) -> bool:
        return ctypes.c_uint8.from_address(address_of(block) + offset).value == NOT_WRITTEN

    ends = [end_of(lambda place=place: read(place)) for place in (-1, 0, 69, 70)]
    assert ends[1:3] == ["right"] * 2
    assert ends[0 if side is Side.BEGIN else 3] == "SIGSEGV"


@best_target_first
@pytest.mark.parametrize("kind", [*KINDS, *(pytest.param(kind, marks=pytest.mark.slow) for kind in MORE_IMAGES)])
def test_code_stays_within_its_memory(kind: str, target: CpuTarget) -> None:
    module, calls = (KINDS | MORE_IMAGES)[kind](target)
    program = lower(module, target)
    image = object_of(program.llvm_ir, target)
    expected = [Network(program, image).run(None, feeds) for feeds in calls]

    def is_right(side: Side) -> bool:
        guard(pytest.MonkeyPatch(), side)
        network = Network(program, image)
        found = [network.run(None, feeds) for feeds in calls]
        return all(
            np.array_equal(one, other, equal_nan=True)
            for ones, others in zip(found, expected, strict=True)
            for one, other in zip(ones, others, strict=True)
        )

    assert {side: end_of(lambda side=side: is_right(side)) for side in Side} == dict.fromkeys(Side, "right")


TESTS: Final = (
    *("lowering/" + name for name in ("attention", "gradients", "graphs", "images", "kernels", "quantized", "tiles")),
    "end_to_end/test_encoders.py",
    "end_to_end/test_images.py",
    "end_to_end/test_quantized.py",
    "end_to_end/test_quantized_convolutions.py",
    "end_to_end/test_quantized_transformers.py",
)


@pytest.mark.slow
@pytest.mark.parametrize("side", Side)
@pytest.mark.parametrize("tests", TESTS)
def test_code_of_other_tests_stays_within_its_memory(tests: str, side: Side) -> None:
    plugin = ("-p", "no:cacheprovider", "-p", "tests.support.guarded_memory", "--guard", side)
    words = [sys.executable, "-X", "faulthandler", "-m", "pytest", "-q", *plugin, f"tests/{tests}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=3600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
