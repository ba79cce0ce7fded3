"""Gather and scatter as CUDA C, without float atomics.

# Note [Indices on CUDA]
1. The fast case is one index for a whole row (its inner stride is 0, as in an embedding): rows are
   moved in chunks of 16 bytes where addresses, strides and sizes allow it, of which a thread loads
   several before it stores one. A uniform branch decides.
2. Scatter: each target has one owner, which reads every index in ascending order and folds in its
   own. So a target's updates come in the order of k, whatever the number of owners.
3. Where rows have one index, owners are warps, chosen by a hash of the target: a warp reads 32
   indices at once and queues its own in shared memory; several queued rows are loaded before they
   are folded in.
4. Where every element has its own index, owners are threads: a column each, and one of `slices`
   ranges of targets.
"""

from __future__ import annotations

from rushlight.core.dtypes import DType, compute_type
from rushlight.emit.cuda.map import chunk_of
from rushlight.emit.cuda.scalar import STORED, combine, computed, load, store
from rushlight.kernel.shapes import Gather, Scatter

THREADS = 256
WARPS = THREADS // 32
STRIPS = 8  # of 32 indices, loaded by a warp at once
QUEUE = 32 * (STRIPS + 1)
AT_ONCE = 4  # rows, or chunks of a gather, that are loaded before the first is used

BALLOT = """\
#if defined(__HIP__) || defined(__HIPCC_RTC__)
#define BALLOT(test) ((u32)(__ballot(test) >> (threadIdx.x & (unsigned)(__builtin_amdgcn_wavefrontsize() - 32))))
#else
#define BALLOT(test) __ballot_sync(0xffffffffu, test)
#endif
"""


def _declared(dtype: DType, index_dtype: DType) -> str:
    strides = [f"const i64 {o}_{d}" for o in "osi" for d in ("o", "k", "i")]
    taken = [
        f"{STORED[dtype]}* out",
        f"const {STORED[dtype]}* source",
        f"const {STORED[index_dtype]}* picks",
        "i32* status",
    ]
    return ", ".join(
        [*taken, *(f"const i64 {z}" for z in ("outer", "count", "inner", "limit")), *strides]
    )


def _names() -> str:
    strides = [f"{o}_{d}" for o in "osi" for d in ("o", "k", "i")]
    return ", ".join(
        ["out", "source", "picks", "status", "outer", "count", "inner", "limit", *strides]
    )


def _whole_chunks(chunk: int) -> str:
    """Whether rows can be moved in chunks."""
    steps = " | ".join(f"{o}_{d}" for o in "os" for d in ("o", "k"))
    return (
        f"o_i == 1 && s_i == 1 && (inner | {steps}) % {chunk} == 0 && ((u64)out | (u64)source) % "
        "16 == 0"
    )


# ---- gather ----


def gather(kernel: Gather) -> str:
    stored, chunk = STORED[kernel.dtype], chunk_of([kernel.dtype])
    declared = _declared(kernel.dtype, kernel.index_dtype)
    return f"""\
template <typename I> __device__ __forceinline__ void pick(const I position, {declared}) {{
    const i64 i = (i64)(position % (I)inner), rest = (i64)(position / (I)inner);
    const i64 k = (i64)((I)rest % (I)count), o = (i64)((I)rest / (I)count);
    const i64 at = (i64)picks[o * i_o + k * i_k + i * i_i];
    const bool bad = (u64)at >= (u64)limit;
    if (bad) *status = 1;
    out[o * o_o + k * o_k + i * o_i] = bad ? ({stored})0 : source[o * s_o + at * s_k + i * s_i];
}}

extern "C" __global__ void __launch_bounds__({THREADS}) gather({declared}) {{
    typedef Pack<{stored}, {chunk}> Chunk;
    const i64 first = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const i64 stride = (i64)gridDim.x * blockDim.x;
    const i64 total = outer * count * inner;
    if (total < 0x7fffffffLL && i_i == 0 && {_whole_chunks(chunk)}) {{
        const u32 across = (u32)inner / {chunk}u;
        for (i64 p = first; p < total / {chunk}; p += {AT_ONCE} * stride) {{
            i64 from[{AT_ONCE}], to[{AT_ONCE}];
            Chunk found[{AT_ONCE}];
            #pragma unroll
            for (int j = 0; j < {AT_ONCE}; ++j) {{
                const i64 q = p + j * stride;
                const bool inside = q < total / {chunk};
                const u32 row = inside ? (u32)q / across : 0u;
                const i64 i = (i64)(inside ? (u32)q % across : 0u) * {chunk};
                const i64 o = (i64)(row / (u32)count), k = (i64)(row % (u32)count);
                const i64 at = (i64)picks[o * i_o + k * i_k];
                const bool bad = (u64)at >= (u64)limit;
                if (bad) *status = 1;
                from[j] = bad ? -1 : o * s_o + at * s_k + i;
                to[j] = inside ? o * o_o + k * o_k + i : -1;
            }}
            #pragma unroll
            for (int j = 0; j < {AT_ONCE}; ++j) {{
                found[j] = Chunk{{}};
                if (from[j] >= 0) found[j] = *(const Chunk*)(source + from[j]);
            }}
            #pragma unroll
            for (int j = 0; j < {AT_ONCE}; ++j) {{
                if (to[j] >= 0) *(Chunk*)(out + to[j]) = found[j];
            }}
        }}
    }} else if (total < 0x7fffffffLL) {{
        for (i64 p = first; p < total; p += stride) pick<u32>((u32)p, {_names()});
    }} else {{
        for (i64 p = first; p < total; p += stride) pick<i64>(p, {_names()});
    }}
}}
"""


# ---- scatter ----


def _step(kind: str, dtype: DType, before: str, more: str) -> list[str]:
    """Declare `after`, stored: the result of folding another value into a stored one."""
    if kind == "set":
        return [f"const {STORED[dtype]} after = {more};"]
    total = combine("sum" if kind == "add" else kind, compute_type(dtype), "before", "more")
    kind = computed(dtype)
    return [
        f"const {kind} before = {load(dtype, before)};",
        f"const {kind} more = {load(dtype, more)};",
        f"const {STORED[dtype]} after = {store(dtype, f'({total})')};",
    ]


def _fold_queued(kind: str, dtype: DType) -> str:
    stored = STORED[dtype]
    return f"""\
// Fold the queued rows in, in order. `to` and `from` are at this lane's elements, which `inside` says are there.
template <int N> __device__ __forceinline__ void fold_queued(
    {stored}* const to, const {stored}* const from, const i64 o_k, const i64 s_k,
    const i64* const rows, const i64* const targets, const int queued, const bool inside) {{
    typedef Pack<{stored}, N> Chunk;
    for (int m = 0; m < queued; m += {AT_ONCE}) {{
        Chunk old[{AT_ONCE}], added[{AT_ONCE}];
        i64 at[{AT_ONCE}];
        #pragma unroll
        for (int j = 0; j < {AT_ONCE}; ++j) {{
            at[j] = m + j < queued ? targets[m + j] : -1;
            if (inside && at[j] >= 0) {{
                added[j] = *(const Chunk*)(from + rows[m + j] * s_k);
                old[j] = *(const Chunk*)(to + at[j] * o_k);
            }}
        }}
        #pragma unroll
        for (int j = 0; j < {AT_ONCE}; ++j) {{
            if (inside && at[j] >= 0) {{
                #pragma unroll
                for (int e = 0; e < N; ++e) {{
                    {" ".join(_step(kind, dtype, "old[j].v[e]", "added[j].v[e]"))}
                    old[j].v[e] = after;
                }}
                // A later row for the same target goes on from this, not from what was in memory.
                #pragma unroll
                for (int l = j + 1; l < {AT_ONCE}; ++l) if (at[l] == at[j]) old[l] = old[j];
                *(Chunk*)(to + at[j] * o_k) = old[j];
            }}
        }}
    }}
}}
"""


def _fold_rows(dtype: DType, index_dtype: DType) -> str:
    return f"""\
template <int N> __device__ __forceinline__ void fold_rows(
    {_declared(dtype, index_dtype)}, const i64 owners, i64* const queue) {{
    const int warp = (int)threadIdx.x / 32, lane = (int)threadIdx.x % 32;
    i64* const rows = queue + warp * {2 * QUEUE};
    i64* const targets = rows + {QUEUE};
    const i64 across = (inner + 32 * N - 1) / (32 * N);
    for (i64 job = blockIdx.x; job < outer * across * owners; job += gridDim.x) {{
        const u32 owner = (u32)(job % owners) * {WARPS}u + (u32)warp;
        const i64 o = job / (across * owners), i = (job / owners % across * 32 + lane) * N;
        const bool inside = i < inner;
        {STORED[dtype]}* const to = out + o * o_o + i * o_i;
        const {STORED[dtype]}* const from = source + o * s_o + i * s_i;
        int queued = 0;
        for (i64 begin = 0; begin < count; begin += 32 * {STRIPS}) {{
            i64 at[{STRIPS}];
            #pragma unroll
            for (int s = 0; s < {STRIPS}; ++s) {{
                const i64 k = begin + s * 32 + lane;
                at[s] = k < count ? (i64)picks[o * i_o + k * i_k] : 0;
            }}
            #pragma unroll
            for (int s = 0; s < {STRIPS}; ++s) {{
                const i64 k = begin + s * 32 + lane;
                const bool bad = (u64)at[s] >= (u64)limit;
                if (bad && k < count) *status = 1;
                const u32 hashed = __umulhi((u32)at[s] * 2654435761u, (u32)owners * {WARPS}u);
                const bool mine = k < count && !bad && hashed == owner;
                const u32 found = BALLOT(mine);
                if (mine) {{
                    const int place = queued + __popc(found & ((1u << lane) - 1u));
                    rows[place] = k;
                    targets[place] = at[s];
                }}
                queued += __popc(found);
            }}
            if (queued < 32 && begin + 32 * {STRIPS} < count) continue;
            SYNC_WARP();
            fold_queued<N>(to, from, o_k, s_k, rows, targets, queued, inside);
            SYNC_WARP();
            queued = 0;
        }}
    }}
}}
"""


def _fold_columns(kind: str, dtype: DType, index_dtype: DType) -> str:
    step = _step(kind, dtype, "target[at * o_k]", "source[o * s_o + k * s_k + i * s_i]")
    return f"""\
__device__ __forceinline__ void fold_columns({_declared(dtype, index_dtype)}, const i64 slices) {{
    const i64 columns = outer * inner, across = (columns + {THREADS - 1}) / {THREADS};
    for (i64 job = blockIdx.x; job < across * slices; job += gridDim.x) {{
        const i64 column = job % across * {THREADS} + threadIdx.x, slice = job / across;
        if (column >= columns) continue;
        const i64 o = column / inner, i = column % inner;
        const i64 begin = limit * slice / slices, end = limit * (slice + 1) / slices;
        {STORED[dtype]}* const target = out + o * o_o + i * o_i;
        #pragma unroll 8
        for (i64 k = 0; k < count; ++k) {{
            const i64 at = (i64)picks[o * i_o + k * i_k + i * i_i];
            if ((u64)at >= (u64)limit) *status = 1;
            if (at >= begin && at < end) {{
                {" ".join(step)}
                target[at * o_k] = after;
            }}
        }}
    }}
}}
"""


def scatter(kernel: Scatter) -> str:
    """`owners`: blocks of owners in rule 3 of Note [Indices on CUDA]; `slices`: those of rule 4."""
    kind, dtype, index_dtype = kernel.kind, kernel.dtype, kernel.index_dtype
    declared = _declared(dtype, index_dtype)
    chunk = chunk_of([dtype])
    parts = [
        _fold_queued(kind, dtype),
        _fold_rows(dtype, index_dtype),
        _fold_columns(kind, dtype, index_dtype),
    ]
    return (
        BALLOT
        + "".join(f"\n{part}" for part in parts)
        + f"""
extern "C" __global__ void __launch_bounds__({THREADS}) scatter(
    {declared}, const i64 owners, const i64 slices) {{
    __shared__ i64 queue[{WARPS * 2 * QUEUE}];
    if (i_i != 0 && inner > 1) fold_columns({_names()}, slices);
    else if ({_whole_chunks(chunk)}) fold_rows<{chunk}>({_names()}, owners, queue);
    else fold_rows<1>({_names()}, owners, queue);
}}
"""
    )
