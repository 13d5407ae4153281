"""The operator library: `RegisterCustomOps` and all it leads to, the same module for every library.

What differs between libraries stands in a table (see `ort_tables.py`) that another part of the shared object holds:
the operators' names, and the networks that were compiled ahead of time.
"""

from typing import Final

from llvmlite import ir

from ...export.sparse_networks.node_format import DOMAIN
from ...lowering.architectures import Architecture
from ...lowering.calls.words import Words, rarely
from ...lowering.llvm.flow import loop, when
from ...lowering.llvm.values import I32, I64, Bytes, Number
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
from .code import Api, OrtCode, emit_messages
from .compute import emit_compute
from .cpu import emit_cpu
from .node import emit_kernel, operator_of, operators
from .shape_inference import emit_describe, emit_shapes
from .tables import HOST_VARIABLE, LEVEL_VARIABLE, LIBRARY_TABLE, WEIGHTS_TABLE

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


def library_module(architecture: Architecture) -> str:
    """Return the LLVM IR of the library for an architecture."""
    code = OrtCode(ir.Module("redpebble-onnxruntime"), architecture=architecture)
    code.external(LIBRARY_TABLE)
    code.external(WEIGHTS_TABLE)
    for emit in (emit_messages, emit_cpu, emit_compute, emit_kernel, emit_describe, emit_shapes):
        emit(code)
    _emit_answers(code)
    _emit_registration(code)
    _emit_minor_version(code)
    _emit_register(code)
    return str(code.module)


def _emit_answers(code: OrtCode) -> None:
    for word, (kind, value) in ANSWERS.items():
        _emit_answer(code, word.name, ir.Constant(kind, value))

    @code.function(returns=I32)
    def output_type(op: Words, _: Number) -> Number:
        return operator_of(code, op).kind.narrow(I32)

    @code.function()
    def name(op: Words) -> Words:
        return op.to(CustomOp.Name)

    @code.function()
    def provider(_: Words) -> Words:
        return code.null  # the CPU's


def _emit_answer(code: OrtCode, name: str, known: ir.Constant) -> None:
    @code.function(name, returns=known.type)
    def answer(_op: Words, _: Number) -> Number:
        return Number(code.builder, known)


def _emit_registration(code: OrtCode) -> None:
    """Emit `registered (api, shape_of, result)`: operators and their domain, which live as long as the process."""

    @code.function()
    def registered(api: Api, shape_of: Words, result: Words) -> Words:
        count, allocator, domain = code.table(LIBRARY_TABLE)[0], code.words(), code.words()
        size = (count * CUSTOM_OP_WORDS + REGISTRATION_WORDS) * 8
        api.attempt(Slot.GetAllocatorWithDefaultOptions, allocator)
        api.attempt(Slot.AllocatorAlloc, allocator.to(), size, result)
        made = result.to()
        api.attempt(Slot.CreateCustomOpDomain, code.text(DOMAIN), domain)
        made[0] = api
        made[1] = domain.to()
        with loop(count) as index:
            op = made.at(index * CUSTOM_OP_WORDS + REGISTRATION_WORDS)
            _fill_operator(code, op)
            op[CustomOp.Name] = operators(code).row(index).name
            op[CustomOp.Number] = index
            op[CustomOp.Api] = api
            op[CustomOp.ShapeOf] = shape_of
            api.attempt(Slot.CustomOpDomain_Add, domain.to(), op)
        return code.null


def _fill_operator(code: OrtCode, op: Words) -> None:
    names = {**{word: word.name for word in ANSWERS}, **OPERATOR_FUNCTIONS}
    for word in range(CustomOp.Name):
        op[word] = code.address_of(names[CustomOp(word)]) if word in names else code.null
    op[CustomOp.Version] = API_VERSION


def _emit_minor_version(code: OrtCode) -> None:
    """Emit `minor_version (base) -> i64`: the 24 of "1.24.0"; asking `GetApi` for too much would print a complaint."""

    @code.function()
    def minor_version(base: Words) -> Number:
        text = base.to(1).address_of().cast(Bytes)
        minor = code.words()
        minor[0] = 0
        with loop(code.constant(MINOR_DIGITS)) as index:
            digit = text[index + 2] - ord("0")
            with rarely(digit.unsigned(">", 9)):
                code.leave(minor[0])
            minor[0] = minor[0] * 10 + digit
        return minor[0]


def _emit_register(code: OrtCode) -> None:
    """Emit `RegisterCustomOps (options, base) -> status`; sessions after the first share what it made."""
    code.variable(REGISTRATION, 1).linkage = "internal"

    @code.function(REGISTER, exported=True)
    def register(options: Words, base: Words) -> Words:
        get_api, registration = base.to(), code.table(REGISTRATION)
        api = get_api.address_of(ir.Constant(I32, API_VERSION)).cast(Api)
        with rarely(api.is_null()):
            first = get_api.address_of(ir.Constant(I32, 1)).cast(Api)
            code.leave(code.status(first, "redpebble needs onnxruntime 1.17 or newer"))
        # what an earlier registration made, unless it was for a second onnxruntime in this process
        known, result = registration.current_address(), code.words()
        shape_of = code.words()
        result[0] = known
        is_new = known.is_null()
        with when(~is_new, likely=True):
            is_other = ~known.to().is_same(api)
            with rarely(is_other):
                result[0] = code.null
        with rarely(result.to().is_null()):
            shape_of[0] = code.null
            is_newer = code.number("minor_version", base).unsigned(">=", SHAPE_VERSION)
            with when(is_newer, likely=True):
                newer = get_api.address_of(ir.Constant(I32, SHAPE_VERSION))
                shape_of[0] = newer.to(Slot.GetTensorElementTypeAndShapeDataReference)
            code.address("registered", api, shape_of.to(), result).pass_on()
            registration.swap(result.to(), "release")
        return api.ask(Slot.AddCustomOpDomain, options, result.to().to(1))
