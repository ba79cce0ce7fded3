"""CUDA C on the CPU, for machines without a GPU: the emitted text compiled by the host's C++
compiler.

A block's threads are fibers that run in turn and switch at every barrier and shuffle; blocks run
one after another. The launch function has cuLaunchKernel's signature, so that the real launcher
calls it. It is slow, and runs the emitted text unchanged.
"""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

from rushlight.devices.cuda.driver import address_of
from rushlight.devices.cuda.grid import SCRATCH_SLOTS, TICKETS, rule_of
from rushlight.devices.cuda.lists import CudaList
from rushlight.devices.cuda.stub import Arguments, Driver, make_launcher, make_packed_launcher
from rushlight.devices.shared.protocol import Launch
from rushlight.emit.cuda import attend_fma, attend_mma
from rushlight.emit.cuda.kernels import emit, entry_name
from rushlight.emit.cuda.lists import emit_list, list_name
from rushlight.kernel.attend import params_of
from rushlight.kernel.interpret import signature
from rushlight.kernel.shapes import Attend, Gather, Kernel, Map, Rowwise, Scatter

BEFORE = r"""
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>
#include <ucontext.h>
#define __HIP__ 1
#define __device__
#define __global__
#define __shared__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __builtin_amdgcn_wave_barrier() emulated::pause()
#define __builtin_amdgcn_wavefrontsize() 32
#define __popc(x) __builtin_popcount(x)
#define __syncthreads() emulated::pause()
#define __threadfence()
struct Dim { unsigned x, y, z; };
static Dim threadIdx, blockIdx, blockDim, gridDim;
namespace emulated {
struct Fiber { ucontext_t at; bool done; std::vector<char> stack; };
static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static double slots[1024];
static void (*job)();
static void pause() { const unsigned me = threadIdx.x; swapcontext(&fibers[me].at, &scheduler); }
static void begin() { job(); fibers[threadIdx.x].done = true; }
static void run_block(const unsigned threads) {
    if (fibers.size() < threads) fibers.resize(threads);
    for (unsigned t = 0; t < threads; ++t) {
        Fiber& f = fibers[t];
        f.stack.resize(1 << 16);
        f.done = false;
        getcontext(&f.at);
        f.at.uc_stack.ss_sp = f.stack.data();
        f.at.uc_stack.ss_size = f.stack.size();
        f.at.uc_link = &scheduler;
        makecontext(&f.at, begin, 0);
    }
    for (bool alive = true; alive;) {
        alive = false;
        for (unsigned t = 0; t < threads; ++t) {
            if (fibers[t].done) continue;
            threadIdx.x = t;
            swapcontext(&scheduler, &fibers[t].at);
            alive |= !fibers[t].done;
        }
    }
}
}
template <typename T> static T __shfl_xor(const T value, const int mask, int) {
    const unsigned me = threadIdx.x;
    std::memcpy(&emulated::slots[me], &value, sizeof(T));
    emulated::pause();
    T other;
    std::memcpy(&other, &emulated::slots[me ^ (unsigned)mask], sizeof(T));
    emulated::pause();
    return other;
}
static unsigned long long __ballot(const int test) {
    const unsigned me = threadIdx.x;
    emulated::slots[me] = test ? 1.0 : 0.0;
    emulated::pause();
    unsigned long long found = 0;
    for (unsigned l = 0; l < 32; ++l) {
        found |= (unsigned long long)(emulated::slots[(me & ~31u) + l] != 0.0) << l;
    }
    emulated::pause();
    return found;
}
template <typename A, typename B> static A bits_of(const B b) {
    A a;
    std::memcpy(&a, &b, sizeof a);
    return a;
}
static float __uint_as_float(unsigned x) { return bits_of<float>(x); }
static float __int_as_float(int x) { return bits_of<float>(x); }
static unsigned __float_as_uint(float x) { return bits_of<unsigned>(x); }
static int __float_as_int(float x) { return bits_of<int>(x); }
static double __longlong_as_double(long long x) { return bits_of<double>(x); }
static long long __double_as_longlong(double x) { return bits_of<long long>(x); }
static unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)(((unsigned long long)a * b) >> 32);
}
// ---- the instructions of Attend kernels: a warp's operands go through `given` ----
static unsigned given[1024][8];
static unsigned short* lines[1024];
alignas(16) static char shared_memory[1 << 18];
static void copy_16(void* to, const void* from, const int bytes) {
    std::memset(to, 0, 16);
    std::memcpy(to, from, bytes);
}
static void await_copies() {}
static void matrices(unsigned (&r)[4], const unsigned short* at, const bool turned) {
    const unsigned me = threadIdx.x, first = me & ~31u, lane = me % 32;
    lines[me] = (unsigned short*)at;
    emulated::pause();
    for (unsigned i = 0; i < 4; ++i) {
        unsigned short part[2];
        for (unsigned e = 0; e < 2; ++e) {
            const unsigned a = lane / 4, b = lane % 4 * 2 + e;
            part[e] = turned ? lines[first + 8 * i + b][a] : lines[first + 8 * i + a][b];
        }
        r[i] = part[0] | (unsigned)part[1] << 16;
    }
    emulated::pause();
}
static void load_4(unsigned (&r)[4], const unsigned short* at) { matrices(r, at, false); }
static void load_4_turned(unsigned (&r)[4], const unsigned short* at) { matrices(r, at, true); }
static float power_of_2(const float x) { return std::exp2(x); }
static float power(const float x) { return std::exp2(x); }
static float half_of(unsigned word, unsigned e);
static void mma(float (&c)[4], const unsigned (&a)[4], const unsigned b0, const unsigned b1) {
    const unsigned me = threadIdx.x, first = me & ~31u, lane = me % 32;
    for (unsigned i = 0; i < 4; ++i) given[me][i] = a[i];
    given[me][4] = b0, given[me][5] = b1;
    emulated::pause();
    for (unsigned e = 0; e < 4; ++e) {
        const unsigned row = lane / 4 + e / 2 * 8, column = lane % 4 * 2 + e % 2;
        double total = c[e];
        for (unsigned k = 0; k < 16; ++k) {
            const unsigned* const left = given[first + row % 8 * 4 + k % 8 / 2];
            const unsigned* const right = given[first + column * 4 + k % 8 / 2];
            const double a = half_of(left[row / 8 + k / 8 * 2], k % 2);
            total += a * half_of(right[4 + k / 8], k % 2);
        }
        c[e] = (float)total;
    }
    emulated::pause();
}
static unsigned atomicAdd(unsigned* p, unsigned v) { const unsigned old = *p; *p += v; return old; }
static unsigned atomicOr(unsigned* p, unsigned v) { const unsigned old = *p; *p |= v; return old; }
"""

HALVES = """
static float half_of(unsigned word, unsigned e) {
    return widened((unsigned short)(word >> 16 * e));
}
static unsigned pair(const float low, const float high) {
    return narrowed(low) | (unsigned)narrowed(high) << 16;
}
"""

AFTER = r"""
static void** packed;
template <typename... A, std::size_t... I>
static void apply(void (*f)(A...), std::index_sequence<I...>) {
    f(*(std::remove_const_t<A>*)packed[I]...);
}
template <typename... A> static void apply(void (*f)(A...)) {
    apply(f, std::index_sequence_for<A...>{});
}
extern "C" int launch(void*, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                      unsigned bz, unsigned, void*, void** params, void**) {
    if (!gx || !gy || gz != 1 || !bx || bx > 1024 || by != 1 || bz != 1) return 1;
    packed = params;
    gridDim = {gx, gy, gz};
    blockDim = {bx, by, bz};
    emulated::job = [] { apply(ENTRY); };
    for (unsigned y = 0; y < gy; ++y) {
        for (unsigned x = 0; x < gx; ++x) {
            blockIdx = {x, y, 0};
            emulated::run_block(bx);
        }
    }
    return 0;
}
extern "C" int bind(void*) { return 0; }
"""


def _text(kernel: Kernel) -> str:
    """The emitted text, with the emulation's functions in place of inline PTX."""
    text = emit(kernel).replace(attend_fma.ASYNC, "").replace(attend_fma.POWERS[4], "")
    for kind in ("f16", "bf16"):
        text = text.replace(attend_mma.WARP_OPS.replace("KIND", kind), HALVES)
    for name in ("Four", "Eight"):
        text = text.replace(
            f"extern __shared__ {name} memory[];", f"{name}* const memory = ({name}*)shared_memory;"
        )
    return text


class Emulator:
    """Builds launchers whose driver is the emulation."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.count = 0
        self.indexed = ctypes.c_int32(0)
        self.scratch = ctypes.create_string_buffer(8 * SCRATCH_SLOTS)
        self.tickets = ctypes.create_string_buffer(4 * TICKETS)

    def load(self, text: str, name: str) -> Driver:
        """A driver whose launches run one kernel's text."""
        self.count += 1
        source, library = (
            self.folder / f"kernel{self.count}.cpp",
            self.folder / f"kernel{self.count}.so",
        )
        source.write_text(BEFORE + text + AFTER.replace("ENTRY", name))
        flags = [
            "-std=c++17",
            "-O1",
            "-ffp-contract=off",
            "-shared",
            "-fPIC",
            "-w",
            "-fno-strict-aliasing",
        ]
        subprocess.run(["g++", *flags, "-o", library, source], check=True)
        loaded = ctypes.CDLL(str(library))
        return Driver(address_of(loaded, "launch"), address_of(loaded, "bind"), 0, 0)

    def build_list(self, kernel: Map | Rowwise, *tables: int) -> CudaList:
        def build(words: int) -> Launch:
            driver = self.load(emit_list(kernel, words), list_name(kernel))
            return make_packed_launcher(1, driver)

        scratch = (ctypes.addressof(self.scratch), ctypes.addressof(self.tickets))
        return CudaList(kernel, build, tables, scratch)

    def build(self, kernel: Kernel) -> Launch:
        driver = self.load(_text(kernel), entry_name(kernel))
        shape = signature(kernel)
        whole = shape.addresses + shape.sizes + sum(shape.strides)
        params = kernel.params if isinstance(kernel, Map | Rowwise) else ()
        if isinstance(kernel, Attend):
            params = params_of(kernel)
        arguments = Arguments(whole, range(shape.addresses, shape.addresses + shape.sizes), params)
        key, rule = rule_of(
            kernel, (ctypes.addressof(self.scratch), ctypes.addressof(self.tickets))
        )
        flag = ctypes.addressof(self.indexed) if isinstance(kernel, Gather | Scatter) else 0
        return make_launcher(1, arguments, key, rule, driver, flag)
