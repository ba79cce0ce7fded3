"""The thread pool's code, in LLVM IR. See Note [Pool] in `threads`."""

from __future__ import annotations

MOST = 256
SPINS = 6000  # about a fifth of a millisecond
WAKE_WORK = 60_000

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
@linux = global [3 x ptr] zeroinitializer
@allowed = global [16 x i64] zeroinitializer
@numbers = global [{most} x i32] zeroinitializer
@processors = global [{most} x i32] zeroinitializer
"""

PLACE = """
define internal void @tell_place(i64 %me) {{
  ; A worker's thread number and processor, for those who open jobs.
  %getter = load ptr, ptr @linux
  %there = icmp ne ptr %getter, null
  br i1 %there, label %tell, label %done
tell:
  %here = call i32 %getter()
  %place = getelementptr i32, ptr @processors, i64 %me
  store atomic i32 %here, ptr %place monotonic, align 4
  br label %done
done:
  ret void
}}

define internal void @tell_number(i64 %me) {{
  %getter = load ptr, ptr getelementptr (ptr, ptr @linux, i64 1)
  %there = icmp ne ptr %getter, null
  br i1 %there, label %tell, label %done
tell:
  %number = call i32 %getter()
  %place = getelementptr i32, ptr @numbers, i64 %me
  store atomic i32 %number, ptr %place monotonic, align 4
  br label %done
done:
  ret void
}}

define internal void @send_away(i64 %worker, i32 %here) {{
entry:
  %mask = alloca [16 x i64]
  %which = getelementptr i32, ptr @numbers, i64 %worker
  %number = load atomic i32, ptr %which monotonic, align 4
  %place = getelementptr i32, ptr @processors, i64 %worker
  %there = load atomic i32, ptr %place monotonic, align 4
  %same = icmp eq i32 %there, %here
  %started = icmp ne i32 %number, 0
  %known = icmp ult i32 %here, 1024
  %some = and i1 %same, %started
  %all = and i1 %some, %known
  br i1 %all, label %send, label %done
send:
  %allowed = load [16 x i64], ptr @allowed
  store [16 x i64] %allowed, ptr %mask
  %wide = zext i32 %here to i64
  %index = lshr i64 %wide, 6
  %bits = getelementptr i64, ptr %mask, i64 %index
  %bit = and i64 %wide, 63
  %one = shl i64 1, %bit
  %others = xor i64 %one, -1
  %old = load i64, ptr %bits
  %new = and i64 %old, %others
  store i64 %new, ptr %bits
  %setter = load ptr, ptr getelementptr (ptr, ptr @linux, i64 2)
  call i32 %setter(i32 %number, i64 128, ptr %mask)
  store atomic i32 -1, ptr %place monotonic, align 4
  br label %done
done:
  ret void
}}

define internal void @send_workers_away(i64 %members) {{
entry:
  %getter = load ptr, ptr @linux
  %there = icmp ne ptr %getter, null
  br i1 %there, label %ask, label %done
ask:
  %here = call i32 %getter()
  br label %next
next:
  %t = phi i64 [ 1, %ask ], [ %u, %next ]
  call void @send_away(i64 %t, i32 %here)
  %u = add i64 %t, 1
  %more = icmp slt i64 %u, %members
  br i1 %more, label %next, label %done
done:
  ret void
}}
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
  call void @tell_number(i64 %me)
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
  call void @tell_place(i64 %me)
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
  call void @send_workers_away(i64 %members)
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
  store [{most} x i32] zeroinitializer, ptr @numbers
  %mutex_init = load ptr, ptr getelementptr (ptr, ptr @pthreads, i64 5)
  %cond_init = load ptr, ptr getelementptr (ptr, ptr @pthreads, i64 6)
  call i32 %mutex_init(ptr @mutex, ptr null)
  call i32 %cond_init(ptr @cond, ptr null)
  ret void
}}
"""

_X86, _ARM = "@llvm.x86.sse2.pause()", "@llvm.aarch64.hint(i32 1)"
_PAUSES = {"x86_64": _X86, "AMD64": _X86, "aarch64": _ARM, "arm64": _ARM}


def pool_text(machine: str) -> str:
    """The module for a processor family, as named by `platform.machine`."""
    pause = _PAUSES.get(machine, "")
    text = (STATE + PLACE + WORK + WORKER + RUN).format(
        most=MOST, spins=SPINS, wake_work=WAKE_WORK, pause=f"call void {pause}" if pause else ""
    )
    return text + (f"declare void {pause.replace('i32 1', 'i32')}\n" if pause else "")
