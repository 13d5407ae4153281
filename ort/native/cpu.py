"""Features of the CPU and number of CPUs, asked at run time: no C library is needed."""

from llvmlite import ir

from redpebble.lowering.llvm.builder import I32, I64, POINTER, i64
from redpebble.ort.native.code import OrtBody, OrtCode
from redpebble.ort.native.tables import LEVEL_VARIABLE, LEVELS

AFFINITY_BYTES = 1024
GET_AFFINITY = 204
"""Linux on x86-64: sched_getaffinity (thread, bytes, mask) gives the bytes it wrote."""

OS_SAVES = 1 << 27
"""CPUID 1, ECX: the operating system uses XSAVE, so that XGETBV tells which registers it keeps."""

FMA = 1 << 12
AVX2 = 1 << 5
AVX512 = 1 << 16 | 1 << 17 | 1 << 28 | 1 << 30 | 1 << 31
"""CPUID 7, EBX: foundation, DQ, CD, BW, VL."""

YMM_STATE = 0x6
ZMM_STATE = 0xE6


def emit_cpu(code: OrtCode) -> None:
    """Emit `cpu_level () -> i64`, the highest usable of `LEVELS`, and `cpu_count () -> i64`, of x86-64."""
    _emit_cpu_level(code)
    _emit_cpu_count(code)


def _emit_cpu_level(code: OrtCode) -> None:
    limit = code.variable(LEVEL_VARIABLE, 1, len(LEVELS) - 1)
    body = code.body("cpu_level", I64, [])
    builder = body.builder
    basic = _cpuid(body, 1)[2]
    saves = _has(body, basic, OS_SAVES)
    with body.when(builder.not_(saves)):
        builder.ret(i64(0))
    highest = _cpuid(body, 0)[0]
    with body.when(builder.icmp_unsigned("<", highest, ir.Constant(I32, 7))):
        builder.ret(i64(0))
    kind = ir.FunctionType(ir.LiteralStructType([I32, I32]), [I32])
    state = builder.asm(kind, "xgetbv", "={ax},={dx},{cx}", [ir.Constant(I32, 0)], True)
    kept, extended = builder.extract_value(state, 0), _cpuid(body, 7)[1]
    has_avx2 = builder.and_(_has(body, basic, FMA), _has(body, extended, AVX2))
    has_avx2 = builder.and_(has_avx2, _has(body, kept, YMM_STATE))
    has_avx512 = builder.and_(_has(body, extended, AVX512), _has(body, kept, ZMM_STATE))
    with_avx2 = builder.select(has_avx2, i64(LEVELS.index("avx2")), i64(0))
    level = builder.select(builder.and_(has_avx2, has_avx512), i64(LEVELS.index("avx512")), with_avx2)
    most = body.number(limit)
    builder.ret(builder.select(builder.icmp_signed("<", level, most), level, most))


def _cpuid(body: OrtBody, leaf: int) -> list[ir.Value]:
    """Return EAX, EBX, ECX, EDX."""
    kind = ir.FunctionType(ir.LiteralStructType([I32] * 4), [I32, I32])
    arguments = [ir.Constant(I32, leaf), ir.Constant(I32, 0)]
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
