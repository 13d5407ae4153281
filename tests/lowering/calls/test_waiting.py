"""What a thread does between two looks at a flag."""

import ctypes
from collections.abc import Sequence

from llvmlite import ir

from redpebble.lowering.architectures import Architecture
from redpebble.lowering.calls.steps import LOOKS, NAP_NANOSECONDS, YIELDS, Waiting, emit_relax
from redpebble.lowering.calls.words import WordCode, Words
from redpebble.lowering.cpu_target import CpuTarget
from redpebble.lowering.llvm.values import POINTER, Number, i64
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
    code = WordCode(ir.Module("waiting"))

    def function(callback: object) -> Words:
        address = ctypes.cast(callback, ctypes.c_void_p).value  # pyright: ignore[reportArgumentType]
        return Words(code.builder, i64(address or 0).inttoptr(POINTER))

    waiting = Waiting(SPINS, lambda _: function(others).call(), lambda _, time: function(nap).call(time))
    emit_relax(code, waiting, Architecture("none"))

    @code.function(exported=True)
    def look(_: Words, looks: Number) -> None:
        code.call("relax", looks)

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
