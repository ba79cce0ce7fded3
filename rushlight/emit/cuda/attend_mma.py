"""Attention in float16 and bfloat16 by `mma.sync` (16 x 8 x 16, sums in float32).

A warp has 16 own rows or 32; scores stay in its registers, where the layout of a sum is
that of a left factor, so that probabilities need no shared memory. See Note [Attention on CUDA].
"""

from __future__ import annotations

from rushlight.core.dtypes import float16
from rushlight.emit.cuda.attend_fma import ASYNC, SCORES
from rushlight.kernel.shapes import Attend

WIDEST = 128
# Warps, 16-row slabs of a warp, rows of a tile of the other side; by form.
SHAPES = {"output": (4, 1, 64), "query": (4, 1, 64), "keys": (4, 1, 64)}
# Blocks that share a multiprocessor, which bounds a thread's registers: for at most 64 features,
# without mask and dropout.
_BLOCKS = {"output": 4, "query": 4, "keys": 3}


def _padded(width: int) -> int:
    return max(16, -(-width // 16) * 16)


def tile_of(kernel: Attend) -> tuple[int, int, int]:
    """Own rows of a block, its threads, and its bytes of shared memory."""
    warps, slabs, others = SHAPES[kernel.of]
    own = 16 * warps * slabs
    wide, deep = _padded(kernel.width) + 8, _padded(kernel.depth) + 8
    if kernel.of == "output":
        count = (own + others) * wide + others * deep
    else:
        count = (own + 2 * others) * (wide + deep)
    return own, 32 * warps, 2 * count


def blocks_of(kernel: Attend) -> int:
    """The blocks that a multiprocessor should hold."""
    plain = kernel.mask is None and not kernel.dropout
    return _BLOCKS[kernel.of] if plain and max(kernel.width, kernel.depth) <= 64 else 1


def text(kernel: Attend) -> str:
    own, threads, _ = tile_of(kernel)
    _, slabs, others = SHAPES[kernel.of]
    head = f"""\
constexpr int DW = {_padded(kernel.width)}, DV = {_padded(kernel.depth)}, SLABS = {slabs};
constexpr int BM = {own}, BN = {others}, THREADS = {threads}, TILES = BN / 8;
constexpr int PW = DW + 8, PV = DV + 8;
constexpr bool BY_KEYS = {str(kernel.of == "keys").lower()};
constexpr float LOG2E = 1.44269504f, LN2 = 0.693147181f, OF_LEVEL = ADDS ? 1.0f : LOG2E;
#define FMA fmaf
"""
    kind = "f16" if kernel.dtype is float16 else "bf16"
    body = _FORWARD if kernel.of == "output" else _BACKWARD
    return head + ASYNC + WARP_OPS.replace("KIND", kind) + SCORES + _SHARED + body


# The warp's instructions: see the PTX manual for the layout of fragments.
WARP_OPS = """\
__device__ __forceinline__ void load_4(u32 (&r)[4], const Stored* at) {
    const u32 place = (u32)__cvta_generic_to_shared(at);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(place) : "memory");
}
__device__ __forceinline__ void load_4_turned(u32 (&r)[4], const Stored* at) {
    const u32 place = (u32)__cvta_generic_to_shared(at);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(place) : "memory");
}
__device__ __forceinline__ void mma(float (&c)[4], const u32 (&a)[4], const u32 b0, const u32 b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.KIND.KIND.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ u32 pair(const float low, const float high) {
    u32 r;
    asm("cvt.rn.KINDx2.f32 %0, %1, %2;" : "=r"(r) : "f"(high), "f"(low));
    return r;
}
__device__ __forceinline__ float power_of_2(const float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
"""

_SHARED = """\
struct alignas(16) Eight { Stored v[8]; };
struct Pair { bool first, second; };

// Dropout's decisions for two neighbours, which mostly share their random words.
__device__ __forceinline__ Pair stay_both(const Drop& drop, const i64 index) {
    const i64 position = drop.position + index;
    u32 words[4];
    Pair found;
    draw(words, drop, position);
    found.first = picked(words, position, drop.chance);
    if ((position & 3) == 3) draw(words, drop, position + 1);
    found.second = picked(words, position + 1, drop.chance);
    return found;
}

// Rows of an operand, from `first` on, as a tile of `PITCH - 8` features.
template <int ROWS, int PITCH, int COLUMNS>
__device__ __forceinline__ void fetch(
    Stored* tile, const View<const Stored>& from, const i64 first, const i64 count, const bool whole) {
    constexpr int PER = (PITCH - 8) / 8, ROUNDS = (ROWS * PER + THREADS - 1) / THREADS;
    const int left = (int)(count - first < ROWS ? count - first : ROWS);
    const Stored* const start = from.at + first * from.row;
    #pragma unroll
    for (int e = 0; e < ROUNDS; ++e) {
        const int at = e * THREADS + (int)threadIdx.x, r = at / PER, d = at % PER * 8;
        if (ROWS * PER % THREADS && at >= ROWS * PER) break;
        Stored* const target = tile + r * PITCH + d;
        const bool inside = r < left;
        if (whole) {
            const bool some = inside && d < COLUMNS;
            copy_16(target, some ? start + r * from.row + d : from.at, some ? 16 : 0);
        } else {
            #pragma unroll
            for (int u = 0; u < 8; ++u) {
                target[u] = inside && d + u < COLUMNS ? start[r * from.row + (d + u) * from.column] : (Stored)0;
            }
        }
    }
}
// Whether rows can be copied by 16 bytes.
template <int COLUMNS> __device__ __forceinline__ bool aligned(const View<const Stored>& v) {
    return v.column == 1 && COLUMNS % 8 == 0 && (u64)v.at % 16 == 0 && v.row % 8 == 0;
}

// s += own rows times other rows, over the features.
template <int PITCH, int N>
__device__ __forceinline__ void multiply(
    float (&s)[N][TILES][4], const Stored* own, const Stored* other, const int lane) {
    #pragma unroll
    for (int d = 0; d < PITCH - 8; d += 16) {
        u32 a[N][4];
        #pragma unroll
        for (int m = 0; m < N; ++m) load_4(a[m], own + (16 * m + lane % 16) * PITCH + d + lane / 16 * 8);
        #pragma unroll
        for (int n = 0; n < TILES; n += 2) {
            u32 b[4];
            load_4(b, other + (8 * n + lane % 8 + lane / 16 * 8) * PITCH + d + lane / 8 % 2 * 8);
            #pragma unroll
            for (int m = 0; m < N; ++m) {
                mma(s[m][n], a[m], b[0], b[1]);
                mma(s[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

// sum += p times other rows, over the other rows.
template <int PITCH, int N>
__device__ __forceinline__ void gather_rows(
    float (&sum)[N][(PITCH - 8) / 8][4], const float (&p)[N][TILES][4], const Stored* other, const int lane) {
    #pragma unroll
    for (int c = 0; c < BN; c += 16) {
        u32 a[N][4];
        #pragma unroll
        for (int m = 0; m < N; ++m) {
            a[m][0] = pair(p[m][c / 8][0], p[m][c / 8][1]);
            a[m][1] = pair(p[m][c / 8][2], p[m][c / 8][3]);
            a[m][2] = pair(p[m][c / 8 + 1][0], p[m][c / 8 + 1][1]);
            a[m][3] = pair(p[m][c / 8 + 1][2], p[m][c / 8 + 1][3]);
        }
        #pragma unroll
        for (int n = 0; n < (PITCH - 8) / 8; n += 2) {
            u32 b[4];
            load_4_turned(b, other + (c + lane % 16) * PITCH + 8 * n + lane / 16 * 8);
            #pragma unroll
            for (int m = 0; m < N; ++m) {
                mma(sum[m][n], a[m], b[0], b[1]);
                mma(sum[m][n + 1], a[m], b[2], b[3]);
            }
        }
    }
}

template <int N>
__device__ __forceinline__ void store_row(
    const View<Stored>& to, const float (&sum)[N][4], const int half, const i64 row, const float factor,
    const int width, const int lane) {
    Stored* const at = to.at + row * to.row;
    const bool pairs = to.column == 1 && (u64)to.at % 4 == 0 && to.row % 2 == 0;
    #pragma unroll
    for (int n = 0; n < N; ++n) {
        const int d = 8 * n + lane % 4 * 2;
        const float low = sum[n][2 * half] * factor, high = sum[n][2 * half + 1] * factor;
        if (pairs && d + 1 < width) {
            *(u32*)(at + d) = pair(low, high);
        } else {
            if (d < width) at[d * to.column] = narrowed(low);
            if (d + 1 < width) at[(d + 1) * to.column] = narrowed(high);
        }
    }
}
"""

_FORWARD = """\
// Scores to weights of one row; the sums so far shrink when the maximum grows. The scale is positive,
// so the maximum is taken before it; `factor` is the scale in base 2. Keys after `last` are hidden.
template <bool EDGE>
__device__ __forceinline__ void weigh(
    float (&s)[TILES][4], float (&sum)[DV / 8][4], const int half, float& top, float& total,
    const View<const Masked>& mask, const Sizes& sizes, const i64 row, const i64 start, const float factor,
    const float scale, const Drop& drop, const i64 batch, const int lane) {
    float most = NONE;
    i64 room = sizes.keys - start;
    if (CAUSAL && row - start + 1 < room) room = row - start + 1;
    const int last = (int)(room < BN ? room : BN) - lane % 4 * 2;
    #pragma unroll
    for (int n = 0; n < TILES; ++n) {
        #pragma unroll
        for (int u = 0; u < 2; ++u) {
            float& x = s[n][2 * half + u];
            if (HIDES || ADDS) x = scored(x, scale, mask, row, start + 8 * n + lane % 4 * 2 + u, sizes);
            else if (EDGE && 8 * n + u >= last) x = NONE;
            most = fmaxf(most, x);
        }
    }
    #pragma unroll
    for (int m = 2; m; m /= 2) most = fmaxf(most, SHUFFLE(most, m));
    most = fmaxf(most, top);
    const float base = most == NONE ? 0.0f : ADDS ? most : most * factor;
    const float shrink = power_of_2(above(top, factor, base));
    top = most;
    float part = 0.0f;
    #pragma unroll
    for (int n = 0; n < TILES; ++n) {
        #pragma unroll
        for (int u = 0; u < 2; ++u) {
            float& x = s[n][2 * half + u];
            x = power_of_2(above(x, factor, base));
            part += x;
        }
        if (DROPOUT) {
            const Pair stay = stay_both(drop, (batch * sizes.rows + row) * sizes.keys + start + 8 * n + lane % 4 * 2);
            s[n][2 * half] = stay.first ? s[n][2 * half] * drop.factor : 0.0f;
            s[n][2 * half + 1] = stay.second ? s[n][2 * half + 1] * drop.factor : 0.0f;
        }
    }
    total = fmaf(total, shrink, part);
    #pragma unroll
    for (int n = 0; n < DV / 8; ++n) {
        sum[n][2 * half] *= shrink;
        sum[n][2 * half + 1] *= shrink;
    }
}

__device__ __forceinline__ void run(
    const Sizes& sizes, const View<Stored>& out, const View<float>& level, const View<const Stored>& q,
    const View<const Stored>& k, const View<const Stored>& v, const View<const Masked>& masks, const float scale,
    const Drop& drop) {
    extern __shared__ Eight memory[];
    Stored* const query = (Stored*)memory;
    Stored* const keys = query + BM * PW;
    Stored* const values = keys + BN * PW;
    const int lane = threadIdx.x % 32, own = threadIdx.x / 32 * 16 * SLABS;
    const Place place = place_of(sizes, (sizes.rows + BM - 1) / BM, CAUSAL);
    const i64 first = place.tile * BM;
    const View<const Stored> key = of(k, place), value = of(v, place);
    const View<const Masked> mask = of(masks, place);
    float sum[SLABS][DV / 8][4] = {}, top[SLABS][2], total[SLABS][2] = {};
    #pragma unroll
    for (int m = 0; m < SLABS; ++m) top[m][0] = top[m][1] = NONE;
    i64 end = sizes.keys;
    if (CAUSAL && first + BM < end) end = first + BM;
    const View<const Stored> rows = of(q, place);
    const bool whole_k = aligned<WIDTH>(key), whole_v = aligned<DEPTH>(value);
    const float factor = (HIDES || ADDS ? 1.0f : scale) * LOG2E;
    fetch<BM, PW, WIDTH>(query, rows, first, sizes.rows, aligned<WIDTH>(rows));
    fetch<BN, PW, WIDTH>(keys, key, 0, sizes.keys, whole_k);
    for (i64 start = 0; start < end; start += BN) {
        await_copies();
        __syncthreads();
        fetch<BN, PV, DEPTH>(values, value, start, sizes.keys, whole_v);
        float s[SLABS][TILES][4] = {};
        multiply<PW>(s, query + own * PW, keys, lane);
        const bool edge = start + BN > sizes.keys || (CAUSAL && start + BN > first);
        #pragma unroll
        for (int m = 0; m < SLABS; ++m) {
            #pragma unroll
            for (int half = 0; half < 2; ++half) {
                const i64 row = first + own + 16 * m + 8 * half + lane / 4;
                if (edge) {
                    weigh<true>(s[m], sum[m], half, top[m][half], total[m][half], mask, sizes, row, start, factor,
                        scale, drop, place.batch, lane);
                } else {
                    weigh<false>(s[m], sum[m], half, top[m][half], total[m][half], mask, sizes, row, start, factor,
                        scale, drop, place.batch, lane);
                }
            }
        }
        await_copies();
        __syncthreads();
        if (start + BN < end) fetch<BN, PW, WIDTH>(keys, key, start + BN, sizes.keys, whole_k);
        gather_rows<PV>(sum, s, values, lane);
    }
    const View<Stored> made = of(out, place);
    const View<float> levels = of(level, place);
    #pragma unroll
    for (int m = 0; m < SLABS; ++m) {
        #pragma unroll
        for (int half = 0; half < 2; ++half) {
            const i64 row = first + own + 16 * m + 8 * half + lane / 4;
            float all = total[m][half];
            all += SHUFFLE(all, 1);
            all += SHUFFLE(all, 2);
            if (row >= sizes.rows) continue;
            if (lane % 4 == 0) levels.at[row * levels.row] = all == 0.0f ? 0.0f : fmaf(top[m][half], factor * LN2, logf(all));
            store_row(made, sum[m], half, row, all == 0.0f ? 0.0f : 1.0f / all, DEPTH, lane);
        }
    }
}
"""

_BACKWARD = """\
// Scores to probabilities after dropout, and their gradients to those of the scores.
__device__ __forceinline__ void slope(
    float (&s)[TILES][4], float (&t)[TILES][4], const float* levels, const float* alongs,
    const View<const Masked>& mask, const Sizes& sizes, const i64 first, const i64 start, const int own,
    const float scale, const float factor, const Drop& drop, const i64 batch, const int lane, const bool edge) {
    #pragma unroll
    for (int n = 0; n < TILES; ++n) {
        Pair both = {};
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            const int a = own + lane / 4 + e / 2 * 8, b = 8 * n + lane % 4 * 2 + e % 2, r = BY_KEYS ? b : a;
            const i64 row = BY_KEYS ? start + b : first + a, key = BY_KEYS ? first + a : start + b;
            float x = s[n][e];
            if (HIDES || ADDS) x = scored(x, scale, mask, row, key, sizes);
            else if (edge && (row >= sizes.rows || key >= sizes.keys || (CAUSAL && key > row))) x = NONE;
            const float p = power_of_2(above(x, factor, levels[r]));
            float used = p, g = t[n][e];
            if (DROPOUT) {
                if (!BY_KEYS && e % 2 == 0) both = stay_both(drop, (batch * sizes.rows + row) * sizes.keys + key);
                const bool stay = BY_KEYS ? stays(drop, sizes, batch, row, key) : e % 2 ? both.second : both.first;
                used = stay ? p * drop.factor : 0.0f;
                g = stay ? g * drop.factor : 0.0f;
            }
            s[n][e] = used;
            t[n][e] = p * (g - alongs[r]);
        }
    }
}
constexpr int LEVELS = BY_KEYS ? BN : BM;
__device__ __forceinline__ void fetch_levels(
    float* target, const View<const float>& from, const i64 first, const i64 count, const float factor) {
    for (int e = threadIdx.x; e < LEVELS; e += THREADS) {
        target[e] = first + e < count ? from.at[(first + e) * from.row] * factor : 0.0f;
    }
}

__device__ __forceinline__ void walk(
    const Sizes& sizes, const View<Stored>& made, const View<Stored>& made_too, const View<const Stored>& g,
    const View<const float>& level, const View<const float>& along, const View<const Stored>& q,
    const View<const Stored>& k, const View<const Stored>& v, const View<const Masked>& masks, const float scale,
    const Drop& drop) {
    extern __shared__ Eight memory[];
    Stored* const own_a = (Stored*)memory;
    Stored* const own_b = own_a + BM * PW;
    Stored* const others_a = own_b + BM * PV;
    Stored* const others_b = others_a + 2 * BN * PW;
    __shared__ float levels[2][LEVELS], alongs[2][LEVELS];
    const i64 count = BY_KEYS ? sizes.keys : sizes.rows, others = BY_KEYS ? sizes.rows : sizes.keys;
    const int lane = threadIdx.x % 32, own = threadIdx.x / 32 * 16 * SLABS;
    const Place place = place_of(sizes, (count + BM - 1) / BM, CAUSAL && !BY_KEYS);
    const i64 first = place.tile * BM;
    const View<const Stored> a = of(BY_KEYS ? k : q, place), b = of(BY_KEYS ? v : g, place);
    const View<const Stored> c = of(BY_KEYS ? q : k, place), d = of(BY_KEYS ? g : v, place);
    const View<const Masked> mask = of(masks, place);
    const View<const float> level_here = of(level, place), along_here = of(along, place);
    float sum[SLABS][DW / 8][4] = {}, sum_too[SLABS][DV / 8][4] = {};
    i64 begin = 0, end = others;
    if (CAUSAL && BY_KEYS) begin = first / BN * BN;
    if (CAUSAL && !BY_KEYS && first + BM < end) end = first + BM;
    const bool whole_c = aligned<WIDTH>(c), whole_d = aligned<DEPTH>(d);
    const float factor = (HIDES || ADDS ? 1.0f : scale) * LOG2E;
    fetch<BM, PW, WIDTH>(own_a, a, first, count, aligned<WIDTH>(a));
    fetch<BM, PV, DEPTH>(own_b, b, first, count, aligned<DEPTH>(b));
    fetch_levels(levels[0], level_here, BY_KEYS ? begin : first, sizes.rows, OF_LEVEL);
    fetch_levels(alongs[0], along_here, BY_KEYS ? begin : first, sizes.rows, 1.0f);
    fetch<BN, PW, WIDTH>(others_a, c, begin, others, whole_c);
    fetch<BN, PV, DEPTH>(others_b, d, begin, others, whole_d);
    int at = 0;
    for (i64 start = begin; start < end; start += BN, at ^= 1) {
        await_copies();
        __syncthreads();
        if (start + BN < end) {
            fetch<BN, PW, WIDTH>(others_a + (at ^ 1) * BN * PW, c, start + BN, others, whole_c);
            fetch<BN, PV, DEPTH>(others_b + (at ^ 1) * BN * PV, d, start + BN, others, whole_d);
            if (BY_KEYS) {
                fetch_levels(levels[at ^ 1], level_here, start + BN, sizes.rows, OF_LEVEL);
                fetch_levels(alongs[at ^ 1], along_here, start + BN, sizes.rows, 1.0f);
            }
        }
        float s[SLABS][TILES][4] = {}, t[SLABS][TILES][4] = {};
        multiply<PW>(s, own_a + own * PW, others_a + at * BN * PW, lane);
        multiply<PV>(t, own_b + own * PV, others_b + at * BN * PV, lane);
        const bool edge = start + BN > others || first + BM > count ||
            (CAUSAL && (BY_KEYS ? first + BM > start : start + BN > first));
        const int row_set = BY_KEYS ? at : 0;
        #pragma unroll
        for (int m = 0; m < SLABS; ++m) {
            slope(s[m], t[m], levels[row_set], alongs[row_set], mask, sizes, first, start, own + 16 * m, scale,
                factor, drop, place.batch, lane, edge);
        }
        if (BY_KEYS) gather_rows<PV>(sum_too, s, others_b + at * BN * PV, lane);
        gather_rows<PW>(sum, t, others_a + at * BN * PW, lane);
    }
    const View<Stored> to = of(made, place), to_too = of(made_too, place);
    #pragma unroll
    for (int half = 0; half < 2 * SLABS; ++half) {
        const i64 row = first + own + 8 * half + lane / 4;
        if (row >= count) continue;
        store_row(to, sum[half / 2], half % 2, row, scale, WIDTH, lane);
        if (BY_KEYS) store_row(to_too, sum_too[half / 2], half % 2, row, 1.0f, DEPTH, lane);
    }
}
__device__ __forceinline__ void run(
    const Sizes& sizes, const View<Stored>& dk, const View<Stored>& dv, const View<const Stored>& g,
    const View<const float>& level, const View<const float>& along, const View<const Stored>& q,
    const View<const Stored>& k, const View<const Stored>& v, const View<const Masked>& mask, const float scale,
    const Drop& drop) {
    walk(sizes, dk, dv, g, level, along, q, k, v, mask, scale, drop);
}
__device__ __forceinline__ void run(
    const Sizes& sizes, const View<Stored>& dq, const View<const Stored>& g, const View<const float>& level,
    const View<const float>& along, const View<const Stored>& q, const View<const Stored>& k,
    const View<const Stored>& v, const View<const Masked>& mask, const float scale, const Drop& drop) {
    walk(sizes, dq, dq, g, level, along, q, k, v, mask, scale, drop);
}
"""
