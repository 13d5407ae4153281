"""The operator library: `RegisterCustomOps` and all it leads to, the same module for every library.

What differs between libraries stands in a table (see `ort_tables.py`) that another part of the shared object holds:
the operators' names, and the networks that were compiled ahead of time.
"""

from typing import Final

from llvmlite import ir

from ...export.sparse_networks.node_format import DOMAIN
from ...lowering.calls.words import NULL, AddressOf
from ...lowering.llvm.builder import BYTE, I32, I64, POINTER, i64
from .api import (
    API_VERSION,
    CUSTOM_OP_WORDS,
    DEFAULT_MEMORY,
    EVERY_VERSION,
    SHAPE_VERSION,
    TENSOR_UNDEFINED,
    VARIADIC,
    CustomOp,
    Slot,
)
from .code import OrtBody, OrtCode, emit_messages
from .compute import emit_compute
from .cpu import emit_cpu
from .node import emit_kernel, operator_row
from .shape_inference import emit_describe, emit_shapes
from .tables import HOST_VARIABLE, LEVEL_VARIABLE, LIBRARY_TABLE, OPERATOR_WORDS

REGISTER: Final = "RegisterCustomOps"
EXPORTS: Final = (REGISTER, HOST_VARIABLE, LEVEL_VARIABLE)

REGISTRATION: Final = "registration"
"""Variable: what the last registration made: its `OrtApi`, its domain, its operators."""
REGISTRATION_WORDS: Final = 2

MINOR_DIGITS: Final = 3

ANSWERS: Final[dict[CustomOp, tuple[ir.Type, int]]] = {
    CustomOp.GetInputType: (I32, TENSOR_UNDEFINED),
    CustomOp.GetInputTypeCount: (I64, 1),
    CustomOp.GetOutputTypeCount: (I64, 1),
    CustomOp.GetInputCharacteristic: (I32, VARIADIC),
    CustomOp.GetOutputCharacteristic: (I32, VARIADIC),
    CustomOp.GetInputMemoryType: (I32, DEFAULT_MEMORY),
    CustomOp.GetVariadicInputMinArity: (I32, 1),
    CustomOp.GetVariadicInputHomogeneity: (I32, 0),
    CustomOp.GetVariadicOutputMinArity: (I32, 1),
    CustomOp.GetVariadicOutputHomogeneity: (I32, 0),
    CustomOp.GetStartVersion: (I32, 1),
    CustomOp.GetEndVersion: (I32, EVERY_VERSION),
}
"""Functions of an operator that always say the same: activations, then constants of any type, give floats
or codes, where shape inference or the model says so."""

OPERATOR_FUNCTIONS: Final[dict[CustomOp, str]] = {
    CustomOp.GetName: "name",
    CustomOp.GetOutputType: "output_type",
    CustomOp.GetExecutionProviderType: "provider",
    CustomOp.KernelDestroy: "destroy",
    CustomOp.CreateKernelV2: "create",
    CustomOp.KernelComputeV2: "run",
    CustomOp.InferOutputShapeFn: "infer_shapes",
}


def library_module() -> str:
    """Return the LLVM IR of the library for x86-64."""
    code = OrtCode(ir.Module("redpebble-onnxruntime"))
    code.external(LIBRARY_TABLE)
    for emit in (emit_messages, emit_cpu, emit_compute, emit_kernel, emit_describe, emit_shapes):
        emit(code)
    _emit_answers(code)
    _emit_registration(code)
    _emit_minor_version(code)
    _emit_register(code)
    return str(code.module)


def _emit_answers(code: OrtCode) -> None:
    for word, (kind, value) in ANSWERS.items():
        body = code.body(word.name, kind, [POINTER, I64])
        body.builder.ret(ir.Constant(kind, value))
    body = code.body("output_type", I32, [POINTER, I64])
    row = operator_row(body, body.args[0])
    body.builder.ret(body.builder.trunc(body.number(row, 3), I32))
    body = code.body("name", POINTER, [POINTER])
    body.builder.ret(body.pointer(body.args[0], CustomOp.Name))
    body = code.body("provider", POINTER, [POINTER])
    body.builder.ret(NULL)  # the CPU's


def _emit_registration(code: OrtCode) -> None:
    """Emit `registered (api, shape_of, result)`: operators and their domain, which live as long as the process."""
    body = code.body("registered", POINTER, [POINTER] * 3)
    builder, (api, shape_of, result) = body.builder, body.args
    table = code.module.get_global(LIBRARY_TABLE)
    count, allocator, domain = body.number(table), body.words(1), body.words(1)
    size = builder.mul(builder.add(builder.mul(count, i64(CUSTOM_OP_WORDS)), i64(REGISTRATION_WORDS)), i64(8))
    body.attempt(api, Slot.GetAllocatorWithDefaultOptions, allocator)
    body.attempt(api, Slot.AllocatorAlloc, body.pointer(allocator), size, result)
    made = body.pointer(result)
    body.attempt(api, Slot.CreateCustomOpDomain, code.text(DOMAIN), domain)
    body.put(made, 0, api)
    body.put(made, 1, body.pointer(domain))
    with body.each(count) as index:
        offset = builder.add(builder.mul(index, i64(CUSTOM_OP_WORDS)), i64(REGISTRATION_WORDS))
        op = body.at(made, offset)
        _fill_operator(body, op)
        row = builder.add(builder.mul(index, i64(OPERATOR_WORDS)), i64(1))
        body.put(op, CustomOp.Name, body.pointer(table, row))
        body.put(op, CustomOp.Number, index)
        body.put(op, CustomOp.Api, api)
        body.put(op, CustomOp.ShapeOf, shape_of)
        body.attempt(api, Slot.CustomOpDomain_Add, body.pointer(domain), op)
    builder.ret(NULL)


def _fill_operator(body: OrtBody, op: ir.Value) -> None:
    names = {**{word: word.name for word in ANSWERS}, **OPERATOR_FUNCTIONS}
    for word in range(CustomOp.Name):
        value: ir.Value = AddressOf(body.code.functions[names[CustomOp(word)]]) if word in names else NULL
        body.put(op, word, value)
    body.put(op, CustomOp.Version, i64(API_VERSION))


def _emit_minor_version(code: OrtCode) -> None:
    """Emit `minor_version (base) -> i64`: the 24 of "1.24.0"; asking `GetApi` for too much would print a complaint."""
    body = code.body("minor_version", I64, [POINTER])
    builder, (base,) = body.builder, body.args
    text = body.call_at(body.pointer(base, 1), POINTER, [])
    minor = body.words(1)
    body.put(minor, 0, i64(0))
    with body.each(i64(MINOR_DIGITS)) as index:
        letter = builder.zext(builder.load(body.behind(text, builder.add(index, i64(2))), typ=BYTE), I64)
        digit = builder.sub(letter, i64(ord("0")))
        with body.when(builder.icmp_unsigned(">", digit, i64(9))):
            builder.ret(body.number(minor))
        body.put(minor, 0, builder.add(builder.mul(body.number(minor), i64(10)), digit))
    builder.ret(body.number(minor))


def _emit_register(code: OrtCode) -> None:
    """Emit `RegisterCustomOps (options, base) -> status`; sessions after the first share what it made."""
    registration = code.variable(REGISTRATION, 1)
    registration.linkage = "internal"
    body = code.body(REGISTER, POINTER, [POINTER, POINTER], exported=True)
    builder, (options, base) = body.builder, body.args
    get_api = body.pointer(base)
    api = body.call_at(get_api, POINTER, [ir.Constant(I32, API_VERSION)])
    with body.when(body.is_null(api)):
        first = body.call_at(get_api, POINTER, [ir.Constant(I32, 1)])
        builder.ret(body.status(first, "redpebble needs onnxruntime 1.17 or newer"))
    known, result = builder.load_atomic(registration, "acquire", 8, typ=POINTER), body.words(1)
    shape_of = body.words(1)
    body.put(result, 0, known)
    is_new = builder.icmp_unsigned("==", known, NULL)
    with body.when(builder.not_(is_new), likely=True):
        is_other = builder.icmp_unsigned("!=", body.pointer(known), api)
        with body.when(is_other):
            body.put(result, 0, NULL)  # a second onnxruntime in this process
    with body.when(body.is_null(body.pointer(result))):
        body.put(shape_of, 0, NULL)
        is_newer = builder.icmp_unsigned(">=", body.call("minor_version", base), i64(SHAPE_VERSION))
        with body.when(is_newer, likely=True):
            newer = body.call_at(get_api, POINTER, [ir.Constant(I32, SHAPE_VERSION)])
            body.put(shape_of, 0, body.pointer(newer, Slot.GetTensorElementTypeAndShapeDataReference))
        body.pass_on(body.call("registered", api, body.pointer(shape_of), result))
        builder.atomic_rmw("xchg", registration, body.pointer(result), "release")
    builder.ret(body.ort(api, Slot.AddCustomOpDomain, options, body.pointer(body.pointer(result), 1)))
