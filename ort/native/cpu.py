"""Features of the CPU and number of CPUs, asked at run time: no C library is needed."""

from functools import reduce
from typing import Final

from llvmlite import ir

from ...lowering.architectures import ARCHITECTURES, AUXILIARY
from ...lowering.calls.words import rarely
from ...lowering.llvm.flow import loop, select
from ...lowering.llvm.values import I32, Number, Truth, i64
from .code import OrtCode
from .tables import LEVEL_VARIABLE, LEVELS

AFFINITY_BYTES = 1024

HERE = -100
"""Linux: paths that openat takes as they are."""

AUXILIARY_BYTES: Final = 1024
"""More than the kernel tells in `AUXILIARY`; the library has no C library to ask."""

OS_SAVES = 1 << 27
"""CPUID 1, ECX: the operating system uses XSAVE, so that XGETBV tells which registers it keeps."""

FMA = 1 << 12
"""CPUID 1, ECX."""

AVX2 = 1 << 5
AVX512 = 1 << 16 | 1 << 17 | 1 << 28 | 1 << 30 | 1 << 31
"""CPUID 7, EBX: foundation, DQ, CD, BW, VL."""

AVX512_VNNI = 1 << 11
AVX512_VBMI = 1 << 1
"""CPUID 7, ECX."""

AVX_VNNI = 1 << 4
AVX512_BF16 = 1 << 5
"""CPUID 7, second part, EAX."""

YMM_STATE = 0x6
ZMM_STATE = 0xE6

AMD = (0x68747541, 0x444D4163, 0x69746E65)
"""CPUID 0, EBX, ECX, EDX: "AuthenticAMD", beginning with the last letters of each word."""


def emit_cpu(code: OrtCode) -> None:
    """Emit `cpu_levels () -> i64`, a bit for each usable one of `LEVELS`, and `cpu_count () -> i64`."""
    _emit_cpu_levels(code)
    _emit_cpu_count(code)


def _emit_cpu_levels(code: OrtCode) -> None:
    levels = LEVELS[code.architecture.name]
    code.variable(LEVEL_VARIABLE, 1, len(levels) - 1)

    @code.function()
    def cpu_levels() -> Number:
        usable = code.constant(1 << levels.index("generic"))
        for level, is_usable in _BEYOND_GENERIC[code.architecture.name](code, usable).items():
            usable |= select(is_usable, 1 << levels.index(level), 0)
        behind = code.constant(2) << code.table(LEVEL_VARIABLE)[0]
        return usable & (behind - 1)


def _levels_of_x86(code: OrtCode, generic: Number) -> dict[str, Truth]:
    """Return whether each level can be used; the function returns `generic` where there is no CPUID 7 or XGETBV."""
    basic = _cpuid(code, 1)[2]
    with rarely(~_has(basic, OS_SAVES)):
        code.leave(generic)
    with rarely(_cpuid(code, 0)[0].unsigned("<", 7)):
        code.leave(generic)
    kind = ir.FunctionType(ir.LiteralStructType([I32, I32]), [I32])
    state = code.builder.asm(kind, "xgetbv", "={ax},={dx},{cx}", [ir.Constant(I32, 0)], True)
    kept = Number(code.builder, code.builder.extract_value(state, 0))
    parts, extended, more, _ = _cpuid(code, 7)
    is_parted = parts.unsigned(">=", 1)
    second = select(is_parted, _cpuid(code, 7, 1)[0], parts.constant(0))

    def all_of(*conditions: Truth) -> Truth:
        return reduce(Truth.__and__, conditions)

    avx2 = all_of(_has(basic, FMA), _has(extended, AVX2), _has(kept, YMM_STATE))
    avx512 = all_of(avx2, _has(extended, AVX512), _has(kept, ZMM_STATE))
    avx512vnni = all_of(avx512, _has(more, AVX512_VNNI))
    return {
        "avx2": avx2,
        "avxvnni": all_of(avx2, _has(second, AVX_VNNI)),
        "avx512": avx512,
        "avx512vnni": avx512vnni,
        # its kernels were chosen for AMD: shuffles, which they need most, have one port in all others
        "zen4": all_of(avx512vnni, _has(more, AVX512_VBMI), _has(second, AVX512_BF16), _is_amd(code)),
    }


def _is_amd(code: OrtCode) -> Truth:
    words = zip(_cpuid(code, 0)[1:], AMD, strict=True)
    return reduce(Truth.__and__, (found == word for found, word in words))


def _cpuid(code: OrtCode, leaf: int, part: int = 0) -> list[Number]:
    """Return EAX, EBX, ECX, EDX."""
    kind = ir.FunctionType(ir.LiteralStructType([I32] * 4), [I32, I32])
    arguments = [ir.Constant(I32, leaf), ir.Constant(I32, part)]
    answer = code.builder.asm(kind, "cpuid", "={ax},={bx},={cx},={dx},{ax},{cx}", arguments, True)
    return [Number(code.builder, code.builder.extract_value(answer, index)) for index in range(4)]


def _has(register: Number, bits: int) -> Truth:
    return register & bits == bits


def _levels_of_arm(code: OrtCode, generic: Number) -> dict[str, Truth]:
    """Return the same by what the kernel says of the CPU in `AUXILIARY`; `generic` is all where that cannot be read."""
    words = code.words(AUXILIARY_BYTES // 8)
    opened = code.system_call("openat", i64(HERE), code.text(AUXILIARY).value, i64(0), i64(0))
    with rarely(opened < 0):
        code.leave(generic)
    count = code.system_call("read", opened.value, words.value, i64(AUXILIARY_BYTES))
    code.system_call("close", opened.value)
    known = ARCHITECTURES["aarch64"].capabilities
    keys = sorted({one.key for one in known})
    found = code.words(len(keys))
    for place in range(len(keys)):
        found[place] = 0
    with loop(select(count < 0, 0, count // 16)) as entry:
        for place, key in enumerate(keys):
            is_wanted = words[2 * entry] == key
            with rarely(is_wanted):
                found[place] = words[2 * entry + 1]
    has = {one.feature: _has(found[keys.index(one.key)], 1 << one.bit) for one in known}
    dotprod = has["dotprod"]
    return {"dotprod": dotprod, "i8mm": dotprod & has["i8mm"] & has["bf16"]}


_BEYOND_GENERIC: Final = {"x86_64": _levels_of_x86, "aarch64": _levels_of_arm}
"""Whether each level beyond the first can be used, by architecture."""


def _emit_cpu_count(code: OrtCode) -> None:
    """Emit `cpu_count () -> i64`, the CPUs on which this thread may run, at least 1."""

    @code.function()
    def cpu_count() -> Number:
        mask, total = code.words(AFFINITY_BYTES // 8), code.words()
        written = code.system_call("sched_getaffinity", i64(0), i64(AFFINITY_BYTES), mask.value)
        has_failed = written < 0
        total[0] = 0
        with loop(select(has_failed, 0, written // 8)) as index:
            total[0] += mask[index].set_bits()
        count = total[0]
        return select(count < 1, 1, count)
