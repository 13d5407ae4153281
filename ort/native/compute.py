"""One call of an operator inside onnxruntime: its threads, its memory, and errors in its words."""

from typing import Final

from ...lowering.calls.sizes import emit_sizes, round_up
from ...lowering.calls.split import emit_split
from ...lowering.calls.steps import Host, emit_relax, emit_steps, emit_team
from ...lowering.calls.table import Header, Problem, Split
from ...lowering.calls.words import Struct, Words, address, number
from ...lowering.llvm.flow import loop, select, when
from ...lowering.llvm.values import ALIGNMENT, Number
from .api import Slot
from .code import Api, OrtCode
from .tensors import UNSET, OrtFrame, emit_tensors
from .waiting import WAITING

ALONE_UNTIL: Final = "redpebble_alone_until"
"""The variable of the time until which steps are done by one thread each: what other programs take, all nodes lack."""

STACK_BYTES: Final = 16384
"""Memory of a call up to this size lies on the stack; a thread has much more."""


class Kernel(Struct):
    """Words of a node's state, which are never changed."""

    api = address(Api)
    header = address(Header)
    memory_info = address(Words)
    threads = number()
    shape_of = address(Words)
    owner = number()
    """Number by which the host knows the network, negative where the host runs it; 0 where it lies in the library."""


KERNEL_BYTES: Final = 48


def emit_compute(code: OrtCode) -> None:
    """Emit `compute (kernel, context) -> status`."""
    host = Host(code.architecture, WAITING, waits_itself=True, alone_until=lambda _: code.table(ALONE_UNTIL))
    emit_relax(code, WAITING, code.architecture)
    _emit_report(code)
    _emit_parallel(code)
    emit_sizes(code)
    emit_split(code)
    emit_team(code, host)
    code.variable(ALONE_UNTIL, 1).linkage = "internal"
    emit_steps(code, host)
    emit_tensors(code)
    _emit_run_at(code)
    _emit_run_allocated(code)
    _emit_compute(code)


def _emit_report(code: OrtCode) -> None:
    """Emit `report (frame, problem, left, right) -> status`."""

    @code.function()
    def report(frame: OrtFrame, problem: Number, left: Number, right: Number) -> Words:
        api = frame.api
        least, most = -right, right - 1
        for known, parts in {
            Problem.TooLarge: ("the sizes of the inputs are too large",),
            Problem.NoMultiple: ("size ", left, " is no multiple of ", right),
            Problem.NoNode: ("expected indices of ", right, " nodes, ", least, " to ", most, ", got ", left),
            Problem.TooSmall: ("expected size ", right, " or more of the inputs, got ", left),
            Problem.TooManyEdges: ("expected fewer than 2147483648 edges and nodes, got ", left, " and ", right),
        }.items():
            code.fail_when(problem == known, api, *parts)
        return code.status(api, "expected equal sizes of the inputs, got ", left, " and ", right)


def _emit_parallel(code: OrtCode) -> None:
    """Emit `parallel (frame, function, memory, workers) -> status` by onnxruntime's threads."""

    @code.function()
    def parallel(frame: OrtFrame, function: Words, memory: Words, workers: Number) -> Words:
        api, context = frame.api, frame.context
        # a batch a number: they shall all be taken up at once
        return api.ask(Slot.KernelContext_ParallelFor, context, function, workers, workers, memory)


def _emit_run_at(code: OrtCode) -> None:
    """Emit `run_at (frame, base) -> status`; behind `base` lie the temporaries, then areas of scratch memory."""

    @code.function()
    def run_at(frame: OrtFrame, base: Words) -> Words:
        code.call("lay_out", frame, base)
        return code.address("run_steps", frame, frame.threads)


def _emit_run_allocated(code: OrtCode) -> None:
    """Emit `run_allocated (frame, bytes, allocator) -> status`: the steps, on memory of onnxruntime's arena."""

    @code.function()
    def run_allocated(frame: OrtFrame, size: Number, allocator: Words) -> Words:
        api, room = frame.api, code.words()
        api.attempt(Slot.AllocatorAlloc, allocator, size + ALIGNMENT, room)
        start = room.to()
        status = code.address("run_at", frame, _aligned(start))
        freed = api.ask(Slot.AllocatorFree, allocator, start)
        return select(status.is_null(), freed, status)


def _aligned(room: Words) -> Words:
    """Return the first multiple of a cache line in a room."""
    return room.after(-room.number() & (ALIGNMENT - 1))


def _emit_compute(code: OrtCode) -> None:
    @code.function()
    def compute(kernel: Kernel, context: Words) -> Words:
        api, header, frame = kernel.api, kernel.header, code.words(OrtFrame.word_count).cast(OrtFrame)
        inputs, outputs = header.inputs, header.outputs
        symbols = header.symbols + 1
        buffers = inputs + outputs + header.temporaries
        frame.api = api
        frame.context = context
        frame.header = header
        frame.symbols = code.fresh_words(symbols)
        frame.values = code.fresh_words(header.expressions + 1)
        frame.buffers = code.fresh_words(buffers)
        frame.splits = code.fresh_words(header.steps * Split.word_count)
        frame.threads = kernel.threads
        frame.dims = code.fresh_words(header.most_rank + 1)
        frame.shape_of = kernel.shape_of
        with loop(symbols) as index:
            frame.symbols[index] = UNSET
        for name in ("read_inputs", "evaluate", "write_outputs"):
            code.address(name, frame).pass_on()
        # small memory lies on the stack, large memory comes from onnxruntime's arena
        scratch = code.number("split", frame) * frame.scratch_bytes
        size = code.number("lay_out", frame, code.null) + scratch
        with when(size <= STACK_BYTES, likely=True):
            room = code.fresh_words(round_up(size + ALIGNMENT) // 8)
            code.leave(code.address("run_at", frame, _aligned(room)))
        allocator = code.words()
        api.attempt(Slot.KernelContext_GetAllocator, context, kernel.memory_info, allocator)
        status = code.address("run_allocated", frame, size, allocator.to())
        api.release(Slot.ReleaseAllocator, allocator.to())
        return status
