"""Threads that run the steps of a network together: a module of its own, the same for every network.

The threads themselves are the caller's: each calls `work (pool, id)` with an id from 1 on, and returns from it after
`stop (pool)`. `run (pool, call)` is id 0: it hands `call` to the others, does its own share, and returns when all are
done. Every thread goes through all steps; a step's rows are cut into one range a thread, and none begins a step before
all have done the one before. Who waits for work spins, then sleeps; who waits inside a call lets others run.
"""

from typing import Final

POOL_BYTES: Final = 640
"""Zeroed memory for a pool, aligned to 64 bytes; `prepare (pool, threads)` makes it one."""

CALL_WORDS: Final = 7
"""64-bit words of a call: steps, their number, buffers, constants, sizes, scratch areas, rows in the least piece."""

STEP_WORDS: Final = 2
"""64-bit words of a step: its function, and its rows, or -1 where the step is one piece of work."""

SPINS: Final = 4000
"""Looks at a flag before a thread sleeps or lets others run: tens of microseconds."""


def pool_module(*, x86: bool) -> str:
    """Return the LLVM IR of the pool; only on x86 a spinning thread can tell the core that it spins."""
    pause = "declare void @llvm.x86.sse2.pause()" if x86 else "define internal void @rest() { ret void }"
    text = _POOL.replace("@PAUSE", "@llvm.x86.sse2.pause" if x86 else "@rest").replace("SPINS", str(SPINS))
    return f"{pause}\n{text}"


# Words of the pool, in bytes: 0 generation, 64 threads that arrived at a barrier, 128 barriers passed, 192 sleepers,
# 196 stop, 200 threads, 256 call, 320 mutex, 448 condition. Each counter has a cache line of its own.
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
  %looks = phi i32 [ 0, %wait ], [ %more, %again ]
  %new = load atomic i32, ptr %pool acquire, align 4
  %changed = icmp ne i32 %new, %seen
  br i1 %changed, label %awake, label %again
again:
  call void @PAUSE()
  %more = add i32 %looks, 1
  %tired = icmp sgt i32 %more, SPINS
  br i1 %tired, label %sleep, label %spin
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

define internal void @meet(ptr %pool, i32 %threads) {
entry:
  %arrived = getelementptr i8, ptr %pool, i64 64
  %passed = getelementptr i8, ptr %pool, i64 128
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
  %looks = phi i32 [ 0, %entry ], [ %more, %again ], [ 0, %yield ]
  %now = load atomic i32, ptr %passed acquire, align 4
  %opened = icmp ne i32 %now, %before
  br i1 %opened, label %done, label %again
again:
  call void @PAUSE()
  %more = add i32 %looks, 1
  %tired = icmp sgt i32 %more, SPINS
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
  %least.at = getelementptr i64, ptr %call, i64 6
  %least = load i64, ptr %least.at
  %area.at = getelementptr ptr, ptr %areas, i64 %id
  %area = load ptr, ptr %area.at
  %first = icmp eq i64 %id, 0
  br label %loop
loop:
  %index = phi i64 [ 0, %entry ], [ %following, %next ]
  %more = icmp ult i64 %index, %count
  br i1 %more, label %step, label %done
step:
  %word = mul i64 %index, 2
  %step.at = getelementptr i64, ptr %steps, i64 %word
  %function = load ptr, ptr %step.at
  %rows.at = getelementptr i64, ptr %step.at, i64 1
  %rows = load i64, ptr %rows.at
  %whole = icmp slt i64 %rows, 0
  br i1 %whole, label %one, label %cut
one:
  br i1 %first, label %alone, label %next
alone:
  call void %function(ptr %buffers, ptr %constants, ptr %sizes, ptr %area, i64 0, i64 0)
  br label %next
cut:
  %up = add i64 %rows, %threads
  %up.less = sub i64 %up, 1
  %even = udiv i64 %up.less, %threads
  %even.up = add i64 %even, %least
  %even.less = sub i64 %even.up, 1
  %pieces = udiv i64 %even.less, %least
  %share = mul i64 %pieces, %least
  %start = mul i64 %id, %share
  %begin = call i64 @llvm.smin.i64(i64 %start, i64 %rows)
  %stop = add i64 %begin, %share
  %end = call i64 @llvm.smin.i64(i64 %stop, i64 %rows)
  %some = icmp slt i64 %begin, %end
  br i1 %some, label %mine, label %next
mine:
  call void %function(ptr %buffers, ptr %constants, ptr %sizes, ptr %area, i64 %begin, i64 %end)
  br label %next
next:
  call void @meet(ptr %pool, i32 %narrow)
  %following = add i64 %index, 1
  br label %loop
done:
  ret void
}

declare i64 @llvm.smin.i64(i64, i64)
"""
