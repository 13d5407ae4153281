"""One call of an operator inside onnxruntime: its threads, its memory, and errors in its words."""

from enum import IntEnum
from typing import Final

from ...lowering.calls.sizes import emit_sizes, round_up
from ...lowering.calls.split import emit_split
from ...lowering.calls.steps import emit_relax, emit_steps, emit_team
from ...lowering.calls.table import Frame, Header, Problem, Split
from ...lowering.calls.words import NULL
from ...lowering.llvm.builder import ALIGNMENT, I64, POINTER, i64
from .api import Slot
from .code import OrtCode
from .tensors import FRAME_WORDS, UNSET, OrtFrame, emit_tensors
from .thread_team import WAITING, emit_join

STACK_BYTES: Final = 16384
"""Memory of a call up to this size lies on the stack; a thread has much more."""


class Kernel(IntEnum):
    """Words of a node's state; all but the last are never changed, and that one changes no result."""

    Api = 0
    Header = 1
    MemoryInfo = 2
    Threads = 3
    ShapeOf = 4
    Owner = 5
    """Number by which the host knows the network, negative where the host runs it; 0 where it lies in the library."""
    SoloCalls = 6
    """Number of teams in a row that no other thread has joined."""


KERNEL_BYTES: Final = 56


def emit_compute(code: OrtCode) -> None:
    """Emit `compute (kernel, context) -> status`."""
    emit_relax(code, WAITING, x86=True)
    _emit_report(code)
    _emit_parallel(code)
    emit_sizes(code)
    emit_split(code)
    emit_team(code)
    emit_join(code)
    emit_steps(code, registers=True)
    emit_tensors(code)
    _emit_run_at(code)
    _emit_run_allocated(code)
    _emit_compute(code)


def _emit_report(code: OrtCode) -> None:
    """Emit `report (frame, problem, left, right) -> status`."""
    body = code.body("report", POINTER, [POINTER, I64, I64, I64])
    frame, problem, left, right = body.args
    api = body.pointer(frame, OrtFrame.Api)
    least, most = body.builder.neg(right), body.builder.sub(right, i64(1))
    for known, parts in {
        Problem.TooLarge: ("the sizes of the inputs are too large",),
        Problem.NoMultiple: ("size ", left, " is no multiple of ", right),
        Problem.NoNode: ("index ", left, " of ", right, " nodes, accepted are ", least, " to ", most),
        Problem.TooSmall: ("size ", left, " of the inputs, accepted is ", right, " or more"),
        Problem.TooManyEdges: (left, " edges between ", right, " nodes, accepted are less than 2147483648"),
    }.items():
        body.fail_when(body.builder.icmp_signed("==", problem, i64(known)), api, *parts)
    body.builder.ret(body.status(api, "sizes ", left, " and ", right, " of the inputs differ, expected the same"))


def _emit_parallel(code: OrtCode) -> None:
    """Emit `parallel (frame, function, memory, workers) -> status` by onnxruntime's threads."""
    body = code.body("parallel", POINTER, [POINTER, POINTER, POINTER, I64])
    frame, function, memory, workers = body.args
    api, context = body.pointer(frame, OrtFrame.Api), body.pointer(frame, OrtFrame.Context)
    # a batch a number: they shall all be taken up at once
    body.builder.ret(body.ort(api, Slot.KernelContext_ParallelFor, context, function, workers, workers, memory))


def _emit_run_at(code: OrtCode) -> None:
    """Emit `run_at (frame, base) -> status`; behind `base` lie the temporaries, then a scratch area a worker."""
    body = code.body("run_at", POINTER, [POINTER, POINTER])
    frame, base = body.args
    body.call("lay_out", frame, base)
    body.builder.ret(body.call("run_steps", frame, body.number(frame, Frame.Threads)))


def _emit_run_allocated(code: OrtCode) -> None:
    """Emit `run_allocated (frame, bytes, allocator) -> status`: the steps, on memory of onnxruntime's arena."""
    body = code.body("run_allocated", POINTER, [POINTER, I64, POINTER])
    builder, (frame, size, allocator) = body.builder, body.args
    api, room = body.pointer(frame, OrtFrame.Api), body.words(1)
    body.attempt(api, Slot.AllocatorAlloc, allocator, builder.add(size, i64(ALIGNMENT)), room)
    start = body.pointer(room)
    padding = builder.and_(builder.neg(builder.ptrtoint(start, I64)), i64(ALIGNMENT - 1))
    status = body.call("run_at", frame, body.behind(start, padding))
    freed = body.ort(api, Slot.AllocatorFree, allocator, start)
    builder.ret(builder.select(body.is_null(status), freed, status))


def _emit_compute(code: OrtCode) -> None:
    body = code.body("compute", POINTER, [POINTER, POINTER])
    builder, (kernel, context) = body.builder, body.args
    api, header, frame = body.pointer(kernel, Kernel.Api), body.pointer(kernel, Kernel.Header), body.words(FRAME_WORDS)
    inputs, outputs = body.number(header, Header.Inputs), body.number(header, Header.Outputs)
    symbols = builder.add(body.number(header, Header.Symbols), i64(1))
    buffers = builder.add(builder.add(inputs, outputs), body.number(header, Header.Temporaries))
    body.put(frame, OrtFrame.Api, api)
    body.put(frame, OrtFrame.Context, context)
    body.put(frame, Frame.Header, header)
    body.put(frame, Frame.Symbols, body.fresh_words(symbols))
    body.put(frame, Frame.Values, body.fresh_words(builder.add(body.number(header, Header.Expressions), i64(1))))
    body.put(frame, Frame.Buffers, body.fresh_words(buffers))
    splits = builder.mul(body.number(header, Header.Steps), i64(len(Split)))
    body.put(frame, Frame.Splits, body.fresh_words(splits))
    body.put(frame, Frame.Threads, body.number(kernel, Kernel.Threads))
    body.put(frame, OrtFrame.Dims, body.fresh_words(builder.add(body.number(header, Header.MostRank), i64(1))))
    body.put(frame, OrtFrame.ShapeOf, body.pointer(kernel, Kernel.ShapeOf))
    body.put(frame, OrtFrame.SoloCalls, body.at(kernel, Kernel.SoloCalls))
    with body.each(symbols) as index:
        body.put(body.pointer(frame, Frame.Symbols), index, i64(UNSET))
    for name in ("read_inputs", "evaluate", "write_outputs"):
        body.pass_on(body.call(name, frame))
    scratch = builder.mul(body.call("split", frame), body.number(header, Header.ScratchBytes))
    size = builder.add(body.call("lay_out", frame, NULL), scratch)
    with body.when(builder.icmp_signed("<=", size, i64(STACK_BYTES)), likely=True):
        room = body.fresh_words(builder.udiv(round_up(body, builder.add(size, i64(ALIGNMENT))), i64(8)))
        padding = builder.and_(builder.neg(builder.ptrtoint(room, I64)), i64(ALIGNMENT - 1))
        builder.ret(body.call("run_at", frame, body.behind(room, padding)))
    allocator = body.words(1)
    memory_info = body.pointer(kernel, Kernel.MemoryInfo)
    body.attempt(api, Slot.KernelContext_GetAllocator, context, memory_info, allocator)
    status = body.call("run_allocated", frame, size, body.pointer(allocator))
    body.release(api, Slot.ReleaseAllocator, body.pointer(allocator))
    builder.ret(status)
