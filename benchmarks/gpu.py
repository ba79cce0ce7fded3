"""The GPU table: Rushlight on `cuda` (and `webgpu`) against PyTorch on the same GPU, in one run.

python benchmarks/gpu.py [--webgpu] [WORD ...]      exit code 1 if a bar is missed

Rows whose name holds one of the words, or all. A bar is the most that a ratio of times (Rushlight
over PyTorch) may be; a bar of WebGPU is against Rushlight on cuda. PyTorch is eager. Peaks are of
one call, beyond what there was before. Needs an NVIDIA GPU, CuPy and PyTorch.
"""

from __future__ import annotations

import datetime
import gc
import importlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gpu_attention
import gpu_convolution
import gpu_models
import gpu_rows
import torch
import workloads
from gpu_models import Sizes, Work
from gpu_rows import seconds

import rushlight as rl
from rushlight.devices.shared.registry import pool_of

Make = Callable[[Any, str], Work]  # of a library and a device
BUDGET = 0.05  # seconds of one timing
STEPS = 20
ROW, TWICE, F32_PRODUCT, F16_PRODUCT = 1 / 0.8, 2.0, 1 / 0.6, 1 / 0.3  # bars of WebGPU


@dataclass(frozen=True)
class Case:
    """One row: what runs, its bar, and the bar of WebGPU, None where WebGPU is not timed."""

    name: str
    make: Make
    bar: float | None
    webgpu: float | None = None


@dataclass(frozen=True)
class Row:
    """Seconds and peak bytes."""

    case: Case
    ours: float
    theirs: float
    our_peak: int
    their_peak: int
    webgpu: float | None

    @property
    def reached(self) -> bool:
        case = self.case
        near = case.bar is None or self.ours <= case.bar * self.theirs
        if self.webgpu is None or case.webgpu is None:
            return near
        return near and self.webgpu <= case.webgpu * self.ours

    def __str__(self) -> str:
        case = self.case
        share = "" if self.webgpu is None else f"{self.webgpu / self.ours:.2f}"
        bars = [f"{b:.2f}" if b is not None else "" for b in (case.bar, case.webgpu)]
        cells = [
            case.name,
            _show(self.ours),
            _show(self.theirs),
            f"{self.ours / self.theirs:.2f}",
            bars[0],
            f"{self.our_peak / 2**20:.0f}",
            f"{self.their_peak / 2**20:.0f}",
            "" if self.webgpu is None else _show(self.webgpu),
            share,
            bars[1] if share else "",
            "ok" if self.reached else "over",
        ]
        return f"| {' | '.join(cells)} |"


HEAD = """\
| | cuda | PyTorch | ratio | bar | MiB | PyTorch's | webgpu | of cuda | bar | |
|---|---|---|---|---|---|---|---|---|---|---|"""


def _show(time: float) -> str:
    return f"{time * 1e6:.1f} us" if time < 1e-3 else f"{time * 1e3:.2f} ms"


# ---- measuring ----


def _waits(lib: Any, device: str) -> Work:
    return torch.cuda.synchronize if lib is torch else pool_of(device).device.synchronize


def _peak(lib: Any, device: str, work: Work) -> int:
    """Bytes of one call beyond those before it."""
    _waits(lib, device)()
    if lib is torch:
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        work()
        return torch.cuda.max_memory_allocated() - before
    before = pool_of(device).live
    rl.memory.reset_peak(device)
    work()
    return int(rl.memory.peak(device)) - before


def _timed(lib: Any, device: str, make: Make) -> tuple[float, int]:
    work = make(lib, device)
    found = seconds(work, _waits(lib, device), BUDGET), _peak(lib, device, work)
    del work
    gc.collect()
    if lib is torch:
        torch.cuda.empty_cache()
    else:
        pool_of(device).trim()
    return found


def measured(case: Case, with_webgpu: bool) -> Row:
    ours, our_peak = _timed(rl, "cuda", case.make)
    theirs, their_peak = _timed(torch, "cuda", case.make)
    webgpu = None
    if with_webgpu and case.webgpu is not None:
        webgpu, _ = _timed(rl, "webgpu", case.make)
    return Row(case, ours, theirs, our_peak, their_peak, webgpu)


# ---- models ----


def _resnet(dtype: str, tf32: bool) -> Make:
    def make(lib: Any, device: str) -> Work:
        gpu_convolution.set_tf32(tf32)
        return gpu_models.resnet_step(lib, device, dtype)

    return make


def model_cases() -> list[Case]:
    small = Sizes(64, 256, 6, 384, 6, 65, lower=False)
    return [
        Case("GPT-2 124M step, 16 x 1024, bfloat16", gpu_models.gpt_step, 0.95),
        Case("ResNet-18 step, 128 images, TF32", _resnet("float32", True), 1.0),
        Case("ResNet-18 step, 128 images, float32", _resnet("float32", False), 1.0, TWICE),
        Case("ResNet-18 step, 128 images, bfloat16", _resnet("bfloat16", True), 1.0),
        Case(
            "GPT 6x384 step, 64 x 256, float32",
            lambda lib, device: gpu_models.gpt_step(lib, device, small),
            0.9,
            TWICE,
        ),
        Case("MLP 784-256-10 step, batch 32, Adam", gpu_models.mlp_step, 0.25),
        Case("chain of 100 ops of 8 floats, forward and backward", workloads.chain, 0.7),
        Case("demo GPT step, batch 64", lambda lib, d: workloads.gpt_step(lib, d, 64)[0], None),
    ]


# ---- kernels ----


def _convolution(part: str, dtype: str, tf32: bool) -> Make:
    def make(lib: Any, device: str) -> Work:
        gpu_convolution.set_tf32(tf32)
        return gpu_convolution.passes(lib, device, dtype)[part]

    return make


def convolution_cases() -> Iterator[Case]:
    for dtype, tf32 in (("float32", True), ("float32", False), ("bfloat16", True)):
        for part in ("forward", "data gradient", "weight gradient"):
            label = "TF32" if tf32 and dtype == "float32" else dtype
            name = f"conv2d 64x128x56x56 3x3, {part}, {label}"
            yield Case(name, _convolution(part, dtype, tf32), 1.0)


def _attention(case: gpu_attention.Case, backward: bool) -> Make:
    def make(lib: Any, device: str) -> Work:
        q, k, v, g = (
            lib.randn(*case.shape, device=device).to(getattr(lib, case.dtype)) for _ in range(4)
        )
        leaves = [x.requires_grad_() for x in (q, k, v)]
        attend = lib.nn.functional.scaled_dot_product_attention
        if not backward:
            return lambda: attend(*leaves, is_causal=case.causal)
        out = attend(*leaves, is_causal=case.causal)
        return lambda: lib.autograd.grad(out, leaves, g, retain_graph=True)

    return make


def attention_cases() -> Iterator[Case]:
    for case in gpu_attention.CASES:
        if case.joined or case.masked or case.dropout or case.groups:
            continue
        size = "x".join(map(str, case.shape))
        label = f"attention {size}, {case.dtype}{', causal' if case.causal else ''}"
        for backward in (False, True):
            name = f"{label}, {'backward' if backward else 'forward'}"
            yield Case(name, _attention(case, backward), 1.0)


def row_cases() -> Iterator[Case]:
    for case in gpu_rows.cases():
        yield Case(case.name, case.make, 1.0, ROW if case.webgpu else None)


def _product(dtype: str) -> Make:
    def make(lib: Any, device: str) -> Work:
        a, b = (lib.randn(4096, 4096, device=device).to(getattr(lib, dtype)) for _ in range(2))
        return lambda: a @ b

    return make


def _linear(lib: Any, device: str) -> Work:
    x, w = (lib.randn(*s, device=device).to(lib.bfloat16) for s in ((16384, 768), (3072, 768)))
    b = lib.randn(3072, device=device).to(lib.bfloat16)
    return lambda: lib.nn.functional.linear(x, w, b)


def product_cases() -> list[Case]:
    return [
        Case("matmul 4096, float32", _product("float32"), 1.0, F32_PRODUCT),
        Case("matmul 4096, float16", _product("float16"), 1.0, F16_PRODUCT),
        Case("linear 16384x768x3072 with bias, bfloat16", _linear, 1.0),
    ]


def _library(make: Callable[[Any], tuple[Any, ...]], f: Callable[..., Any]) -> Make:
    """`f(lib, *tensors)` of tensors that PyTorch has made."""

    def made(lib: Any, device: str) -> Work:
        torch.manual_seed(0)
        given = [x.cuda() for x in make(torch)]
        tensors = given if lib is torch else [rl.from_dlpack(x) for x in given]
        return lambda: f(lib, *tensors)

    return made


def _square(*shape: int) -> Callable[[Any], tuple[Any, ...]]:
    """A positive definite matrix, and right sides."""

    def make(lib: Any) -> tuple[Any, ...]:
        a = lib.randn(*shape)
        return a @ a.mT + shape[-1] * lib.eye(shape[-1]), lib.randn(*shape[:-1], 16)

    return make


def library_cases() -> Iterator[Case]:
    functions: dict[str, Callable[..., Any]] = {
        "cholesky": lambda lib, a, b: lib.linalg.cholesky(a),
        "solve": lambda lib, a, b: lib.linalg.solve(a, b),
        "inv": lambda lib, a, b: lib.linalg.inv(a),
        "solve_triangular": lambda lib, a, b: lib.linalg.solve_triangular(a, b, upper=False),
        "slogdet": lambda lib, a, b: lib.linalg.slogdet(a),
        "qr": lambda lib, a, b: lib.linalg.qr(a),
        "eigh": lambda lib, a, b: lib.linalg.eigh(a),
        "svd": lambda lib, a, b: lib.linalg.svd(a, full_matrices=False),
    }
    for shape in ((64, 64), (512, 512), (256, 32, 32)):
        size = "x".join(map(str, shape))
        for name, f in functions.items():
            yield Case(f"linalg.{name} {size}, float32", _library(_square(*shape), f), 1.1)
    fft: dict[str, tuple[tuple[int, ...], Callable[..., Any]]] = {
        "rfft 256x4096": ((256, 4096), lambda lib, x: lib.fft.rfft(x)),
        "fft2 16x512x512": ((16, 512, 512), lambda lib, x: lib.fft.fft2(x)),
        "fft 256x4096 by columns": ((256, 4096), lambda lib, x: lib.fft.fft(x, dim=0)),
    }
    for name, (sizes, f) in fft.items():
        yield Case(f"fft.{name}, float32", _library(lambda lib, s=sizes: (lib.randn(*s),), f), 1.1)


def cases() -> list[Case]:
    kernels = [*convolution_cases(), *attention_cases(), *row_cases()]
    return [*model_cases(), *kernels, *product_cases(), *library_cases()]


def losses(device: str) -> list[float]:
    step, _ = workloads.gpt_step(rl, device)
    return [step() for _ in range(STEPS)]


def show_losses(devices: list[str]) -> bool:
    """Print the losses of the demo's GPT; whether they are the CPU's but for rounding."""
    curves = {name: losses(name) for name in ("cpu", *devices)}
    right = True
    print(f"\nLosses of the demo's GPT over {STEPS} steps from one seed:")
    for name, curve in curves.items():
        away = max(abs(x - y) for x, y in zip(curve, curves["cpu"], strict=True))
        right = right and away < 1e-3 * curves["cpu"][0]
        values = " ".join(f"{x:.5f}" for x in curve[::5])
        print(f"{name}: {values} ... {curve[-1]:.5f}; at most {away:.1e} from the CPU's")
    return right


def _commit() -> str:
    here = Path(__file__).parent
    found = subprocess.run(
        ["git", "-C", str(here), "rev-parse", "--short", "HEAD"], capture_output=True, check=False
    )
    return found.stdout.decode().strip() or "not in a repository"


def main() -> int:
    with_webgpu = "--webgpu" in sys.argv
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    importlib.import_module("torch.nn.functional")
    print(f"{datetime.date.today()}, commit {_commit()}, PyTorch {torch.__version__}")
    devices = ["cuda"] + (["webgpu"] if with_webgpu else [])
    for name in devices:
        print(f"{name}: {pool_of(name).device.limits.description}")
    print(f"\n{HEAD}", flush=True)
    right = True
    for case in cases():
        if words and not any(word in case.name for word in words):
            continue
        try:
            row = measured(case, with_webgpu)
        except Exception as error:
            print(f"| {case.name} | {type(error).__name__}: {str(error)[:200]} |", flush=True)
            right = False
            continue
        right = right and row.reached
        print(row, flush=True)
    if not words:
        right = show_losses(devices) and right
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
