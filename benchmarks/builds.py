"""The time of building one kernel on the CPU, cold and from the disk cache, as a Markdown table.

python benchmarks/builds.py               some common ops; exit code 1 if a row is over a bar
python benchmarks/builds.py --catalog     every op of the tests' catalog in float32 and float64,
                                          forward and backward: lists the kernels over a bar

Bars: 40 ms cold, 2 ms from disk. Every row is the first call of an op in an empty cache: all
kernels that the call builds, timed one by one. A kernel of several modules (a convolution and the
padding of its image) counts as several, and so does the code that matrix products share. Times are
this thread's processor time, so that other work on the machine counts only through the caches: a
kernel over a bar is built twice more, with nothing remembered, and the least time is shown.
"""

from __future__ import annotations

import contextlib
import gc
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ["RUSHLIGHT_CACHE"] = tempfile.mkdtemp(prefix="rushlight-builds-")
sys.path.insert(0, str(Path(__file__).parents[1]))  # for the catalog

import rushlight as rl
import rushlight.nn.functional as F
from rushlight.devices.cpu import native, small_products, stub
from rushlight.devices.cpu.small_products import DOTS, TILES
from rushlight.devices.shared.registry import pool_of
from rushlight.emit.llvm import formula, frame, named as llvm_named
from rushlight.kernel.shapes import Kernel
from rushlight.scalar import ir, named

COLD, WARM = 0.040, 0.002
CALLS: dict[str, Callable[[], object]] = {
    "add": lambda: rl.rand(8) + rl.rand(8),
    "exp": lambda: rl.exp(rl.rand(8)),
    "tanh": lambda: rl.tanh(rl.rand(8)),
    "gelu": lambda: F.gelu(rl.rand(8)),
    "pow": lambda: rl.rand(8) ** rl.rand(8),
    "sin": lambda: rl.sin(rl.rand(8)),
    "lgamma": lambda: rl.lgamma(rl.rand(8)),
    "randn": lambda: rl.randn(8),
    "dropout": lambda: F.dropout(rl.rand(8), 0.5),
    "strided add": lambda: rl.rand(4, 5).t() + rl.rand(5, 4),
    "sum": lambda: rl.rand(4, 8).sum(1),
    "softmax": lambda: rl.softmax(rl.rand(4, 8), -1),
    "softmax along columns": lambda: rl.softmax(rl.rand(4, 8), 0),
    "layer_norm": lambda: F.layer_norm(rl.rand(4, 8), (8,), rl.ones(8), rl.zeros(8)),
    "cross_entropy": lambda: F.cross_entropy(rl.rand(4, 8), rl.zeros(4, dtype=rl.int64)),
    "cumsum": lambda: rl.rand(4, 8).cumsum(1),
    "sort": lambda: rl.rand(4, 8).sort(1),
    "gather": lambda: rl.rand(4, 8).gather(1, rl.zeros(4, 8, dtype=rl.int64)),
    "scatter_add": lambda: rl.zeros(4, 8).scatter_add(
        1, rl.zeros(4, 8, dtype=rl.int64), rl.rand(4, 8)
    ),
    "matmul": lambda: rl.rand(4, 8) @ rl.rand(8, 4),
    "matmul of bfloat16": lambda: rl.rand(4, 8).bfloat16() @ rl.rand(8, 4).bfloat16(),
    "conv2d": lambda: F.conv2d(rl.rand(1, 4, 8, 8), rl.rand(4, 4, 3, 3), padding=1),
    "attention": lambda: F.scaled_dot_product_attention(*(rl.rand(1, 1, 8, 8) for _ in range(3))),
    "complex product": lambda: rl.complex(rl.rand(4), rl.rand(4)) * 2j,
}

# Rows of the catalog whose results are random have no samples.
RANDOM: dict[str, Callable[[Any], object]] = {
    "rand": lambda dtype: rl.rand(8, dtype=dtype),
    "randn": lambda dtype: rl.randn(8, dtype=dtype),
    "randint_like": lambda dtype: rl.randint_like(rl.ones(8, dtype=dtype), 9),
    "normal": lambda dtype: rl.normal(rl.zeros(8, dtype=dtype), rl.ones(8, dtype=dtype)),
    "bernoulli": lambda dtype: rl.bernoulli(rl.full((8,), 0.3, dtype=dtype)),
    "multinomial": lambda dtype: rl.multinomial(rl.ones(8, dtype=dtype), 4),
    "dropout": lambda dtype: F.dropout(rl.ones(8, dtype=dtype), 0.5),
    "dropout2d": lambda dtype: F.dropout2d(rl.ones(1, 2, 4, 4, dtype=dtype), 0.5),
    "alpha_dropout": lambda dtype: F.alpha_dropout(rl.ones(8, dtype=dtype), 0.5, training=True),
    "poisson": lambda dtype: rl.poisson(rl.full((8,), 300.0, dtype=dtype)),
    "binomial": lambda dtype: rl.binomial(
        rl.full((8,), 300.0, dtype=dtype), rl.full((8,), 0.3, dtype=dtype)
    ),
    "_standard_gamma": lambda dtype: (
        rl._standard_gamma(rl.ones(8, dtype=dtype).requires_grad_()).sum().backward()
    ),
    "_sample_dirichlet": lambda dtype: rl._sample_dirichlet(rl.ones(4, 8, dtype=dtype)),
}


@dataclass
class Build:
    """One module: the op that needed it first, the kind of its kernel, and seconds."""

    op: str
    kind: str
    cold: float
    warm: float


class Watch:
    """Times every build of the CPU device."""

    def __init__(self) -> None:
        self.device: Any = pool_of("cpu").device
        self.build, self.callable_of = self.device.build, stub.callable_of
        self.op, self.builds = "", list[Build]()
        self.modules: list[float] = []
        self.device.build, stub.callable_of = self.timed, self.module

    def module(self, *args: Any, **named: Any) -> Any:
        start = time.thread_time()
        made = self.callable_of(*args, **named)
        self.modules.append(time.thread_time() - start)
        return made

    def once(self, kernel: Kernel) -> tuple[list[float], Any]:
        """The seconds of each module; time that belongs to none counts for the first."""
        self.modules = []
        gc.disable()
        start = time.thread_time()
        launch = self.build(kernel)
        whole = time.thread_time() - start
        gc.enable()
        rest = whole - sum(self.modules)
        return ([self.modules[0] + rest, *self.modules[1:]] if self.modules else [whole]), launch

    def timed(self, kernel: Kernel, *_: Any) -> Any:
        cold, launch = self.once(kernel)
        warm = self.from_disk(kernel)
        for _ in range(2):
            if max(cold) > COLD:
                cold = [min(pair) for pair in zip(cold, self.again(kernel), strict=True)]
            if max(warm) > WARM:
                warm = [min(pair) for pair in zip(warm, self.from_disk(kernel), strict=True)]
        kind = type(kernel).__name__
        self.builds += [Build(self.op, kind, a, b) for a, b in zip(cold, warm, strict=True)]
        return launch

    def from_disk(self, kernel: Kernel) -> list[float]:
        """As in a process that has not seen the formula before."""
        ir._ordered.cache_clear()
        return self.once(kernel)[0]

    def again(self, kernel: Kernel) -> list[float]:
        """As if it were the first time."""
        for remembered in (
            ir._ordered,
            named.template,
            named.skippable_template,
            llvm_named.lowered_template,
            frame.lanes,
        ):
            remembered.cache_clear()
        for function in (formula._formula_function, formula._skippable_function):
            function.cache_clear()
        with not_from_disk():
            return self.once(kernel)[0]


def ways() -> Iterator[Build]:
    """The code that products of a dtype share, built when one of them first needs it."""
    for name, way, dtype in (
        ("tiles", TILES, rl.float32),
        ("dots", DOTS, rl.float32),
        ("dots", DOTS, rl.float64),
    ):
        if small_products.usable(dtype, dtype):
            source = native.Source(f"{name} {dtype.name}", partial(small_products.text, dtype, way))
            build = partial(native.load, source, "kernel")
            with not_from_disk():
                cold = min(seconds(build) for _ in range(3))
            yield Build(f"products by {name}", dtype.name, cold, seconds(build))


def seconds(act: Callable[[], object]) -> float:
    start = time.thread_time()
    act()
    return time.thread_time() - start


@contextlib.contextmanager
def not_from_disk() -> Iterator[None]:
    read, native.read_object = native.read_object, lambda *_: None
    try:
        yield
    finally:
        native.read_object = read


def catalog() -> Iterator[tuple[str, Callable[[], object]]]:
    """Every op: the first sample of its row, forward and backward."""
    from tests.catalog.rows import ROWS
    from tests.catalog.run import call, dtypes_on, samples_of

    def act(row: Any, sample: Any, dtype: Any) -> None:
        leaves: list[Any] | None = [] if row.differentiable else None
        outs = call(row, sample, dtype, "cpu", leaves=leaves)
        smooth = [out for out in outs if isinstance(out, rl.Tensor) and out.requires_grad]
        if leaves and smooth:
            rl.autograd.grad(
                smooth, leaves, [rl.ones_like(out) for out in smooth], allow_unused=True
            )

    for dtype in (rl.float32, rl.float64):
        for row in ROWS:
            samples = samples_of(row, dtype) if dtype in dtypes_on(row, "cpu") else []
            if samples:
                yield (
                    f"{row!r}, {dtype.name}",
                    lambda row=row, first=samples[0], dtype=dtype: act(row, first, dtype),
                )
        for name, made in RANDOM.items():
            yield f"{name}, {dtype.name}", lambda made=made, dtype=dtype: made(dtype)
    yield from CALLS.items()


def main() -> int:
    everything = "--catalog" in sys.argv[1:]
    acts = list(catalog() if everything else CALLS.items())
    # Starts LLVM, the thread pool and the BLAS library, which happens once.
    (rl.zeros(8, dtype=rl.int32) * 2).sum()
    rl.zeros(2, 2, dtype=rl.float64) @ rl.zeros(2, 2, dtype=rl.float64)
    watch = Watch()
    try:
        for watch.op, act in acts:
            act()
        watch.builds += ways()
    finally:
        shutil.rmtree(os.environ["RUSHLIGHT_CACHE"], ignore_errors=True)
    over = [b for b in watch.builds if b.cold > COLD or b.warm > WARM]
    print("| first built by | kernel | cold | from disk |\n|---|---|---|---|")
    for b in sorted(over, key=lambda b: -b.cold) if everything else watch.builds:
        print(f"| {b.op} | {b.kind} | {b.cold * 1e3:.1f} ms | {b.warm * 1e3:.1f} ms |")
    for title, bar, times in (
        ("cold", COLD, [b.cold for b in watch.builds]),
        ("from disk", WARM, [b.warm for b in watch.builds]),
    ):
        middle, most = statistics.median(times) * 1e3, max(times) * 1e3
        late = sum(t > bar for t in times)
        print(
            f"\n{title}: median {middle:.1f} ms, largest {most:.1f} ms; {late} of {len(times)} "
            f"over {bar * 1e3:.0f} ms"
        )
    return int(bool(over))


if __name__ == "__main__":
    sys.exit(main())
