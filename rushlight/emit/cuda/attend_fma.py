"""Attention in float32 and float64 by fma, and what halves do not do by tensor cores.

A block is RG groups of NC threads. A thread has `rows` rows, RG apart, and in the tile of the other
side `cells` columns, NC apart; of a result's features it has `span`. A group lies in one warp, so
probabilities go through shared memory between the two products without a barrier of the block.
See Note [Attention on CUDA].
"""

from __future__ import annotations

from typing import NamedTuple

from rushlight.core.dtypes import compute_type
from rushlight.kernel.shapes import Attend


class Sizes(NamedTuple):
    """Features with padding, threads of a group, groups, rows and columns of a thread."""

    features: int
    lanes: int
    groups: int
    rows: int
    cells: int

    @property
    def own(self) -> int:
        return self.rows * self.groups

    @property
    def others(self) -> int:
        return self.cells * self.lanes

    @property
    def span(self) -> int:
        return self.features // self.lanes


# By features: lanes, groups, then (rows, cells) forward and backward in float32 and in float64.
_SIZES = {
    32: (8, 16, ((8, 8), (4, 8)), ((4, 4), (4, 4))),
    64: (8, 16, ((8, 8), (4, 8)), ((4, 4), (4, 4))),
    128: (16, 16, ((8, 4), (4, 4)), ((4, 2), (4, 1))),
    256: (32, 8, ((8, 2), (4, 2)), ((4, 1), (2, 1))),
}
WIDTHS = tuple(_SIZES)


def sizes_of(kernel: Attend) -> Sizes:
    wide = max(kernel.width, kernel.depth)
    features = next(n for n in _SIZES if n >= wide)
    lanes, groups, single, double = _SIZES[features]
    chosen = single if compute_type(kernel.dtype).itemsize == 4 else double
    return Sizes(features, lanes, groups, *chosen[kernel.of != "output"])


def tile_of(kernel: Attend) -> tuple[int, int, int]:
    """Own rows of a block, its threads, and its bytes of shared memory."""
    s, size = sizes_of(kernel), compute_type(kernel.dtype).itemsize
    pad = 16 // size
    pitch, wide = s.features + pad, s.others + pad
    if kernel.of == "output":
        count = (s.own + 2 * s.others) * pitch + s.own * wide
    else:
        count = 2 * (s.own + s.others) * pitch + s.own * wide
    return s.own, s.lanes * s.groups, count * size


def text(kernel: Attend) -> str:
    s, size = sizes_of(kernel), compute_type(kernel.dtype).itemsize
    head = f"""\
constexpr int D = {s.features}, NC = {s.lanes}, RG = {s.groups}, TM = {s.rows}, TN = {s.cells};
constexpr int BM = TM * RG, BN = TN * NC, SPAN = {s.span}, PAD = {16 // size};
constexpr int PITCH = D + PAD, WIDE = BN + PAD, THREADS = NC * RG;
constexpr bool BY_KEYS = {str(kernel.of == "keys").lower()};
{_MATHS[size]}"""
    body = {"output": _FORWARD, "mask": _MASK}.get(kernel.of, _BACKWARD)
    return (
        head
        + ASYNC
        + POWERS[size]
        + SCORES
        + _SHARED
        + (body if kernel.of == "output" else _SLOPES + body)
    )


_MATHS = {
    4: """\
#define FMA fmaf
#define LOG logf
constexpr Real UNIT = 1.44269504f, INVERSE = 0.693147181f, OF_LEVEL = ADDS ? 1 : UNIT;
""",
    8: """\
#define FMA fma
#define LOG log
constexpr Real UNIT = 1, INVERSE = 1, OF_LEVEL = 1;
""",
}

# UNIT is the number of units of an exponent in 1: powers of 2 in float32, of e in float64.
POWERS = {
    4: """\
__device__ __forceinline__ float power(const float x) {
    float y;
    asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
""",
    8: """\
__device__ __forceinline__ double power(const double x) { return exp(x); }
""",
}

# Copies of 16 bytes from global to shared memory; zeros where `bytes` is 0.
ASYNC = """\
__device__ __forceinline__ void copy_16(void* to, const void* from, const int bytes) {
    const u32 place = (u32)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(place), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void await_copies() {
    asm volatile("cp.async.commit_group;\\ncp.async.wait_group 0;" ::: "memory");
}
"""

# A score with its mask, a weight's exponent, and dropout's decision.
SCORES = """\
__device__ __forceinline__ Real scored(
    const Real product, const Real scale, const View<const Masked>& mask, const i64 row, const i64 key,
    const Sizes& sizes) {
    if (row >= sizes.rows || key >= sizes.keys || (CAUSAL && key > row)) return NONE;
    Real x = product * scale;
    if (HIDES && !mask.at[row * mask.row + key * mask.column]) x = NONE;
    if (ADDS) x += added(mask.at[row * mask.row + key * mask.column]);
    return x;
}
// x factor - base. A mask may add so low a number that the product overflows, or its rounding counts:
// there base is a score, and is subtracted first.
__device__ __forceinline__ Real above(const Real x, const Real factor, const Real base) {
    return ADDS ? (x - base) * factor : FMA(x, factor, -base);
}
// The words of four positions, and the test of one: `kept` in kernel/attend.py.
__device__ __forceinline__ void draw(u32 (&words)[4], const Drop& drop, const i64 position) {
    const u64 counter = (u64)(position >> 2), seed = (u64)drop.seed;
    random_4(words, (u32)counter, (u32)(counter >> 32), (u32)seed, (u32)(seed >> 32));
}
__device__ __forceinline__ bool picked(const u32 (&words)[4], const i64 position, const float chance) {
    const u32 low = position & 1 ? words[1] : words[0], high = position & 1 ? words[3] : words[2];
    return chance <= (float)((position & 2 ? high : low) >> 8) * (1.0f / 16777216.0f);
}
__device__ __forceinline__ bool stays(
    const Drop& drop, const Sizes& sizes, const i64 batch, const i64 row, const i64 key) {
    const i64 position = drop.position + (batch * sizes.rows + row) * sizes.keys + key;
    u32 words[4];
    draw(words, drop, position);
    return picked(words, position, drop.chance);
}
"""

_SHARED = """\
struct alignas(16) Four { Real v[4]; };

// Rows of an operand, from `first` on, as a tile of D features.
template <int ROWS, int COLUMNS>
__device__ __forceinline__ void fetch(
    Real* tile, const View<const Stored>& from, const i64 first, const i64 count) {
    const bool whole = sizeof(Stored) == sizeof(Real) && from.column == 1 && COLUMNS % 4 == 0 &&
        (u64)from.at % 16 == 0 && from.row * (i64)sizeof(Real) % 16 == 0;
    const int left = (int)(count - first < ROWS ? count - first : ROWS);
    const Stored* const start = from.at + first * from.row;
    for (int e = threadIdx.x; e < ROWS * (D / 4); e += THREADS) {
        const int r = e / (D / 4), d = e % (D / 4) * 4;
        const bool inside = r < left;
        const Stored* const source = inside ? start + r * from.row : from.at;
        Real* const target = tile + r * PITCH + d;
        if (whole) {
            const bool some = inside && d < COLUMNS;
            #pragma unroll
            for (int b = 0; b < (int)sizeof(Four) / 16; ++b) {
                copy_16((char*)target + 16 * b, (const char*)(source + (some ? d : 0)) + 16 * b, some ? 16 : 0);
            }
        } else {
            #pragma unroll
            for (int u = 0; u < 4; ++u) {
                target[u] = inside && d + u < COLUMNS ? widened(source[(d + u) * from.column]) : (Real)0;
            }
        }
    }
}

// s[i][j] += the products of own row i and other row j.
template <int COLUMNS>
__device__ __forceinline__ void multiply(
    Real (&s)[TM][TN], const Real* own, const Real* other, const int group, const int lane) {
    #pragma unroll 4
    for (int d = 0; d < COLUMNS; d += 4) {
        Four b[TN];
        #pragma unroll
        for (int j = 0; j < TN; ++j) b[j] = *(const Four*)(other + (lane + NC * j) * PITCH + d);
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            const Four a = *(const Four*)(own + (group + RG * i) * PITCH + d);
            #pragma unroll
            for (int j = 0; j < TN; ++j) {
                #pragma unroll
                for (int e = 0; e < 4; ++e) s[i][j] = FMA(a.v[e], b[j].v[e], s[i][j]);
            }
        }
    }
}

__device__ __forceinline__ int feature(const int lane, const int o) {
    return o / 4 * (D / (SPAN / 4)) + lane * 4 + o % 4;
}

// sum[i] += p[i][c] * other[c] over the tile's rows c.
__device__ __forceinline__ void gather_rows(
    Real (&sum)[TM][SPAN], const Real* p, const Real* other, const int group, const int lane) {
    #pragma unroll 2
    for (int c = 0; c < BN; c += 4) {
        Four a[TM];
        #pragma unroll
        for (int i = 0; i < TM; ++i) a[i] = *(const Four*)(p + (group + RG * i) * WIDE + c);
        #pragma unroll
        for (int e = 0; e < 4; ++e) {
            #pragma unroll
            for (int o = 0; o < SPAN; o += 4) {
                const Four b = *(const Four*)(other + (c + e) * PITCH + feature(lane, o));
                #pragma unroll
                for (int i = 0; i < TM; ++i) {
                    #pragma unroll
                    for (int u = 0; u < 4; ++u) sum[i][o + u] = FMA(a[i].v[e], b.v[u], sum[i][o + u]);
                }
            }
        }
    }
}
"""

_FORWARD = """\
// Scores to weights; the sums so far shrink when a maximum grows. The scale is positive, so maxima
// are taken before it.
template <bool EDGE>
__device__ __forceinline__ void weigh(
    Real (&s)[TM][TN], Real (&sum)[TM][SPAN], Real (&top)[TM], Real (&total)[TM], Real* weights,
    const View<const Masked>& mask, const Sizes& sizes, const i64 first, const i64 start, const Real factor,
    const Real scale, const Drop& drop, const i64 batch, const int group, const int lane) {
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        const i64 row = first + group + RG * i;
        i64 room = sizes.keys - start;
        if (CAUSAL && row - start + 1 < room) room = row - start + 1;
        const int last = (int)(room < BN ? room : BN) - lane;
        Real most = NONE;
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            if (HIDES || ADDS) s[i][j] = scored(s[i][j], scale, mask, row, start + lane + NC * j, sizes);
            else if (EDGE && NC * j >= last) s[i][j] = NONE;
            most = s[i][j] > most || s[i][j] != s[i][j] ? s[i][j] : most;
        }
        #pragma unroll
        for (int m = NC / 2; m; m /= 2) {
            const Real there = SHUFFLE(most, m);
            most = there > most || there != there ? there : most;
        }
        most = top[i] > most || top[i] != top[i] ? top[i] : most;
        const Real base = most == NONE ? (Real)0 : ADDS ? most : most * factor;
        const Real shrink = power(above(top[i], factor, base));
        top[i] = most;
        Real part = 0;
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            Real p = power(above(s[i][j], factor, base));
            part += p;
            if (DROPOUT) p = stays(drop, sizes, batch, row, start + lane + NC * j) ? p * (Real)drop.factor : (Real)0;
            weights[(group + RG * i) * WIDE + lane + NC * j] = p;
        }
        total[i] = total[i] * shrink + part;
        #pragma unroll
        for (int o = 0; o < SPAN; ++o) sum[i][o] *= shrink;
    }
}

__device__ __forceinline__ void run(
    const Sizes& sizes, const View<Stored>& out, const View<Real>& level, const View<const Stored>& q,
    const View<const Stored>& k, const View<const Stored>& v, const View<const Masked>& masks, const Real scale,
    const Drop& drop) {
    extern __shared__ Four memory[];
    Real* const query = (Real*)memory;
    Real* const keys = query + BM * PITCH;
    Real* const values = keys + BN * PITCH;
    Real* const weights = values + BN * PITCH;
    const int lane = threadIdx.x % NC, group = threadIdx.x / NC;
    const Place place = place_of(sizes, (sizes.rows + BM - 1) / BM, CAUSAL);
    const i64 first = place.tile * BM;
    const View<const Stored> own = of(q, place), key = of(k, place), value = of(v, place);
    const View<const Masked> mask = of(masks, place);
    Real sum[TM][SPAN] = {}, top[TM], total[TM] = {};
    #pragma unroll
    for (int i = 0; i < TM; ++i) top[i] = NONE;
    i64 end = sizes.keys;
    if (CAUSAL && first + BM < end) end = first + BM;
    const Real factor = (HIDES || ADDS ? (Real)1 : scale) * UNIT;
    fetch<BM, WIDTH>(query, own, first, sizes.rows);
    fetch<BN, WIDTH>(keys, key, 0, sizes.keys);
    for (i64 start = 0; start < end; start += BN) {
        await_copies();
        __syncthreads();
        fetch<BN, DEPTH>(values, value, start, sizes.keys);
        Real s[TM][TN] = {};
        multiply<WIDTH>(s, query, keys, group, lane);
        if (start + BN > sizes.keys || (CAUSAL && start + BN > first)) {
            weigh<true>(s, sum, top, total, weights, mask, sizes, first, start, factor, scale, drop, place.batch,
                group, lane);
        } else {
            weigh<false>(s, sum, top, total, weights, mask, sizes, first, start, factor, scale, drop, place.batch,
                group, lane);
        }
        await_copies();
        __syncthreads();
        if (start + BN < end) fetch<BN, WIDTH>(keys, key, start + BN, sizes.keys);
        gather_rows(sum, weights, values, group, lane);
    }
    const View<Stored> made = of(out, place);
    const View<Real> levels = of(level, place);
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        const i64 row = first + group + RG * i;
        #pragma unroll
        for (int m = NC / 2; m; m /= 2) total[i] += SHUFFLE(total[i], m);
        if (row >= sizes.rows) continue;
        const bool empty = total[i] == 0;
        if (lane == 0) levels.at[row * levels.row] = empty ? (Real)0 : FMA(top[i], factor * INVERSE, LOG(total[i]));
        #pragma unroll
        for (int o = 0; o < SPAN; ++o) {
            const int d = feature(lane, o);
            if (d < DEPTH) made.at[row * made.row + d * made.column] = narrowed(empty ? (Real)0 : sum[i][o] / total[i]);
        }
    }
}
"""

_SLOPES = """\
// Scores to probabilities after dropout, and their gradients to those of the scores.
__device__ __forceinline__ void slope(
    Real (&s)[TM][TN], Real (&t)[TM][TN], const Real* level, const Real* along, const View<const Masked>& mask,
    const Sizes& sizes, const i64 first, const i64 start, const Real scale, const Drop& drop, const i64 batch,
    const int group, const int lane) {
    const Real factor = (HIDES || ADDS ? (Real)1 : scale) * UNIT;
    const i64 count = BY_KEYS ? sizes.keys : sizes.rows, others = BY_KEYS ? sizes.rows : sizes.keys;
    const bool edge = start + BN > others || first + BM > count ||
        (CAUSAL && (BY_KEYS ? first + BM > start : start + BN > first));
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            const int a = group + RG * i, b = lane + NC * j, r = BY_KEYS ? b : a;
            const i64 row = BY_KEYS ? start + b : first + a, key = BY_KEYS ? first + a : start + b;
            Real x = s[i][j];
            if (HIDES || ADDS) x = scored(x, scale, mask, row, key, sizes);
            else if (edge && (row >= sizes.rows || key >= sizes.keys || (CAUSAL && key > row))) x = NONE;
            const Real p = power(above(x, factor, level[r]));
            Real used = p, g = t[i][j];
            if (DROPOUT) {
                const bool stay = stays(drop, sizes, batch, row, key);
                used = stay ? p * (Real)drop.factor : (Real)0;
                g = stay ? g * (Real)drop.factor : (Real)0;
            }
            s[i][j] = used;
            t[i][j] = p * (g - along[r]);
        }
    }
}

__device__ __forceinline__ void fetch_levels(
    Real* target, const View<const Real>& from, const i64 first, const i64 count, const int many, const Real unit) {
    for (int e = threadIdx.x; e < many; e += THREADS) {
        target[e] = first + e < count ? from.at[(first + e) * from.row] * unit : (Real)0;
    }
}
"""

_BACKWARD = """\
__device__ __forceinline__ void put(Real* weights, const Real (&s)[TM][TN], const int group, const int lane) {
    SYNC_WARP();
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) weights[(group + RG * i) * WIDE + lane + NC * j] = s[i][j];
    }
    SYNC_WARP();
}
template <int COLUMNS>
__device__ __forceinline__ void store_rows(
    const View<Stored>& to, const Real (&sum)[TM][SPAN], const i64 first, const i64 count, const Real factor,
    const int group, const int lane) {
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        const i64 row = first + group + RG * i;
        if (row >= count) continue;
        #pragma unroll
        for (int o = 0; o < SPAN; ++o) {
            const int d = feature(lane, o);
            if (d < COLUMNS) to.at[row * to.row + d * to.column] = narrowed(sum[i][o] * factor);
        }
    }
}

__device__ __forceinline__ void walk(
    const Sizes& sizes, const View<Stored>& made, const View<Stored>& made_too, const View<const Stored>& g,
    const View<const Real>& level, const View<const Real>& along, const View<const Stored>& q,
    const View<const Stored>& k, const View<const Stored>& v, const View<const Masked>& masks, const Real scale,
    const Drop& drop) {
    extern __shared__ Four memory[];
    Real* const own_a = (Real*)memory;
    Real* const own_b = own_a + BM * PITCH;
    Real* const other_a = own_b + BM * PITCH;
    Real* const other_b = other_a + BN * PITCH;
    Real* const weights = other_b + BN * PITCH;
    constexpr int MOST = BM > BN ? BM : BN;
    const i64 count = BY_KEYS ? sizes.keys : sizes.rows, others = BY_KEYS ? sizes.rows : sizes.keys;
    __shared__ Real levels[MOST], alongs[MOST];
    const int lane = threadIdx.x % NC, group = threadIdx.x / NC;
    const Place place = place_of(sizes, (count + BM - 1) / BM, CAUSAL && !BY_KEYS);
    const i64 first = place.tile * BM;
    const View<const Stored> a = of(BY_KEYS ? k : q, place), b = of(BY_KEYS ? v : g, place);
    const View<const Stored> c = of(BY_KEYS ? q : k, place), d = of(BY_KEYS ? g : v, place);
    const View<const Masked> mask = of(masks, place);
    const View<const Real> level_here = of(level, place), along_here = of(along, place);
    Real sum[TM][SPAN] = {}, sum_too[TM][SPAN] = {};
    i64 begin = 0, end = others;
    if (CAUSAL && BY_KEYS) begin = first / BN * BN;
    if (CAUSAL && !BY_KEYS && first + BM < end) end = first + BM;
    fetch<BM, WIDTH>(own_a, a, first, count);
    fetch<BM, DEPTH>(own_b, b, first, count);
    if (!BY_KEYS) {
        fetch_levels(levels, level_here, first, count, BM, OF_LEVEL);
        fetch_levels(alongs, along_here, first, count, BM, 1);
    }
    for (i64 start = begin; start < end; start += BN) {
        __syncthreads();
        fetch<BN, WIDTH>(other_a, c, start, others);
        fetch<BN, DEPTH>(other_b, d, start, others);
        if (BY_KEYS) {
            fetch_levels(levels, level_here, start, others, BN, OF_LEVEL);
            fetch_levels(alongs, along_here, start, others, BN, 1);
        }
        await_copies();
        __syncthreads();
        Real s[TM][TN] = {}, t[TM][TN] = {};
        multiply<WIDTH>(s, own_a, other_a, group, lane);
        multiply<DEPTH>(t, own_b, other_b, group, lane);
        slope(s, t, levels, alongs, mask, sizes, first, start, scale, drop, place.batch, group, lane);
        if (BY_KEYS) {
            put(weights, s, group, lane);
            gather_rows(sum_too, weights, other_b, group, lane);
        }
        put(weights, t, group, lane);
        gather_rows(sum, weights, other_a, group, lane);
    }
    await_copies();
    store_rows<WIDTH>(of(made, place), sum, first, count, scale, group, lane);
    if (BY_KEYS) store_rows<DEPTH>(of(made_too, place), sum_too, first, count, (Real)1, group, lane);
}
__device__ __forceinline__ void run(
    const Sizes& sizes, const View<Stored>& dk, const View<Stored>& dv, const View<const Stored>& g,
    const View<const Real>& level, const View<const Real>& along, const View<const Stored>& q,
    const View<const Stored>& k, const View<const Stored>& v, const View<const Masked>& mask, const Real scale,
    const Drop& drop) {
    walk(sizes, dk, dv, g, level, along, q, k, v, mask, scale, drop);
}
__device__ __forceinline__ void run(
    const Sizes& sizes, const View<Stored>& dq, const View<const Stored>& g, const View<const Real>& level,
    const View<const Real>& along, const View<const Stored>& q, const View<const Stored>& k,
    const View<const Stored>& v, const View<const Masked>& mask, const Real scale, const Drop& drop) {
    walk(sizes, dq, dq, g, level, along, q, k, v, mask, scale, drop);
}
"""

_MASK = """\
// A block has one tile of the mask and adds over the batch entries that share it.
__device__ __forceinline__ void run(
    const Sizes& sizes, const View<Masked>& dmask, const View<const Stored>& g, const View<const Real>& level,
    const View<const Real>& along, const View<const Stored>& q, const View<const Stored>& k,
    const View<const Stored>& v, const View<const Masked>& masks, const Real scale, const Drop& drop) {
    extern __shared__ Four memory[];
    Real* const own_a = (Real*)memory;
    Real* const own_b = own_a + BM * PITCH;
    Real* const other_a = own_b + BM * PITCH;
    Real* const other_b = other_a + BN * PITCH;
    __shared__ Real levels[BM], alongs[BM];
    const int lane = threadIdx.x % NC, group = threadIdx.x / NC;
    const i64 across = (sizes.keys + BN - 1) / BN, down = (sizes.rows + BM - 1) / BM;
    Place place = place_of(sizes, across * down, false);
    const i64 first = place.tile / across * BM, start = place.tile % across * BN;
    const bool many_x = dmask.x == 0, many_y = dmask.y == 0, many_z = dmask.z == 0;
    if ((many_x && place.x) || (many_y && place.y) || (many_z && place.z)) return;
    Real sum[TM][TN] = {};
    for (i64 x = 0; x < (many_x ? sizes.x : 1); ++x)
    for (i64 y = 0; y < (many_y ? sizes.y : 1); ++y)
    for (i64 z = 0; z < (many_z ? sizes.z : 1); ++z) {
        Place here = place;
        here.x += x, here.y += y, here.z += z;
        here.batch = (here.x * sizes.y + here.y) * sizes.z + here.z;
        __syncthreads();
        fetch<BM, WIDTH>(own_a, of(q, here), first, sizes.rows);
        fetch<BM, DEPTH>(own_b, of(g, here), first, sizes.rows);
        fetch<BN, WIDTH>(other_a, of(k, here), start, sizes.keys);
        fetch<BN, DEPTH>(other_b, of(v, here), start, sizes.keys);
        fetch_levels(levels, of(level, here), first, sizes.rows, BM, OF_LEVEL);
        fetch_levels(alongs, of(along, here), first, sizes.rows, BM, 1);
        await_copies();
        __syncthreads();
        Real s[TM][TN] = {}, t[TM][TN] = {};
        multiply<WIDTH>(s, own_a, other_a, group, lane);
        multiply<DEPTH>(t, own_b, other_b, group, lane);
        slope(s, t, levels, alongs, of(masks, here), sizes, first, start, scale, drop, here.batch, group, lane);
        #pragma unroll
        for (int i = 0; i < TM; ++i) {
            #pragma unroll
            for (int j = 0; j < TN; ++j) sum[i][j] += t[i][j];
        }
    }
    const View<Masked> made = of(dmask, place);
    #pragma unroll
    for (int i = 0; i < TM; ++i) {
        #pragma unroll
        for (int j = 0; j < TN; ++j) {
            const i64 row = first + group + RG * i, key = start + lane + NC * j;
            if (row < sizes.rows && key < sizes.keys) made.at[row * made.row + key * made.column] = mask_of(sum[i][j]);
        }
    }
}
"""
