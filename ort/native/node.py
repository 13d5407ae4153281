"""A node of the operator library comes and goes: its attributes name the network, its state is made once."""

from typing import Final

from llvmlite import ir

from ...export.sparse_networks.node_format import FORMAT
from ...lowering.calls.table import Header
from ...lowering.calls.words import NULL
from ...lowering.llvm.builder import BYTE, I32, I64, POINTER, VOID, i64
from .api import ARENA_ALLOCATOR, DEFAULT_MEMORY, CustomOp, Slot
from .code import MESSAGE_BYTES, OrtBody, OrtCode, emit_call_behind
from .compute import KERNEL_BYTES, Kernel
from .tables import (
    DIGEST_BYTES,
    HOST_VARIABLE,
    LEVELS,
    LIBRARY_TABLE,
    OPERATOR_WORDS,
    VARIANT_WORDS,
    HostWord,
)

DIGEST_WORDS: Final = DIGEST_BYTES // 8


def emit_kernel(code: OrtCode) -> None:
    """Emit `create (op, api, info, kernel)`, which is CreateKernelV2, `destroy (kernel)`, `run (kernel, context)`."""
    code.variable(HOST_VARIABLE, len(HostWord))
    emit_call_behind(code, HOST_VARIABLE, HostWord.Behind)
    _emit_drop(code)
    _emit_find(code)
    _emit_from_library(code)
    _emit_from_host(code)
    _emit_check_counts(code)
    _emit_create(code)
    _emit_destroy(code)
    _emit_run(code)


def operator_row(body: OrtBody, op: ir.Value) -> ir.Value:
    """Return an operator's row in the library's table."""
    number = body.number(op, CustomOp.Number)
    offset = body.builder.add(body.builder.mul(number, i64(OPERATOR_WORDS)), i64(1))
    return body.at(body.code.module.get_global(LIBRARY_TABLE), offset)


def _emit_find(code: OrtCode) -> None:
    """Emit `find (op, digest, found) -> header`: the best code for this CPU, or null; `found` tells of a variant."""
    body = code.body("find", POINTER, [POINTER, POINTER, POINTER])
    builder, (op, digest, found) = body.builder, body.args
    row = operator_row(body, op)
    variants, usable = body.pointer(row, 2), body.call("cpu_levels")
    body.put(found, 0, i64(0))
    with body.each(body.number(row, 1)) as index:
        variant = body.at(variants, builder.mul(index, i64(VARIANT_WORDS)))
        same: ir.Value = ir.Constant(ir.IntType(1), 1)
        for word in range(DIGEST_WORDS):
            equal = builder.icmp_unsigned("==", body.number(variant, word), body.number(digest, word))
            same = builder.and_(same, equal)
        with body.when(same):
            body.put(found, 0, i64(1))
            for number in reversed(range(len(LEVELS))):
                header = body.pointer(variant, DIGEST_WORDS + number)
                is_usable = builder.icmp_signed("!=", builder.and_(usable, i64(1 << number)), i64(0))
                with body.when(builder.and_(is_usable, builder.not_(body.is_null(header)))):
                    builder.ret(header)
    builder.ret(NULL)


def _emit_from_library(code: OrtCode) -> None:
    """Emit `from_library (op, api, info, header) -> status`."""
    body = code.body("from_library", POINTER, [POINTER] * 4)
    builder, (op, api, info, result) = body.builder, body.args
    name, digest, size, found = (body.pointer(op, CustomOp.Name), *(body.words(n) for n in (DIGEST_WORDS + 1, 1, 1)))
    body.put(size, 0, i64(DIGEST_BYTES + 1))
    body.attempt(api, Slot.KernelInfoGetAttribute_string, info, code.text("digest"), digest, size)
    length = builder.sub(body.number(size), i64(1))
    is_other = builder.icmp_signed("!=", length, i64(DIGEST_BYTES))
    body.fail_when(is_other, api, name, ": digest has ", length, f" digits, expected {DIGEST_BYTES}")
    header = body.call("find", op, digest, found)
    missing = (name, ": the library has no code for the network with digest ", digest)
    is_new = builder.icmp_signed("==", body.number(found), i64(0))
    body.fail_when(is_new, api, *missing, "; model and library must be built together")
    body.fail_when(body.is_null(header), api, name, ": the library has no code for this CPU")
    body.put(result, 0, header)
    builder.ret(NULL)


def _emit_from_host(code: OrtCode) -> None:
    """Emit `from_host (op, api, info, header, owner) -> status`: Python compiles the network, or will run it itself.

    The owner is the host's number of the network, negative where the host runs it.
    """
    body = code.body("from_host", POINTER, [POINTER] * 5)
    builder, (op, api, info, result, owner) = body.builder, body.args
    name, text = body.pointer(op, CustomOp.Name), body.words(MESSAGE_BYTES // 8)
    compile_network = body.pointer(code.module.get_global(HOST_VARIABLE), HostWord.Make)
    needed = ": needs `import redpebble` in this process, or the library that was built ahead of time for the model"
    body.fail_when(body.is_null(compile_network), api, name, needed)
    # where Python is interrupted at the last moment it writes nothing, nor returns anything of use
    body.put(result, 0, NULL)
    builder.store(ir.Constant(BYTE, 0), text)
    body.put(owner, 0, body.call_at(compile_network, I64, [name, api, info, result, text]))
    body.call("call_behind")
    failed = builder.icmp_signed("==", body.number(owner), i64(0))
    body.fail_when(builder.or_(failed, body.is_null(body.pointer(result))), api, name, ": ", text)
    builder.ret(NULL)


def _emit_check_counts(code: OrtCode) -> None:
    """Emit `check_counts (op, api, info, header) -> status`."""
    body = code.body("check_counts", POINTER, [POINTER] * 4)
    builder, (op, api, info, header) = body.builder, body.args
    name, found = body.pointer(op, CustomOp.Name), body.words(1)
    counts = (("input", Slot.KernelInfo_GetInputCount), ("output", Slot.KernelInfo_GetOutputCount))
    for (what, slot), word in zip(counts, (Header.Inputs, Header.Outputs), strict=True):
        body.attempt(api, slot, info, found)
        count, expected = body.number(found), body.number(header, word)
        # constants follow the activations, and are what the network was made from
        comparison = "<" if word == Header.Inputs else "!="
        wrong = builder.icmp_signed(comparison, count, expected)
        body.fail_when(wrong, api, name, ": the node has ", count, f" {what}s, expected ", expected)
    body.attempt(api, Slot.KernelInfoGetAttribute_int64, info, code.text("activations"), found)
    count, expected = body.number(found), body.number(header, Header.Inputs)
    wrong = builder.icmp_signed("!=", count, expected)
    body.fail_when(wrong, api, name, ": the node has ", count, " activations, expected ", expected)
    builder.ret(NULL)


def _emit_create(code: OrtCode) -> None:
    body = code.body("create", POINTER, [POINTER] * 4)
    builder, (op, api, info, result) = body.builder, body.args
    found, header, owner, allocator = (body.words(1) for _ in range(4))
    body.put(result, 0, NULL)
    body.attempt(api, Slot.KernelInfoGetAttribute_int64, info, code.text("format"), found)
    version = body.number(found)
    is_other = builder.icmp_signed("!=", version, i64(FORMAT))
    name = body.pointer(op, CustomOp.Name)
    body.fail_when(is_other, api, name, ": the node has format ", version, f", expected {FORMAT}")
    body.put(owner, 0, i64(0))
    is_held = builder.icmp_signed(">", body.number(operator_row(body, op), 1), i64(0))
    with builder.if_else(is_held) as (held, made):
        with held:
            body.pass_on(body.call("from_library", op, api, info, header))
        with made:
            body.pass_on(body.call("from_host", op, api, info, header, owner))
    status = body.call("check_counts", op, api, info, body.pointer(header))
    with body.when(builder.not_(body.is_null(status))):
        body.call("drop", body.number(owner))
        builder.ret(status)
    body.attempt(api, Slot.GetAllocatorWithDefaultOptions, allocator)
    body.attempt(api, Slot.AllocatorAlloc, body.pointer(allocator), i64(KERNEL_BYTES), result)
    kernel = body.pointer(result)
    body.put(kernel, Kernel.Api, api)
    body.put(kernel, Kernel.Header, body.pointer(header))
    body.put(kernel, Kernel.Threads, body.call("cpu_count"))
    body.put(kernel, Kernel.ShapeOf, body.pointer(op, CustomOp.ShapeOf))
    body.put(kernel, Kernel.SoloCalls, i64(0))
    body.put(kernel, Kernel.Owner, body.number(owner))
    kinds = [ir.Constant(I32, kind) for kind in (ARENA_ALLOCATOR, DEFAULT_MEMORY)]
    builder.ret(body.ort(api, Slot.CreateCpuMemoryInfo, *kinds, body.at(kernel, Kernel.MemoryInfo)))


def _emit_destroy(code: OrtCode) -> None:
    body = code.body("destroy", VOID, [POINTER])
    (kernel,) = body.args
    api, allocator = body.pointer(kernel, Kernel.Api), body.words(1)
    body.release(api, Slot.ReleaseMemoryInfo, body.pointer(kernel, Kernel.MemoryInfo))
    body.call("drop", body.number(kernel, Kernel.Owner))
    body.release(api, Slot.ReleaseStatus, body.ort(api, Slot.GetAllocatorWithDefaultOptions, allocator))
    body.release(api, Slot.ReleaseStatus, body.ort(api, Slot.AllocatorFree, body.pointer(allocator), kernel))
    body.builder.ret_void()


def _emit_drop(code: OrtCode) -> None:
    """Emit `drop (owner)`: tell the host, where there is one, that a network is no longer used."""
    body = code.body("drop", VOID, [I64])
    builder, (owner,) = body.builder, body.args
    drop_network = body.pointer(code.module.get_global(HOST_VARIABLE), HostWord.Drop)
    is_owned = builder.icmp_signed("!=", owner, i64(0))
    with body.when(builder.and_(is_owned, builder.not_(body.is_null(drop_network)))):
        body.call_at(drop_network, VOID, [owner])
    builder.ret_void()


def _emit_run(code: OrtCode) -> None:
    """Emit `run (kernel, context) -> status`, which is KernelComputeV2."""
    body = code.body("run", POINTER, [POINTER, POINTER])
    builder, (kernel, context) = body.builder, body.args
    owner = body.number(kernel, Kernel.Owner)
    with body.when(builder.icmp_signed("<", owner, i64(0))):
        api = body.pointer(kernel, Kernel.Api)
        run_network = body.pointer(code.module.get_global(HOST_VARIABLE), HostWord.Run)
        body.fail_when(body.is_null(run_network), api, "the network needs `import redpebble` in this process")
        status = body.call_at(run_network, POINTER, [owner, api, context])
        body.call("call_behind")
        builder.ret(status)
    builder.ret(body.call("compute", kernel, context))
