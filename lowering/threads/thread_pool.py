"""Threads that run the steps of a network together: a module of its own, the same for every network.

The threads themselves are the caller's: each calls `work (pool, id)` with an id from 1 on, and returns from it after
`stop (pool)`. `run (pool, call)` is id 0: it hands `call` to the others, does its own share, and returns when all are
done. Every thread goes through all steps: it does its own range of a step's rows, then those that all do together, and
none begins a step before all have done the one before. Who waits for work spins, then sleeps; who waits inside a call
lets others run.
"""

from typing import Final

POOL_BYTES: Final = 640
"""Zeroed memory for a pool, aligned to 64 bytes; `prepare (pool, threads)` makes it one."""

CALL_WORDS: Final = 6
"""64-bit words of a call: steps, their number, buffers, constants, sizes, scratch areas."""

STEP_WORDS: Final = 4
"""64-bit words of a step: its function, the one for what all do together, from which row to which; 2 for each thread
follow, from which row to which it works alone."""

SPINS: Final = 1000
"""Looks at a flag before a thread that waits lets others run in between: some tens of microseconds."""

YIELDS: Final = 1000
"""Times that a thread without work lets others run before it sleeps: a few milliseconds, for calls come in bursts and
to wake a thread takes as long as a small call."""

LOOKS: Final = 32
"""Looks at a flag between two times that a thread lets others run."""


def pool_module(*, x86: bool, linux: bool) -> str:
    """Return the LLVM IR of the pool.

    Only on x86 a spinning thread can tell the core that it spins. Linux likes to wake a thread where its waker runs,
    which goes on running: there a thread moves away before it works.
    """
    pause = "declare void @llvm.x86.sse2.pause()" if x86 else "define internal void @rest() { ret void }"
    text = _POOL.replace("@PAUSE", "@llvm.x86.sse2.pause" if x86 else "@rest")
    for name, number in (("SPINS", SPINS), ("YIELDS", YIELDS), ("LOOKS", LOOKS)):
        text = text.replace(name, str(number))
    return f"{pause}\n{_MOVE if linux else _STAY}\n{text}"


_STAY: Final = """
define internal i32 @sched_getcpu() {
  ret i32 -1
}

define internal void @move_away(ptr %pool) {
  ret void
}
"""

# a cpu_set_t has 128 bytes; without the core both are on, the mask may be empty, which the system refuses
_MOVE: Final = """
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @sched_setaffinity(i32, i64, ptr)

define internal void @move_away(ptr %pool) {
entry:
  %mask = alloca [128 x i8], align 8
  %place = getelementptr i8, ptr %pool, i64 204
  %waker = load atomic i32, ptr %place acquire, align 4
  %own = call i32 @sched_getcpu()
  %together = icmp eq i32 %own, %waker
  br i1 %together, label %look, label %done
look:
  %failed = call i32 @sched_getaffinity(i32 0, i64 128, ptr %mask)
  %known = icmp eq i32 %failed, 0
  br i1 %known, label %move, label %done
move:
  %index = lshr i32 %own, 3
  %byte = getelementptr i8, ptr %mask, i32 %index
  %bits = load i8, ptr %byte
  %number = and i32 %own, 7
  %bit = shl i32 1, %number
  %narrow = trunc i32 %bit to i8
  %other = xor i8 %narrow, -1
  %rest = and i8 %bits, %other
  store i8 %rest, ptr %byte
  %a = call i32 @sched_setaffinity(i32 0, i64 128, ptr %mask)
  store i8 %bits, ptr %byte
  %b = call i32 @sched_setaffinity(i32 0, i64 128, ptr %mask)
  br label %done
done:
  ret void
}
"""

# Words of the pool, in bytes: 0 generation, 64 threads that arrived at a barrier, 128 barriers passed, 192 sleepers,
# 196 stop, 200 threads, 204 the core of who woke the sleepers last, 256 call, 320 mutex, 448 condition. Each counter
# has a cache line of its own.
_POOL: Final = """
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_broadcast(ptr)
declare i32 @sched_yield()

define void @prepare(ptr %pool, i64 %threads) {
  %count = getelementptr i8, ptr %pool, i64 200
  %narrow = trunc i64 %threads to i32
  store i32 %narrow, ptr %count
  %mutex = getelementptr i8, ptr %pool, i64 320
  %condition = getelementptr i8, ptr %pool, i64 448
  %a = call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  %b = call i32 @pthread_cond_init(ptr %condition, ptr null)
  ret void
}

define internal void @wake(ptr %pool) {
  %mutex = getelementptr i8, ptr %pool, i64 320
  %condition = getelementptr i8, ptr %pool, i64 448
  %a = call i32 @pthread_mutex_lock(ptr %mutex)
  %b = call i32 @pthread_cond_broadcast(ptr %condition)
  %c = call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}

define void @run(ptr %pool, ptr %call) {
  %place = getelementptr i8, ptr %pool, i64 256
  store ptr %call, ptr %place
  %generation = atomicrmw add ptr %pool, i32 1 seq_cst
  %sleepers = getelementptr i8, ptr %pool, i64 192
  %asleep = load atomic i32, ptr %sleepers seq_cst, align 4
  %any = icmp sgt i32 %asleep, 0
  br i1 %any, label %rouse, label %share
rouse:
  %core = call i32 @sched_getcpu()
  %core.at = getelementptr i8, ptr %pool, i64 204
  store atomic i32 %core, ptr %core.at release, align 4
  call void @wake(ptr %pool)
  br label %share
share:
  call void @do_share(ptr %pool, ptr %call, i64 0)
  ret void
}

define void @stop(ptr %pool) {
  %flag = getelementptr i8, ptr %pool, i64 196
  store atomic i32 1, ptr %flag seq_cst, align 4
  %generation = atomicrmw add ptr %pool, i32 1 seq_cst
  call void @wake(ptr %pool)
  ret void
}

define void @work(ptr %pool, i64 %id) {
entry:
  %sleepers = getelementptr i8, ptr %pool, i64 192
  %flag = getelementptr i8, ptr %pool, i64 196
  %place = getelementptr i8, ptr %pool, i64 256
  %mutex = getelementptr i8, ptr %pool, i64 320
  %condition = getelementptr i8, ptr %pool, i64 448
  br label %wait
wait:
  %seen = phi i32 [ 0, %entry ], [ %now, %begin ]
  br label %spin
spin:
  %looks = phi i32 [ SPINS, %wait ], [ %less, %again ], [ LOOKS, %yield ]
  %yields = phi i32 [ YIELDS, %wait ], [ %yields, %again ], [ %fewer, %yield ]
  %new = load atomic i32, ptr %pool acquire, align 4
  %changed = icmp ne i32 %new, %seen
  br i1 %changed, label %awake, label %again
again:
  call void @PAUSE()
  %less = sub i32 %looks, 1
  %tired = icmp eq i32 %less, 0
  br i1 %tired, label %yield, label %spin
yield:
  %f = call i32 @sched_yield()
  %fewer = sub i32 %yields, 1
  %idle = icmp eq i32 %fewer, 0
  br i1 %idle, label %sleep, label %spin
sleep:
  %a = call i32 @pthread_mutex_lock(ptr %mutex)
  %b = atomicrmw add ptr %sleepers, i32 1 seq_cst
  br label %look
look:
  %latest = load atomic i32, ptr %pool seq_cst, align 4
  %same = icmp eq i32 %latest, %seen
  br i1 %same, label %doze, label %rise
doze:
  %c = call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %look
rise:
  %d = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  %e = call i32 @pthread_mutex_unlock(ptr %mutex)
  call void @move_away(ptr %pool)
  br label %awake
awake:
  %now = load atomic i32, ptr %pool acquire, align 4
  %stopped = load atomic i32, ptr %flag acquire, align 4
  %over = icmp ne i32 %stopped, 0
  br i1 %over, label %end, label %begin
begin:
  %call = load ptr, ptr %place
  call void @do_share(ptr %pool, ptr %call, i64 %id)
  br label %wait
end:
  ret void
}

define internal void @meet(ptr %pool) {
entry:
  %arrived = getelementptr i8, ptr %pool, i64 64
  %passed = getelementptr i8, ptr %pool, i64 128
  %count = getelementptr i8, ptr %pool, i64 200
  %threads = load i32, ptr %count
  %before = load atomic i32, ptr %passed acquire, align 4
  %others = atomicrmw add ptr %arrived, i32 1 acq_rel
  %here = add i32 %others, 1
  %last = icmp eq i32 %here, %threads
  br i1 %last, label %open, label %spin
open:
  store atomic i32 0, ptr %arrived monotonic, align 4
  %a = atomicrmw add ptr %passed, i32 1 release
  ret void
spin:
  %looks = phi i32 [ SPINS, %entry ], [ %less, %again ], [ LOOKS, %yield ]
  %now = load atomic i32, ptr %passed acquire, align 4
  %opened = icmp ne i32 %now, %before
  br i1 %opened, label %done, label %again
again:
  call void @PAUSE()
  %less = sub i32 %looks, 1
  %tired = icmp eq i32 %less, 0
  br i1 %tired, label %yield, label %spin
yield:
  %b = call i32 @sched_yield()
  br label %spin
done:
  ret void
}

define internal void @do_share(ptr %pool, ptr %call, i64 %id) {
entry:
  %place = getelementptr i8, ptr %pool, i64 200
  %narrow = load i32, ptr %place
  %threads = zext i32 %narrow to i64
  %steps = load ptr, ptr %call
  %count.at = getelementptr i64, ptr %call, i64 1
  %count = load i64, ptr %count.at
  %buffers.at = getelementptr i64, ptr %call, i64 2
  %buffers = load ptr, ptr %buffers.at
  %constants.at = getelementptr i64, ptr %call, i64 3
  %constants = load ptr, ptr %constants.at
  %sizes.at = getelementptr i64, ptr %call, i64 4
  %sizes = load ptr, ptr %sizes.at
  %areas.at = getelementptr i64, ptr %call, i64 5
  %areas = load ptr, ptr %areas.at
  %area.at = getelementptr ptr, ptr %areas, i64 %id
  %area = load ptr, ptr %area.at
  %area.first = load ptr, ptr %areas
  %ranges = mul i64 %threads, 2
  %words = add i64 %ranges, 4
  %own.word = mul i64 %id, 2
  br label %loop
loop:
  %index = phi i64 [ 0, %entry ], [ %following, %next ]
  %step = phi ptr [ %steps, %entry ], [ %step.after, %next ]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %own, label %done
own:
  %first.range = getelementptr i64, ptr %step, i64 4
  %range = getelementptr i64, ptr %first.range, i64 %own.word
  %begin = load i64, ptr %range
  %end.at = getelementptr i64, ptr %range, i64 1
  %end = load i64, ptr %end.at
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %mine, label %together
mine:
  %function = load ptr, ptr %step
  call void %function(ptr %buffers, ptr %constants, ptr %sizes, ptr %area, i64 %begin, i64 %end)
  br label %together
together:
  %shared.at = getelementptr i64, ptr %step, i64 1
  %shared = load ptr, ptr %shared.at
  %from.at = getelementptr i64, ptr %step, i64 2
  %from = load i64, ptr %from.at
  %to.at = getelementptr i64, ptr %step, i64 3
  %to = load i64, ptr %to.at
  %both = icmp slt i64 %from, %to
  br i1 %both, label %ready, label %next
ready:
  %first.begin = load i64, ptr %first.range
  %first.end.at = getelementptr i64, ptr %step, i64 5
  %first.end = load i64, ptr %first.end.at
  %taken = icmp slt i64 %first.begin, %first.end
  br i1 %taken, label %wait, label %work
wait:
  call void @meet(ptr %pool)
  br label %work
work:
  call void %shared(ptr %buffers, ptr %constants, ptr %sizes, ptr %area.first, i64 %from, i64 %to,
                    ptr %area, ptr @meet, ptr %pool, i64 %id, i64 %threads)
  br label %next
next:
  call void @meet(ptr %pool)
  %following = add i64 %index, 1
  %step.after = getelementptr i64, ptr %step, i64 %words
  br label %loop
done:
  ret void
}
"""
