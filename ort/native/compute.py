"""One call of an operator: its steps one after the other, each cut into pieces that onnxruntime's threads take."""

from enum import IntEnum
from typing import Final

from llvmlite import ir

from redpebble.lowering.llvm.builder import ALIGNMENT, I64, POINTER, VOID, i64
from redpebble.ort.native.api import Slot
from redpebble.ort.native.code import NULL, AddressOf, Body, OrtCode
from redpebble.ort.native.sizes import FRAME_WORDS, UNSET, Frame, round_up
from redpebble.ort.native.split import TOGETHER, emit_split
from redpebble.ort.native.tables import STEP_WORDS, Header, Step
from redpebble.ort.native.thread_team import CREW_WORDS, Crew, emit_crew

STACK_BYTES: Final = 16384
"""Memory of a call up to this size lies on the stack; a thread has much more."""


class Kernel(IntEnum):
    """Words of a node's state; all but the last are never changed, and that one changes no result."""

    Api = 0
    Header = 1
    MemoryInfo = 2
    Cpus = 3
    ShapeOf = 4
    Owner = 5
    """What the host knows the network by; 0 where it lies in the library."""
    Company = 6
    """How often in a row no thread came to help."""


KERNEL_BYTES: Final = 56


class Job(IntEnum):
    """Words of a step that several threads work on."""

    Function = 0
    Frame = 1
    Scratch = 2
    Rows = 3
    Chunk = 4
    Next = 5


JOB_WORDS: Final = 6


def emit_compute(code: OrtCode) -> None:
    """Emit `compute (kernel, context) -> status`, which is KernelComputeV2."""
    emit_split(code)
    emit_crew(code)
    _emit_work(code)
    _emit_run_step(code)
    _emit_run_steps(code)
    _emit_run_allocated(code)
    _emit_compute(code)


def _emit_work(code: OrtCode) -> None:
    """Emit `work (job, number)`: take pieces until none is left, with the scratch area of that number."""
    body = code.body("work", VOID, [POINTER, I64])
    builder, (job, number) = body.builder, body.args
    frame, rows, chunk = body.pointer(job, Job.Frame), body.number(job, Job.Rows), body.number(job, Job.Chunk)
    header = body.pointer(frame, Frame.Header)
    offset = builder.mul(number, body.number(header, Header.ScratchBytes))
    tables = [
        body.pointer(frame, Frame.Buffers),
        body.pointer(header, Header.Constants),
        body.pointer(frame, Frame.Values),
        body.behind(body.pointer(job, Job.Scratch), offset),
    ]
    loop, piece, done = (builder.append_basic_block(name) for name in ("loop", "piece", "done"))
    builder.branch(loop)
    builder.position_at_end(loop)
    begin = builder.atomic_rmw("add", body.at(job, Job.Next), chunk, "monotonic")
    builder.cbranch(builder.icmp_signed("<", begin, rows), piece, done)
    builder.position_at_end(piece)
    end = builder.add(begin, chunk)
    end = builder.select(builder.icmp_signed("<", end, rows), end, rows)
    body.call_at(body.pointer(job, Job.Function), VOID, [*tables, begin, end])
    builder.branch(loop)
    builder.position_at_end(done)
    builder.ret_void()


def _emit_run_step(code: OrtCode) -> None:
    """Emit `run_step (frame, step, scratch) -> status`."""
    body = code.body("run_step", POINTER, [POINTER, POINTER, POINTER])
    builder, (frame, step, scratch) = body.builder, body.args
    header, values = body.pointer(frame, Frame.Header), body.pointer(frame, Frame.Values)
    rows, workers = body.call("step_rows", frame, step), body.call("workers", frame, step)
    with body.when(builder.icmp_signed("<=", workers, i64(1)), likely=True):
        tables = [body.pointer(frame, Frame.Buffers), body.pointer(header, Header.Constants), values, scratch]
        body.call_at(body.pointer(step, Step.Function), VOID, [*tables, i64(0), rows])
        builder.ret(NULL)
    with body.when(builder.icmp_signed("==", body.call("split", frame, step), i64(TOGETHER))):
        crew = body.words(CREW_WORDS)
        with body.each(i64(CREW_WORDS)) as index:
            body.put(crew, index, i64(0))
        body.put(crew, Crew.Frame, frame)
        body.put(crew, Crew.Step, step)
        body.put(crew, Crew.Scratch, scratch)
        body.put(crew, Crew.Rows, rows)
        body.put(crew, Crew.Wanted, workers)
        builder.ret(_parallel(body, frame, ("join_crew", crew), workers))
    job = body.words(JOB_WORDS)
    body.put(job, Job.Function, body.pointer(step, Step.Function))
    body.put(job, Job.Frame, frame)
    body.put(job, Job.Scratch, scratch)
    body.put(job, Job.Rows, rows)
    body.put(job, Job.Chunk, body.call("chunk", frame, step))
    body.put(job, Job.Next, i64(0))
    builder.ret(_parallel(body, frame, ("work", job), workers))


def _parallel(body: Body, frame: ir.Value, task: tuple[str, ir.Value], workers: ir.Value) -> ir.Value:
    """Have onnxruntime's threads call a function (memory, number) for the numbers below `workers`."""
    name, memory = task
    context, function = body.pointer(frame, Frame.Context), AddressOf(body.code.functions[name])
    api = body.pointer(frame, Frame.Api)
    # a batch a number: they shall all be taken up at once
    return body.ort(api, Slot.KernelContext_ParallelFor, context, function, workers, workers, memory)


def _emit_run_steps(code: OrtCode) -> None:
    """Emit `run_steps (frame, base) -> status`; behind `base` lie the temporaries, then a scratch area a worker."""
    body = code.body("run_steps", POINTER, [POINTER, POINTER])
    builder, (frame, base) = body.builder, body.args
    header = body.pointer(frame, Frame.Header)
    scratch = body.behind(base, body.call("lay_out", frame, base))
    with body.each(body.number(header, Header.Steps)) as index:
        step = body.at(body.pointer(header, Header.StepTable), builder.mul(index, i64(STEP_WORDS)))
        body.pass_on(body.call("run_step", frame, step, scratch))
    builder.ret(NULL)


def _emit_run_allocated(code: OrtCode) -> None:
    """Emit `run_allocated (frame, bytes, allocator) -> status`: the steps, on memory of onnxruntime's arena."""
    body = code.body("run_allocated", POINTER, [POINTER, I64, POINTER])
    builder, (frame, size, allocator) = body.builder, body.args
    api, room = body.pointer(frame, Frame.Api), body.words(1)
    body.attempt(api, Slot.AllocatorAlloc, allocator, builder.add(size, i64(ALIGNMENT)), room)
    start = body.pointer(room)
    padding = builder.and_(builder.neg(builder.ptrtoint(start, I64)), i64(ALIGNMENT - 1))
    status = body.call("run_steps", frame, body.behind(start, padding))
    freed = body.ort(api, Slot.AllocatorFree, allocator, start)
    builder.ret(builder.select(body.is_null(status), freed, status))


def _emit_compute(code: OrtCode) -> None:
    body = code.body("compute", POINTER, [POINTER, POINTER])
    builder, (kernel, context) = body.builder, body.args
    api, header, frame = body.pointer(kernel, Kernel.Api), body.pointer(kernel, Kernel.Header), body.words(FRAME_WORDS)
    inputs, outputs = body.number(header, Header.Inputs), body.number(header, Header.Outputs)
    symbols = builder.add(body.number(header, Header.Symbols), i64(1))
    buffers = builder.add(builder.add(inputs, outputs), body.number(header, Header.Temporaries))
    body.put(frame, Frame.Api, api)
    body.put(frame, Frame.Context, context)
    body.put(frame, Frame.Header, header)
    body.put(frame, Frame.Symbols, body.fresh_words(symbols))
    body.put(frame, Frame.Values, body.fresh_words(builder.add(body.number(header, Header.Expressions), i64(1))))
    body.put(frame, Frame.Buffers, body.fresh_words(buffers))
    body.put(frame, Frame.Dims, body.fresh_words(builder.add(body.number(header, Header.MostRank), i64(1))))
    body.put(frame, Frame.Cpus, body.number(kernel, Kernel.Cpus))
    body.put(frame, Frame.ShapeOf, body.pointer(kernel, Kernel.ShapeOf))
    body.put(frame, Frame.Company, body.at(kernel, Kernel.Company))
    with body.each(symbols) as index:
        body.put(body.pointer(frame, Frame.Symbols), index, i64(UNSET))
    for name in ("read_inputs", "evaluate", "write_outputs"):
        body.pass_on(body.call(name, frame))
    most = body.words(1)
    body.put(most, 0, i64(1))
    with body.each(body.number(header, Header.Steps)) as index:
        step = body.at(body.pointer(header, Header.StepTable), builder.mul(index, i64(STEP_WORDS)))
        workers, known = body.call("workers", frame, step), body.number(most)
        body.put(most, 0, builder.select(builder.icmp_signed(">", workers, known), workers, known))
    scratch = builder.mul(body.number(most), body.number(header, Header.ScratchBytes))
    size = builder.add(body.call("lay_out", frame, NULL), scratch)
    with body.when(builder.icmp_signed("<=", size, i64(STACK_BYTES)), likely=True):
        room = body.fresh_words(builder.udiv(round_up(body, builder.add(size, i64(ALIGNMENT))), i64(8)))
        padding = builder.and_(builder.neg(builder.ptrtoint(room, I64)), i64(ALIGNMENT - 1))
        builder.ret(body.call("run_steps", frame, body.behind(room, padding)))
    allocator = body.words(1)
    memory_info = body.pointer(kernel, Kernel.MemoryInfo)
    body.attempt(api, Slot.KernelContext_GetAllocator, context, memory_info, allocator)
    status = body.call("run_allocated", frame, size, body.pointer(allocator))
    body.release(api, Slot.ReleaseAllocator, body.pointer(allocator))
    builder.ret(status)
