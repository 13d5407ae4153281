"""A node of the operator library comes and goes: its attributes name the network, its state is made once."""

from enum import IntEnum
from typing import Final

from llvmlite import ir

from ...export.sparse_networks.node_format import FORMAT
from ...lowering.calls.slot_unpacking import emit_slot_unpacking
from ...lowering.calls.table import Header
from ...lowering.calls.words import Struct, Words, address, number, rarely
from ...lowering.llvm.flow import branch, loop
from ...lowering.llvm.values import I1, I32, Bytes, Number, Truth
from .api import ARENA_ALLOCATOR, DEFAULT_MEMORY, CustomOp, Slot
from .code import MESSAGE_BYTES, Api, OrtCode, emit_call_behind
from .compute import KERNEL_BYTES, Kernel
from .tables import (
    DIGEST_BYTES,
    HOST_VARIABLE,
    LEVELS,
    LIBRARY_TABLE,
    WEIGHTS_TABLE,
    HostWord,
    variant_words,
)

DIGEST_WORDS: Final = DIGEST_BYTES // 8

WEIGHTS_STATE: Final = "redpebble_weights"


class Unpacking(IntEnum):
    """States of the weights of a library."""

    Not = 0
    Begun = 1
    Done = 2


def emit_kernel(code: OrtCode) -> None:
    """Emit `create (op, api, info, kernel)`, which is CreateKernelV2, `destroy (kernel)`, `run (kernel, context)`."""
    code.variable(HOST_VARIABLE, len(HostWord))
    emit_call_behind(code, HOST_VARIABLE, HostWord.Behind)
    _emit_drop(code)
    _emit_find(code)
    emit_slot_unpacking(code)
    _emit_unpack_weights(code)
    _emit_from_library(code)
    _emit_from_host(code)
    _emit_check_counts(code)
    _emit_create(code)
    _emit_destroy(code)
    _emit_run(code)


class Operator(Struct):
    """Words of an operator in the library's table, see `LIBRARY_TABLE`."""

    name = address(Words)
    variant_count = number()
    variants = address(Words)
    kind = number()


def operator_of(code: OrtCode, op: Words) -> Operator:
    """Return an operator's row in the library's table."""
    return operators(code).row(op[CustomOp.Number])


def operators(code: OrtCode) -> Operator:
    """Return the rows of the library's table, which stand behind their number."""
    return code.table(LIBRARY_TABLE).at(1).cast(Operator)


def _emit_find(code: OrtCode) -> None:
    """Emit `find (op, digest, found) -> header`: the best code for this CPU, or null; `found` tells of a variant."""

    @code.function()
    def find(op: Words, digest: Words, found: Words) -> Words:
        row = operator_of(code, op)
        variants, usable = row.variants, code.number("cpu_levels")
        found[0] = 0
        with loop(row.variant_count) as index:
            variant = variants.at(index * variant_words(code.architecture.name))
            same = Truth(code.builder, ir.Constant(I1, 1))
            for word in range(DIGEST_WORDS):
                same &= variant[word] == digest[word]
            with rarely(same):
                found[0] = 1
                for number in reversed(range(len(LEVELS[code.architecture.name]))):
                    header = variant.to(DIGEST_WORDS + number)
                    is_usable = usable & (1 << number) != 0
                    with rarely(is_usable & ~header.is_null()):
                        code.leave(header)
        return code.null


def _emit_unpack_weights(code: OrtCode) -> None:
    """Emit `unpack_weights ()`, which returns when the weights of the library are unpacked, whoever does it."""
    code.variable(WEIGHTS_STATE, 1).linkage = "internal"

    @code.function()
    def unpack_weights() -> None:
        state, table = code.table(WEIGHTS_STATE), code.table(WEIGHTS_TABLE)
        is_first = state.replace(Unpacking.Not, Unpacking.Begun)
        with rarely(is_first):
            with loop(table[0]) as index:
                pair = table.at(2 * index + 1)
                code.call("unpack_slots", pair.to(0), pair.to(1))
            state.swap(Unpacking.Done, "release")
        code.wait_until(lambda: state.current() == Unpacking.Done)


def _emit_from_library(code: OrtCode) -> None:
    """Emit `from_library (op, api, info, header) -> status`."""

    @code.function()
    def from_library(op: Words, api: Api, info: Words, result: Words) -> Words:
        name, digest, size, found = (op.to(CustomOp.Name), *(code.words(n) for n in (DIGEST_WORDS + 1, 1, 1)))
        size[0] = DIGEST_BYTES + 1
        api.attempt(Slot.KernelInfoGetAttribute_string, info, code.text("digest"), digest, size)
        length = size[0] - 1
        is_other = length != DIGEST_BYTES
        code.fail_when(is_other, api, name, f": expected a digest of {DIGEST_BYTES} digits, got ", length)
        header = code.address("find", op, digest, found)
        missing = (name, ": the library has no code for the network with digest ", digest)
        code.fail_when(found[0] == 0, api, *missing, "; model and library must be built together")
        code.fail_when(header.is_null(), api, name, ": the library has no code for this CPU")
        code.call("unpack_weights")
        result[0] = header
        return code.null


def _emit_from_host(code: OrtCode) -> None:
    """Emit `from_host (op, api, info, header, owner) -> status`: Python compiles the network, or will run it itself.

    The owner is the host's number of the network, negative where the host runs it.
    """

    @code.function()
    def from_host(op: Words, api: Api, info: Words, result: Words, owner: Words) -> Words:
        name, text = op.to(CustomOp.Name), code.words(MESSAGE_BYTES // 8)
        compile_network = code.table(HOST_VARIABLE).to(HostWord.Make)
        needed = ": needs `import redpebble` in this process, or the library that was built ahead of time for the model"
        code.fail_when(compile_network.is_null(), api, name, needed)
        # where Python is interrupted at the last moment it writes nothing, nor returns anything of use
        result[0] = code.null
        text.cast(Bytes)[0] = 0
        made = compile_network.number_of(name, api, info, result, text)
        owner[0] = made
        code.call("call_behind")
        has_failed = owner[0] == 0
        code.fail_when(has_failed | result.to().is_null(), api, name, ": ", text)
        return code.null


def _emit_check_counts(code: OrtCode) -> None:
    """Emit `check_counts (op, api, info, header) -> status`."""

    @code.function()
    def check_counts(op: Words, api: Api, info: Words, header: Header) -> Words:
        name, found = op.to(CustomOp.Name), code.words()
        # constants follow the activations, and are what the network was made from
        api.attempt(Slot.KernelInfo_GetInputCount, info, found)
        count, expected = found[0], header.inputs
        code.fail_when(count < expected, api, name, ": expected ", expected, " inputs, got ", count)
        api.attempt(Slot.KernelInfo_GetOutputCount, info, found)
        count, expected = found[0], header.outputs
        code.fail_when(count != expected, api, name, ": expected ", expected, " outputs, got ", count)
        api.attempt(Slot.KernelInfoGetAttribute_int64, info, code.text("activations"), found)
        count, expected = found[0], header.inputs
        code.fail_when(count != expected, api, name, ": expected ", expected, " activations, got ", count)
        return code.null


def _emit_create(code: OrtCode) -> None:
    @code.function()
    def create(op: Words, api: Api, info: Words, result: Words) -> Words:
        found, header, owner, allocator = (code.words() for _ in range(4))
        result[0] = code.null
        api.attempt(Slot.KernelInfoGetAttribute_int64, info, code.text("format"), found)
        version = found[0]
        is_other = version != FORMAT
        name = op.to(CustomOp.Name)
        code.fail_when(is_other, api, name, f": expected format {FORMAT}, got ", version)
        # the network lies in the library, or the host makes it
        owner[0] = 0
        is_held = operator_of(code, op).variant_count > 0
        branch(
            is_held,
            lambda: code.address("from_library", op, api, info, header).pass_on(),
            lambda: code.address("from_host", op, api, info, header, owner).pass_on(),
        )
        status = code.address("check_counts", op, api, info, header.to())
        with rarely(~status.is_null()):
            code.call("drop", owner[0])
            code.leave(status)
        # the state of the node
        api.attempt(Slot.GetAllocatorWithDefaultOptions, allocator)
        api.attempt(Slot.AllocatorAlloc, allocator.to(), KERNEL_BYTES, result)
        kernel = result.to().cast(Kernel)
        kernel.api = api
        kernel.header = header.to()
        kernel.threads = code.number("cpu_count")
        kernel.shape_of = op.to(CustomOp.ShapeOf)
        kernel.owner = owner[0]
        kinds = [ir.Constant(I32, kind) for kind in (ARENA_ALLOCATOR, DEFAULT_MEMORY)]
        return api.ask(Slot.CreateCpuMemoryInfo, *kinds, kernel.at(Kernel.memory_info))


def _emit_destroy(code: OrtCode) -> None:
    @code.function()
    def destroy(kernel: Kernel) -> None:
        api, allocator = kernel.api, code.words()
        api.release(Slot.ReleaseMemoryInfo, kernel.memory_info)
        code.call("drop", kernel.owner)
        api.release(Slot.ReleaseStatus, api.ask(Slot.GetAllocatorWithDefaultOptions, allocator))
        api.release(Slot.ReleaseStatus, api.ask(Slot.AllocatorFree, allocator.to(), kernel))


def _emit_drop(code: OrtCode) -> None:
    """Emit `drop (owner)`: tell the host, where there is one, that a network is no longer used."""

    @code.function()
    def drop(owner: Number) -> None:
        drop_network = code.table(HOST_VARIABLE).to(HostWord.Drop)
        is_owned = owner != 0
        with rarely(is_owned & ~drop_network.is_null()):
            drop_network.call(owner)


def _emit_run(code: OrtCode) -> None:
    """Emit `run (kernel, context) -> status`, which is KernelComputeV2."""

    @code.function()
    def run(kernel: Kernel, context: Words) -> Words:
        owner = kernel.owner
        with rarely(owner < 0):
            api = kernel.api
            run_network = code.table(HOST_VARIABLE).to(HostWord.Run)
            code.fail_when(run_network.is_null(), api, "the network needs `import redpebble` in this process")
            status = run_network.address_of(owner, api, context)
            code.call("call_behind")
            code.leave(status)
        return code.address("compute", kernel, context)
