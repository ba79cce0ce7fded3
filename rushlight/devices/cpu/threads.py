"""The thread pool: a few pthreads that run a kernel's tasks together with the caller. Written in LLVM IR.

# Note [Pool]
1. One job at a time. `busy` is the right to open one; a caller that finds it taken runs its tasks alone.
2. `word` is the job's state: generation (from bit 32 on), open (bit 16), active workers (below). A worker joins by
   counting itself in while the job is open; the caller closes the job and then waits only for those who joined, so a
   worker that wakes up late costs nothing.
3. Each thread has a fixed range of tasks and takes pieces of it by its counter, then helps with the others' ranges.
   Results do not depend on who does a task, so this does not show.
4. Workers spin for a tenth of a millisecond, then sleep on a condition; `sleepers` tells the caller whether to wake them,
   which it does only for work that outlasts the waking.
5. Threads start at the first job. After a fork the child has none: all state is cleared and they start anew.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys

from rushlight.core.config import thread_count
from rushlight.devices.cpu.native import load

MOST = 256
SPINS = 4000  # about a tenth of a millisecond
WAKE_WORK = 200_000

_PTHREADS = (
    "pthread_create",
    "pthread_mutex_lock",
    "pthread_mutex_unlock",
    "pthread_cond_wait",
    "pthread_cond_broadcast",
    "pthread_mutex_init",
    "pthread_cond_init",
)

STATE = """
@word = global i64 0, align 128
@busy = global i64 0, align 128
@sleepers = global i64 0, align 128
@wanted = global i64 1
@started = global i64 0
@members = global i64 0
@kernel = global ptr null
@args = global ptr null
@tasks = global i64 0
@counters = global [{most} x [16 x i64]] zeroinitializer, align 128
@mutex = global [16 x i64] zeroinitializer, align 128
@cond = global [16 x i64] zeroinitializer, align 128
@thread = global i64 0
@pthreads = global [7 x ptr] zeroinitializer
"""

WORK = """
define internal i64 @first_task(i64 %member) {{
  %tasks = load i64, ptr @tasks
  %members = load i64, ptr @members
  %all = mul i64 %tasks, %member
  %first = udiv i64 %all, %members
  ret i64 %first
}}

define internal void @take_part(i64 %me) {{
entry:
  %kernel = load ptr, ptr @kernel
  %args = load ptr, ptr @args
  %members = load i64, ptr @members
  br label %range
range:
  %turn = phi i64 [ 0, %entry ], [ %later, %over ]
  %sum = add i64 %me, %turn
  %whose = urem i64 %sum, %members
  %begin = call i64 @first_task(i64 %whose)
  %following = add i64 %whose, 1
  %end = call i64 @first_task(i64 %following)
  %length = sub i64 %end, %begin
  %eighth = lshr i64 %length, 3
  %small = icmp eq i64 %eighth, 0
  %piece = select i1 %small, i64 1, i64 %eighth
  %counter = getelementptr [16 x i64], ptr @counters, i64 %whose
  br label %claim
claim:
  %mine = atomicrmw add ptr %counter, i64 %piece seq_cst
  %some = icmp slt i64 %mine, %end
  br i1 %some, label %run, label %over
run:
  %stop = add i64 %mine, %piece
  %last = call i64 @llvm.smin.i64(i64 %stop, i64 %end)
  call void %kernel(ptr %args, i64 %mine, i64 %last)
  br label %claim
over:
  %later = add i64 %turn, 1
  %more = icmp slt i64 %later, %members
  br i1 %more, label %range, label %done
done:
  ret void
}}
declare i64 @llvm.smin.i64(i64, i64)
"""

WORKER = """
define internal i64 @joined(i64 %seen) {{
  ; Count this thread into the job when it is open and new; its generation, else 0.
  %word = load atomic i64, ptr @word seq_cst, align 8
  %flag = and i64 %word, 65536
  %open = icmp ne i64 %flag, 0
  %generation = lshr i64 %word, 32
  %new = icmp ne i64 %generation, %seen
  %fit = and i1 %open, %new
  br i1 %fit, label %try, label %no
try:
  %more = add i64 %word, 1
  %pair = cmpxchg ptr @word, i64 %word, i64 %more seq_cst seq_cst
  %in = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %in, label %yes, label %no
yes:
  ret i64 %generation
no:
  ret i64 0
}}

define ptr @worker(ptr %number) {{
entry:
  %me = ptrtoint ptr %number to i64
  br label %idle
idle:
  %seen = phi i64 [ 0, %entry ], [ %found, %leave ], [ %seen, %wake ]
  br label %spin
spin:
  %turn = phi i64 [ 0, %idle ], [ %later, %again ]
  %found = call i64 @joined(i64 %seen)
  %in = icmp ne i64 %found, 0
  br i1 %in, label %job, label %again
again:
  {pause}
  %later = add i64 %turn, 1
  %tired = icmp sgt i64 %later, {spins}
  br i1 %tired, label %sleep, label %spin
job:
  %members = load i64, ptr @members
  %member = icmp slt i64 %me, %members
  br i1 %member, label %part, label %leave
part:
  call void @take_part(i64 %me)
  br label %leave
leave:
  atomicrmw sub ptr @word, i64 1 seq_cst
  br label %idle
sleep:  ; asleep until the next broadcast, unless a job has been opened in between
  %lock = load ptr, ptr getelementptr (ptr, ptr @pthreads, i64 1)
  %unlock = load ptr, ptr getelementptr (ptr, ptr @pthreads, i64 2)
  %wait = load ptr, ptr getelementptr (ptr, ptr @pthreads, i64 3)
  call i32 %lock(ptr @mutex)
  atomicrmw add ptr @sleepers, i64 1 seq_cst
  %word = load atomic i64, ptr @word seq_cst, align 8
  %flag = and i64 %word, 65536
  %open = icmp ne i64 %flag, 0
  %generation = lshr i64 %word, 32
  %new = icmp ne i64 %generation, %seen
  %fit = and i1 %open, %new
  br i1 %fit, label %wake, label %rest
rest:
  call i32 %wait(ptr @cond, ptr @mutex)
  br label %wake
wake:
  atomicrmw sub ptr @sleepers, i64 1 seq_cst
  call i32 %unlock(ptr @mutex)
  br label %idle
}}
"""

RUN = """
define internal void @start_threads(i64 %members) {{
entry:
  %create = load ptr, ptr @pthreads
  br label %check
check:
  %started = load i64, ptr @started
  %following = add i64 %started, 1
  %need = icmp slt i64 %following, %members
  br i1 %need, label %start, label %done
start:
  %number = inttoptr i64 %following to ptr
  %failed = call i32 %create(ptr @thread, ptr null, ptr @worker, ptr %number)
  %good = icmp eq i32 %failed, 0
  br i1 %good, label %count, label %done
count:
  store i64 %following, ptr @started
  br label %check
done:
  ret void
}}

define internal void @open_job(i64 %members, i64 %work) {{
entry:
  br label %fill
fill:
  %t = phi i64 [ 0, %entry ], [ %u, %fill ]
  %counter = getelementptr [16 x i64], ptr @counters, i64 %t
  %begin = call i64 @first_task(i64 %t)
  store i64 %begin, ptr %counter
  %u = add i64 %t, 1
  %more = icmp slt i64 %u, %members
  br i1 %more, label %fill, label %open
open:
  %old = load i64, ptr @word
  %generation = lshr i64 %old, 32
  %following = add i64 %generation, 1
  %high = shl i64 %following, 32
  %new = or i64 %high, 65536
  store atomic i64 %new, ptr @word seq_cst, align 8
  %sleepers = load atomic i64, ptr @sleepers seq_cst, align 8
  %asleep = icmp sgt i64 %sleepers, 0
  %worth = icmp sgt i64 %work, {wake_work}
  %both = and i1 %asleep, %worth
  br i1 %both, label %wake, label %done
wake:
  %lock = load ptr, ptr getelementptr (ptr, ptr @pthreads, i64 1)
  %unlock = load ptr, ptr getelementptr (ptr, ptr @pthreads, i64 2)
  %broadcast = load ptr, ptr getelementptr (ptr, ptr @pthreads, i64 4)
  call i32 %lock(ptr @mutex)
  call i32 %broadcast(ptr @cond)
  call i32 %unlock(ptr @mutex)
  br label %done
done:
  ret void
}}

define void @run_tasks(ptr %kernel, ptr %args, i64 %tasks, i64 %work) {{
entry:
  %wanted = load i64, ptr @wanted
  %members = call i64 @llvm.smin.i64(i64 %wanted, i64 %tasks)
  %several = icmp sgt i64 %members, 1
  br i1 %several, label %try, label %alone
try:
  %pair = cmpxchg ptr @busy, i64 0, i64 1 seq_cst seq_cst
  %got = extractvalue {{ i64, i1 }} %pair, 1
  br i1 %got, label %share, label %alone
alone:
  call void %kernel(ptr %args, i64 0, i64 %tasks)
  ret void
share:
  call void @start_threads(i64 %members)
  store i64 %members, ptr @members
  store ptr %kernel, ptr @kernel
  store ptr %args, ptr @args
  store i64 %tasks, ptr @tasks
  call void @open_job(i64 %members, i64 %work)
  call void @take_part(i64 0)
  %closed = atomicrmw and ptr @word, i64 -65537 seq_cst
  br label %wait
wait:
  %word = load atomic i64, ptr @word seq_cst, align 8
  %active = and i64 %word, 65535
  %over = icmp eq i64 %active, 0
  {pause}
  br i1 %over, label %done, label %wait
done:
  store atomic i64 0, ptr @busy seq_cst, align 8
  ret void
}}

define void @reset() {{
  ; For the child of a fork: nobody is busy, nobody has started.
  store i64 0, ptr @word
  store i64 0, ptr @busy
  store i64 0, ptr @sleepers
  store i64 0, ptr @started
  %mutex_init = load ptr, ptr getelementptr (ptr, ptr @pthreads, i64 5)
  %cond_init = load ptr, ptr getelementptr (ptr, ptr @pthreads, i64 6)
  call i32 %mutex_init(ptr @mutex, ptr null)
  call i32 %cond_init(ptr @cond, ptr null)
  ret void
}}
"""

_X86, _ARM = "@llvm.x86.sse2.pause()", "@llvm.aarch64.hint(i32 1)"
_PAUSES = {"x86_64": _X86, "AMD64": _X86, "aarch64": _ARM, "arm64": _ARM}


def _fill(table: int, names: tuple[str, ...]) -> None:
    library = ctypes.CDLL(None)
    pointers = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in names]
    (ctypes.c_void_p * len(names)).from_address(table)[:] = pointers


class Pool:
    """The loaded pool: the address of run_tasks(kernel, args, tasks, work), and its knobs."""

    def __init__(self) -> None:
        pause = _PAUSES.get(platform.machine(), "")
        text = (STATE + WORK + WORKER + RUN).format(
            most=MOST, spins=SPINS, wake_work=WAKE_WORK, pause=f"call void {pause}" if pause else ""
        )
        text += f"declare void {pause.replace('i32 1', 'i32')}\n" if pause else ""
        self.run_tasks, reset, wanted, pthreads = load(text, "run_tasks", "reset", "wanted", "pthreads")
        self._wanted = ctypes.c_int64.from_address(wanted)
        self._reset = ctypes.CFUNCTYPE(None)(reset)
        self.threads = sys.platform != "win32"
        if self.threads:
            _fill(pthreads, _PTHREADS)
            self._reset()
            os.register_at_fork(after_in_child=self._reset)

    def want(self, count: int) -> None:
        self._wanted.value = max(1, min(count, MOST)) if self.threads else 1


_pool: Pool | None = None
_count = 0  # as set by the user; 0 is what the configuration says


def count() -> int:
    return _count or thread_count()


def set_count(wanted: int) -> None:
    """How many threads a large kernel may use, from now on."""
    global _count
    if wanted < 1:
        raise ValueError(f"set_num_threads: {wanted} threads cannot run anything; ask for 1 or more")
    _count = wanted
    if _pool is not None:
        _pool.want(wanted)


def runner() -> int:
    """The address of run_tasks(kernel, args, tasks, work)."""
    global _pool
    if _pool is None:
        _pool = Pool()
        _pool.want(count())
    return _pool.run_tasks
