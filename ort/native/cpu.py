"""Features of the CPU and number of CPUs, asked at run time: no C library is needed."""

from functools import reduce

from llvmlite import ir

from ...lowering.llvm.builder import I32, I64, POINTER, i64
from .code import OrtBody, OrtCode
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
    limit = code.variable(LEVEL_VARIABLE, 1, len(LEVELS) - 1)
    body = code.body("cpu_levels", I64, [])
    builder = body.builder
    generic = i64(1 << LEVELS.index("generic"))
    basic = _cpuid(body, 1)[2]
    with body.when(builder.not_(_has(body, basic, OS_SAVES))):
        builder.ret(generic)
    with body.when(builder.icmp_unsigned("<", _cpuid(body, 0)[0], ir.Constant(I32, 7))):
        builder.ret(generic)
    usable = generic
    for level, is_usable in _beyond_generic(body, basic).items():
        usable = builder.or_(usable, builder.select(is_usable, i64(1 << LEVELS.index(level)), i64(0)))
    behind = builder.shl(i64(2), body.number(limit))
    builder.ret(builder.and_(usable, builder.sub(behind, i64(1))))


def _beyond_generic(body: OrtBody, basic: ir.Value) -> dict[str, ir.Value]:
    """Return whether each level can be used; `basic` is ECX of CPUID 1, and there are CPUID 7 and XGETBV."""
    builder = body.builder
    kind = ir.FunctionType(ir.LiteralStructType([I32, I32]), [I32])
    state = builder.asm(kind, "xgetbv", "={ax},={dx},{cx}", [ir.Constant(I32, 0)], True)
    kept = builder.extract_value(state, 0)
    parts, extended, more, _ = _cpuid(body, 7)
    is_parted = builder.icmp_unsigned(">=", parts, ir.Constant(I32, 1))
    second = builder.select(is_parted, _cpuid(body, 7, 1)[0], ir.Constant(I32, 0))

    def all_of(*conditions: ir.Value) -> ir.Value:
        return reduce(builder.and_, conditions)

    avx2 = all_of(_has(body, basic, FMA), _has(body, extended, AVX2), _has(body, kept, YMM_STATE))
    avx512 = all_of(avx2, _has(body, extended, AVX512), _has(body, kept, ZMM_STATE))
    avx512vnni = all_of(avx512, _has(body, more, AVX512_VNNI))
    return {
        "avx2": avx2,
        "avxvnni": all_of(avx2, _has(body, second, AVX_VNNI)),
        "avx512": avx512,
        "avx512vnni": avx512vnni,
        # its kernels were chosen for AMD: shuffles, which they need most, have one port in all others
        "zen4": all_of(avx512vnni, _has(body, more, AVX512_VBMI), _has(body, second, AVX512_BF16), _is_amd(body)),
    }


def _is_amd(body: OrtBody) -> ir.Value:
    words = zip(_cpuid(body, 0)[1:], AMD, strict=True)
    same = (body.builder.icmp_unsigned("==", found, ir.Constant(I32, word)) for found, word in words)
    return reduce(body.builder.and_, same)


def _cpuid(body: OrtBody, leaf: int, part: int = 0) -> list[ir.Value]:
    """Return EAX, EBX, ECX, EDX."""
    kind = ir.FunctionType(ir.LiteralStructType([I32] * 4), [I32, I32])
    arguments = [ir.Constant(I32, leaf), ir.Constant(I32, part)]
    answer = body.builder.asm(kind, "cpuid", "={ax},={bx},={cx},={dx},{ax},{cx}", arguments, True)
    return [body.builder.extract_value(answer, index) for index in range(4)]


def _has(body: OrtBody, register: ir.Value, bits: int) -> ir.Value:
    mask = ir.Constant(I32, bits)
    return body.builder.icmp_unsigned("==", body.builder.and_(register, mask), mask)


def _emit_cpu_count(code: OrtCode) -> None:
    """Emit the count of the CPUs on which this thread may run, at least 1."""
    body = code.body("cpu_count", I64, [])
    builder = body.builder
    mask, total = body.words(AFFINITY_BYTES // 8), body.words(1)
    kind = ir.FunctionType(I64, [I64, I64, I64, POINTER])
    constraint = "={rax},{rax},{rdi},{rsi},{rdx},~{rcx},~{r11},~{memory}"
    arguments = [i64(GET_AFFINITY), i64(0), i64(AFFINITY_BYTES), mask]
    written = builder.asm(kind, "syscall", constraint, arguments, True)
    failed = builder.icmp_signed("<", written, i64(0))
    body.put(total, 0, i64(0))
    with body.each(builder.select(failed, i64(0), builder.udiv(written, i64(8)))) as index:
        body.put(total, 0, builder.add(body.number(total), builder.ctpop(body.number(mask, index))))
    count = body.number(total)
    builder.ret(builder.select(builder.icmp_signed("<", count, i64(1)), i64(1), count))
