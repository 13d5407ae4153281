"""Features of the CPU and number of CPUs, asked at run time: no C library is needed."""

from functools import reduce

from llvmlite import ir

from ...lowering.calls.words import rarely
from ...lowering.llvm.flow import loop, select
from ...lowering.llvm.values import I32, I64, POINTER, Number, Truth, i64
from .code import OrtCode
from .tables import LEVEL_VARIABLE, LEVELS

AFFINITY_BYTES = 1024
GET_AFFINITY = 204
"""Linux on x86-64: sched_getaffinity (thread, bytes, mask) gives the bytes it wrote."""

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
    """Emit `cpu_levels () -> i64`, a bit for each usable one of `LEVELS`, and `cpu_count () -> i64`, of x86-64."""
    _emit_cpu_levels(code)
    _emit_cpu_count(code)


def _emit_cpu_levels(code: OrtCode) -> None:
    code.variable(LEVEL_VARIABLE, 1, len(LEVELS) - 1)

    @code.function()
    def cpu_levels() -> Number:
        generic = code.constant(1 << LEVELS.index("generic"))
        basic = _cpuid(code, 1)[2]
        with rarely(~_has(basic, OS_SAVES)):
            code.leave(generic)
        with rarely(_cpuid(code, 0)[0].unsigned("<", 7)):
            code.leave(generic)
        usable = generic
        for level, is_usable in _beyond_generic(code, basic).items():
            usable |= select(is_usable, 1 << LEVELS.index(level), 0)
        behind = code.constant(2) << code.table(LEVEL_VARIABLE)[0]
        return usable & (behind - 1)


def _beyond_generic(code: OrtCode, basic: Number) -> dict[str, Truth]:
    """Return whether each level can be used; `basic` is ECX of CPUID 1, and there are CPUID 7 and XGETBV."""
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


def _emit_cpu_count(code: OrtCode) -> None:
    """Emit the count of the CPUs on which this thread may run, at least 1."""

    @code.function()
    def cpu_count() -> Number:
        mask, total = code.words(AFFINITY_BYTES // 8), code.words()
        kind = ir.FunctionType(I64, [I64, I64, I64, POINTER])
        constraint = "={rax},{rax},{rdi},{rsi},{rdx},~{rcx},~{r11},~{memory}"
        arguments = [i64(GET_AFFINITY), i64(0), i64(AFFINITY_BYTES), mask.value]
        written = Number(code.builder, code.builder.asm(kind, "syscall", constraint, arguments, True))
        has_failed = written < 0
        total[0] = 0
        with loop(select(has_failed, 0, written // 8)) as index:
            total[0] += mask[index].set_bits()
        count = total[0]
        return select(count < 1, 1, count)
