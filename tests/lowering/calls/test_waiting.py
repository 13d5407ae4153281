"""What a thread does between two looks at a flag."""

import ctypes
from collections.abc import Sequence

from llvmlite import ir

from redpebble.lowering.calls.steps import LOOKS, NAP_NANOSECONDS, YIELDS, Waiting, emit_relax
from redpebble.lowering.calls.words import WordCode
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.llvm.builder import I64, POINTER, VOID, i64
from redpebble.runtime.jit import emit_object, load_object

SPINS = 100


def what_it_does(looks: Sequence[int]) -> list[str]:
    """What a thread did after numbers of looks, as two functions of this test saw it."""
    seen = list[str]()
    others = ctypes.CFUNCTYPE(None)(lambda: seen.append("yield"))

    def sleep(address: int) -> None:
        seconds, nanoseconds = ctypes.cast(address, ctypes.POINTER(ctypes.c_int64))[:2]
        seen.append(f"sleep {seconds} {nanoseconds}")

    nap = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(sleep)
    yields_at, naps_at = (i64(ctypes.cast(one, ctypes.c_void_p).value or 0).inttoptr(POINTER) for one in (others, nap))
    code = WordCode(ir.Module("waiting"))
    waiting = Waiting(
        SPINS,
        lambda body: body.run_function(yields_at, []),
        lambda body, time: body.run_function(naps_at, [time]),
    )
    emit_relax(code, waiting, x86=False)
    body = code.body("look", VOID, [POINTER, I64], exported=True)
    body.call("relax", body.args[1])
    body.builder.ret_void()
    loaded = load_object(emit_object(str(code.module), CpuTarget.generic()), {"look": (1, 1)})
    for number in looks:
        before = len(seen)
        loaded.functions["look"](0, number)
        if len(seen) == before:
            seen.append("spin")
    return seen


def test_a_thread_spins_then_lets_others_run_then_sleeps() -> None:
    first, last = 4 * LOOKS - 1, SPINS + YIELDS * LOOKS
    assert first - LOOKS < SPINS <= first
    late = -(-(last + 1) // LOOKS) * LOOKS - 1
    seen = what_it_does([0, first - LOOKS, first - 1, first, first + 1, late - LOOKS, late])
    assert seen == ["spin", "spin", "spin", "yield", "spin", "yield", f"sleep 0 {NAP_NANOSECONDS}"]
