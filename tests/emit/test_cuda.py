"""The CUDA emitter and launcher without a GPU: golden text, nvcc, the emulation, and a fake
driver.
"""

from __future__ import annotations  # noqa: I001

import contextlib
import ctypes
import itertools
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import rushlight as rl
from rushlight import optim
from rushlight.core.dtypes import (
    DType,
    bool_,
    compute_type,
    float16,
    float32,
    float64,
    int32,
    int64,
    uint32,
)
from rushlight.core.errors import DeviceError, DeviceUnavailable
from rushlight.devices.shared.allocator import Pool
from rushlight.devices.cuda import driver, gemm, grid, open_device
from rushlight.devices.cuda.stub import Arguments, Driver, make_caller, make_launcher
from rushlight.devices.reference import ReferenceDevice, view_memory
from rushlight.emit.cuda.kernels import emit
from rushlight.kernel.shapes import Contract, Convolve, Gather, Map, Scatter
from rushlight.ops.nn import channel_norm
from rushlight.ops.optim.formula import kernel_of
from rushlight.optim import Adam
from rushlight.scalar import build as s
from rushlight.scalar.ir import arg, index, param
from rushlight.tape.record import call
from rushlight.tape.record.op import Plan
from tests.devices import cuda_launches as cases
from tests.emit.cuda_emulation import Emulator

GOLDEN = Path(__file__).parents[1] / "golden"
X, Y = arg(0, float32), arg(1, float32)

KERNELS = {
    "map_flat": Map(
        (float32,), (float32, float32), (float32,), (X + Y * param(0, float32),), 0, ("1", "1", "0")
    ),
    "map_strided": Map(
        (float16,), (float16, bool_), (), (s.where(arg(1, bool_), X, -X),), 2, ("1", "n", "1")
    ),
    "rowwise_axis": cases.softmax(float32, "axis", ("1", "1")),
    "rowwise_columns": cases.fold("sum", float32, "inner"),
    "map_anomaly": Map((float16,), (float32, float32), (), (X / Y,), 0, ("1", "1", "0"), (0, 1)),
    "rowwise_anomaly": replace(cases.fold("max", float32, "axis"), anomaly=()),
    "scan": cases.scan_kernel("sum", bool_, float16),
    "contract": Contract(int32, int32),
    "contract_scaled": Contract(float16, float32, True),
    "convolve_back": Convolve(float32, "back"),
    "convolve_weights": Convolve(float16, "weights", rank=3),
    "gather": Gather(float32, int64),
    "scatter_add": Scatter(float16, int32),
    "scatter_max": Scatter(float16, int32, "max"),
}


@pytest.mark.parametrize("name", KERNELS)
def test_golden(name: str):
    text, golden = emit(KERNELS[name]), GOLDEN / f"{name}.cu"
    if not golden.exists():
        golden.write_text(text)
        pytest.fail(f"{golden} was missing and has been written; read it and add it")
    assert text == golden.read_text()


def kernels_to_compile() -> Iterator[tuple[str, str]]:
    seen = set()
    for case in cases.every_case():
        # Every kind of kernel in every type, and one map per group of instructions.
        if case.kernel not in seen and case.name.startswith(
            ("flat", "strided", "row", "contract plain", "gather", "scatter", "scan")
        ):
            seen.add(case.kernel)
            yield case.name, emit(case.kernel)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_nvcc_takes_every_kind(tmp_path: Path):
    failed = []
    for number, (name, text) in enumerate(kernels_to_compile()):
        source = tmp_path / f"kernel{number}.cu"
        source.write_text(text)
        failed += [name] if _nvcc(source) else []
    assert not failed


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_nvcc_takes_the_golden_texts(tmp_path: Path):
    for name in KERNELS:
        assert not _nvcc(GOLDEN / f"{name}.cu", tmp_path)


def _nvcc(source: Path, folder: Path | None = None) -> str:
    """nvcc's complaints. CuPy's default is C++14."""
    target = (folder or source.parent) / "kernel.cubin"
    command = [
        "nvcc",
        "-arch=sm_90",
        "-cubin",
        "--fmad=false",
        "-std=c++14",
        "-Werror",
        "all-warnings",
        "-o",
        target,
        source,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stderr if done.returncode else ""


# ---- the emulation ----


def launched(build: Callable, case: cases.Case) -> tuple[list[np.ndarray], int]:
    """The buffers after the launch, and the status word. Memory is the host's."""
    buffers = [b.copy() for b in case.buffers]
    status = np.zeros(1, np.int32)
    build(case.kernel)(
        *cases.numbers_of(case, [b.ctypes.data for b in buffers], status.ctypes.data)
    )
    return buffers, int(status[0])


@pytest.fixture(scope="module")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Callable:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    emulator, built = Emulator(tmp_path_factory.mktemp("emulation")), {}

    def build(kernel):
        if kernel not in built:
            built[kernel] = emulator.build(kernel)
        return built[kernel]

    return build


@pytest.mark.slow
def test_emulated_kernels_agree_with_the_reference(emulated: Callable):
    wrong, reference = [], ReferenceDevice()
    for case in cases.emulated_cases():
        want, want_status = launched(reference.build, case)
        got, status = launched(emulated, case)
        found = [cases.differs(case, i, got[i], want[i]) for i in range(len(got))]
        wrong += [f"{case.name}: {text}" for text in found if text]
        wrong += [f"{case.name}: status {status}"] if status != want_status else []
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("vector, shape", [("axis", (2, 40000, 1)), ("inner", (1, 5000, 40))])
def test_splitting_keeps_the_bits(
    emulated: Callable, monkeypatch, tmp_path: Path, vector: str, shape
):
    rng = np.random.default_rng(3)
    case = cases.one_row_case(rng, "sum", cases.fold("sum", float32, vector), shape)
    split, _ = launched(emulated, case)
    monkeypatch.setattr(grid, "SCRATCH_SLOTS", 0)
    whole, _ = launched(Emulator(tmp_path).build, case)
    assert split[0].tobytes() == whole[0].tobytes()


def test_emulated_softmax(emulated: Callable):
    case = cases.one_row_case(
        np.random.default_rng(1), "softmax", KERNELS["rowwise_axis"], (3, 1500, 1), tolerance=40
    )
    want, _ = launched(ReferenceDevice().build, case)
    got, _ = launched(emulated, case)
    assert cases.differs(case, 0, got[0], want[0]) is None


@pytest.mark.parametrize("dtype", [rl.float32, rl.bfloat16], ids=str)
def test_emulated_batch_norm(emulated: Callable, monkeypatch, dtype: rl.dtype):
    """The launches of a batch norm and of its gradient: Note [Channel norm]."""
    rl.manual_seed(0)
    x, g = (rl.randn(5, 3, 4, 7).to(dtype) for _ in range(2))
    w, b = rl.randn(3), rl.randn(3)
    norm, gradient = channel_norm._norm, channel_norm._gradient
    want = norm.make_plan([v._spec for v in (x, w, b)], (0.01, None))
    want_back = gradient.make_plan([v._spec for v in (g, x, w, b, w)], ())
    monkeypatch.setattr(channel_norm, "built", lambda pool, kernel: emulated(kernel))
    got = norm.make_plan(want.ins, want.static)
    got_back = gradient.make_plan(want_back.ins, ())

    def results(forward: Plan, back: Plan) -> list[rl.Tensor]:
        y, dx = rl.empty_like(x), rl.empty_like(x)
        mean, rstd, along, level = (rl.empty(3) for _ in range(4))
        forward.launch(*[v.data_ptr() for v in (y, mean, rstd, x, w, b)])
        back.launch(*[v.data_ptr() for v in (dx, along, level, g, x, mean, rstd, w)])
        return [y, mean, rstd, dx, along, level]

    found = zip(results(got, got_back), results(want, want_back), strict=True)
    for ours, theirs in found:
        rl.testing.assert_close(ours, theirs)


# ---- lists ----


def emulator(folder: Path) -> Emulator:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    return Emulator(folder)


@pytest.mark.parametrize("tables, launches", [((400,), 1), ((8,), 2), ((8, 400), 1)])
def test_a_map_over_a_list(tmp_path: Path, tables: tuple[int, ...], launches: int):
    x, y = (np.arange(n, dtype=np.float32) for n in (9000, 3))
    share = np.array([0.5], np.float32)
    kernel = Map(
        (float32,), (float32, float32), (float32,), (X * Y + param(0, float32),), 0, ("1", "1", "0")
    )
    own = emulator(tmp_path)
    listed = own.build_list(kernel, *tables)
    items = [(a.ctypes.data, a.ctypes.data, share.ctypes.data, a.size) for a in (x, y[:0], y)]
    acts = listed(items, (2.0,))
    assert x[1] == 1 and len(acts) == launches
    for act, *numbers in acts:
        act(*numbers)
    assert np.array_equal(x, np.arange(9000) / 2 + 2) and y.tolist() == [2, 2.5, 3]


@pytest.mark.parametrize("words", [400, 8])
def test_a_fold_over_a_list(tmp_path: Path, words: int):
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(n).astype(np.float32) for n in (0, 1, 70001, 4096)]
    out = np.full(4, 7, np.float32)
    own = emulator(tmp_path)
    listed = own.build_list(cases.fold("sum", float32, "axis"), words)
    items = [(out[i:].ctypes.data, a.ctypes.data, a.size) for i, a in enumerate(arrays)]
    results = []
    for _ in range(2):
        for act, *numbers in listed(items, ()):
            act(*numbers)
        results.append(out.tobytes())
    assert results[0] == results[1]
    assert out == pytest.approx([a.sum(dtype=np.float64) for a in arrays], rel=1e-4)


@pytest.mark.parametrize("found", [0.0, 1.0])
def test_a_step_that_the_device_may_leave_out(tmp_path: Path, found: float):
    """AdamW with its numbers as operands of one element: Note [Steps decided on the device]."""
    start = [np.linspace(1, 2, 4099, dtype=np.float32) * s for s in (1.0, 0.5, 0.25, -3.0)]
    p, m, v, g = arrays = [a.copy() for a in start]
    update = kernel_of(
        Adam.formula, "adamw", "", ("exp_avg", "exp_avg_sq"),
        ("towards", "keep", "rest", "eps", "decay"), ("found", "rate", "correction"), (),
        True, True, False,
    )  # fmt: skip
    numbers = {"towards": 0.1, "keep": 0.99, "rest": 0.01, "eps": 1e-8, "decay": 0.5}
    scalars = [np.array([x], np.float32) for x in (found, 0.125, 0.75)]
    values = [rl.ones(4099)] * 4 + [rl.ones(())] * 3
    kernel = update.prepared(values, (*numbers.values(),)).plan.kernel
    assert kernel is not None and kernel.steps == ("1",) * 7 + ("0",) * 3
    if found:
        g[7] = np.inf
    own = emulator(tmp_path)
    item = (*[a.ctypes.data for a in (p, m, v, p, m, v, g, *scalars)], p.size)
    for act, *given in own.build_list(kernel, 400)([item], (*numbers.values(),)):
        act(*given)
    if found:
        assert all(np.array_equal(a, b) for a, b in zip((p, m, v), start[:3], strict=True))
        return
    mean = start[1] + (g - start[1]) * np.float32(0.1)
    square = start[2] * np.float32(0.99) + g * g * np.float32(0.01)
    want = start[0] * 0.5 - 0.125 * (mean / (np.sqrt(square) / 0.75 + 1e-8))
    for made, expected in zip(arrays, (want, mean, square), strict=False):
        np.testing.assert_allclose(made, expected, rtol=1e-6)


def test_what_a_scaler_computes_on_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The kernels of one element, counts in doubles among them, have the CPU's values."""
    own, built, checked = emulator(tmp_path), {}, set()
    call_map = call.call_map

    def checking(op, ins, params):
        found = call_map(op, ins, params)
        if op.name in ("count_steps", "overflows", "next_scale", "inverse_scale"):
            plan = call.map_plan_for(op, tuple(v._spec for v in ins))
            if plan.kernel not in built:
                built[plan.kernel] = own.build(plan.kernel)
            results = found if isinstance(found, (list, tuple)) else [found]
            given, want = ([v.numpy() for v in values] for values in (ins, results))
            made = [np.full_like(x, 7) for x in want]
            addresses = [a.ctypes.data for a in (*made, *given)]
            built[plan.kernel](*addresses, *plan.tail, *params)
            for x, y in zip(made, want, strict=True):
                np.testing.assert_allclose(x, y, rtol=1e-6)
            checked.add(op.name)
        return found

    monkeypatch.setattr(call, "call_map", checking)
    for name in ("Adam", "RAdam", "NAdam", "ASGD"):
        p = rl.ones(5, requires_grad=True)
        optimizer = getattr(optim, name)([p])
        scaler = rl.amp.GradScaler("cpu", growth_interval=2)
        for factor in (1.0, float("inf"), 1.0, 1.0, 1.0, 1.0, 1.0):
            scaler.scale((p * factor).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    assert len(checked) == 4


# ---- the launcher, on a driver that only records ----

SIGNATURE = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.c_void_p,
    *[ctypes.c_uint] * 7,
    ctypes.c_void_p,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.c_void_p,
)
BIND = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)


class FakeDriver:
    """Returns the codes it is given, and records its calls."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.launches: list[tuple] = []
        self.bound: list[int] = []
        self.values: list[bytes] = []
        self.launch = SIGNATURE(self._launch)
        self.bind = BIND(self._bind)

    def _launch(self, handle, gx, gy, gz, bx, by, bz, shared, stream, params, extra) -> int:
        self.launches.append((handle, (gx, gy, gz), (bx, by, bz), shared, stream))
        self.values = [ctypes.string_at(params[i], 8) for i in range(self.count)]
        return self.codes.pop(0) if self.codes else 0

    def _bind(self, context) -> int:
        self.bound.append(context)
        return 0

    def builder(self, rule, whole: int, sizes: range, params=(), flag: int = 0):
        self.count = whole + len(params)
        addresses = [ctypes.cast(f, ctypes.c_void_p).value for f in (self.launch, self.bind)]
        own = Driver(*addresses, 0xC0, 0x57)
        return make_launcher(
            0x1234, Arguments(whole, sizes, params), ("test", id(self)), rule, own, flag
        )


def flat_rule(chunk: int):
    kernel = KERNELS["map_flat"]
    key, rule = grid.rule_of(kernel, (0, 0))
    assert key == ("map", chunk)
    return rule


def test_launcher_packs_every_type():
    fake = FakeDriver()
    params = (float32, float64, int32, int64, uint32, bool_, float16)
    launch = fake.builder(flat_rule(4), 4, range(3, 4), params)
    assert launch(2**40, 16, 32, 5000, 0.1, 1, -7, -(2**40), 2**32 - 1, True, 2.5) is None
    assert fake.launches == [(0x1234, (5, 1, 1), (256, 1, 1), 0, 0x57)]
    read = [int.from_bytes(v, "little", signed=True) for v in fake.values]
    assert read[:4] == [2**40, 16, 32, 5000]
    assert np.frombuffer(fake.values[4][:4], np.float32)[0] == np.float32(0.1)
    assert np.frombuffer(fake.values[5], np.float64)[0] == 1.0
    assert np.frombuffer(fake.values[6][:4], np.int32)[0] == -7
    assert read[7] == -(2**40)
    assert np.frombuffer(fake.values[8][:4], np.uint32)[0] == 2**32 - 1
    assert fake.values[9][0] == 1
    assert np.frombuffer(fake.values[10][:4], np.float32)[0] == 2.5


@pytest.mark.parametrize(
    "numbers",
    [(None, 1, 2, 3, 0.5), (1, 2, 3, 4.0, 0.5), (1, 2, 3, 4, "x"), (1, 2, 3), (1,) * 6, ()],
)
def test_launcher_refuses_what_is_no_number(numbers: tuple):
    fake = FakeDriver()
    launch = fake.builder(flat_rule(4), 4, range(3, 4), (float32,))
    with pytest.raises(TypeError):
        launch(*numbers)
    assert not fake.launches


def test_launcher_takes_minus_one():
    fake = FakeDriver()
    fake.builder(flat_rule(4), 4, range(3, 4), (float32,))(1, -1, -1, 1, -1.0)
    assert len(fake.launches) == 1


def test_nothing_to_do_launches_nothing():
    fake = FakeDriver()
    fake.builder(flat_rule(4), 4, range(3, 4))(1, 2, 3, 0)
    assert not fake.launches


def test_a_refused_launch_binds_the_context_and_tries_again():
    fake = FakeDriver(201)
    fake.builder(flat_rule(4), 4, range(3, 4))(1, 2, 3, 9)
    assert fake.bound == [0xC0] and len(fake.launches) == 2


def test_a_launch_refused_twice_raises():
    fake = FakeDriver(700, 700)
    with pytest.raises(DeviceError, match="error 700"):
        fake.builder(flat_rule(4), 4, range(3, 4))(1, 2, 3, 9)


def test_indexed_launches_set_the_flag():
    fake, word = FakeDriver(), ctypes.c_int32(0)
    launch = fake.builder(flat_rule(4), 4, range(3, 4), (), ctypes.addressof(word))
    launch(1, 2, 3, 0)
    assert word.value == 0
    launch(1, 2, 3, 1)
    assert word.value == 1


def test_caller_passes_integers():
    kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_longlong)
    seen = []
    function = kind(lambda *values: seen.append(values) or -3)
    call = make_caller(ctypes.cast(function, ctypes.c_void_p).value, "piq")
    assert call(2**40, -5, -(2**50)) == -3
    assert seen == [(2**40, -5, -(2**50))]
    with pytest.raises(TypeError):
        call(1, 2)


# ---- products: the plan, on a cuBLAS made of NumPy ----


def _columns(address: int, rows: int, columns: int, leading: int) -> np.ndarray:
    assert leading >= rows
    return view_memory(address, float64, (rows, columns), (1, leading))


class FakeCublas:
    """Column-major products on host memory; every other product wants a workspace."""

    handle = 0

    def __init__(self) -> None:
        self.calls: list[gemm.Call] = []
        self.products = 0
        self.alignments: list[int] = []
        self.added: list[int | None] = []
        self.bias = 0
        self.pointing = contextlib.nullcontext()

    def point(self, product: gemm.Product, multiply: int, bias: int) -> None:
        assert bias % 16 == 0
        self.bias = bias

    def use_here(self) -> None:
        pass

    def prepare(
        self, call: gemm.Call, dtype: DType, alignment: int, added: int | None = None
    ) -> gemm.Product:
        product = gemm.Product(lambda made: None)
        product.numbers = (len(self.calls), 0, 0, 0, 0, 0)
        product.bias = alignment if added == 0 else None
        self.added.append(added)
        product.room = 64 * (len(self.calls) % 2)
        self.calls.append(call)
        self.alignments.append(alignment)
        return product

    def run(self, handle, number, alpha, a, _a, b, _b, beta, c, _c, d, _d, algorithm, *rest) -> int:
        workspace, room, stream = rest
        assert bool(workspace) == bool(room) and stream == 0
        leading = self.added[number]
        assert (c == d) is not bool(leading)
        assert view_memory(beta, float64, (1,), (1,))[0] == bool(leading)
        self.products += 1
        call = self.calls[number]
        m, n, k, size = call.n, call.m, call.k, float64.itemsize
        ta, tb = call.right.transposed, call.left.transposed
        for i in range(call.batch):
            at_a, at_b, at_d = (
                x + i * s * size for x, s in zip((a, b, d), call.steps, strict=True)
            )
            left = _columns(at_a, *((k, m) if ta else (m, k)), call.right.leading)
            right = _columns(at_b, *((n, k) if tb else (k, n)), call.left.leading)
            out = _columns(at_d, m, n, call.leading)
            out[...] = (left.T if ta else left) @ (right.T if tb else right)
            if leading:
                out += _columns(c, m, n, leading)
            elif leading is not None:
                out += view_memory(self.bias, float64, (m, 1), (1, 1))
        return 0


def _contract_cases() -> list[cases.Case]:
    rng = np.random.default_rng(5)
    found = [*cases.contract_cases(rng), *cases.added_cases(rng)]
    return [c for c in found if c.kernel.dtype is float64]


@pytest.mark.parametrize("case", _contract_cases(), ids=lambda c: c.name)
def test_products_as_cublas_is_asked_for_them(case: cases.Case):
    reference = ReferenceDevice()
    fake = FakeCublas()
    pool = Pool(reference)

    def build(kernel: Contract):
        copy = reference.build(gemm.copy_kernel(kernel.dtype))
        return gemm.Gemm(kernel, fake, reference.build(kernel), copy, lambda: pool)

    want, _ = launched(reference.build, case)
    got, _ = launched(build, case)
    assert cases.differs(case, 0, got[0], want[0]) is None
    own = ("spread o", "spread bias", "one for all", "rows", "matrices")
    assert fake.products or 0 in case.sizes or any(name in case.name for name in own)
    assert pool.live == 0


def test_one_right_factor_makes_one_tall_product():
    plan = gemm.plan_contract((4, 2, 3, 5, 6, 30, 15, 5, 1, 36, 18, 6, 1, 0, 0, 5, 1), 4)
    assert [(c.m, c.batch) for c in plan.calls] == [(24, 1)]


@pytest.mark.parametrize("transposed", [False, True])
def test_operands_at_other_addresses_are_copied_and_the_choice_is_the_same(transposed: bool):
    reference, fake = ReferenceDevice(), FakeCublas()
    pool, kernel = Pool(reference), Contract(float64, float64)
    copy = reference.build(gemm.copy_kernel(float64))
    product = gemm.Gemm(kernel, fake, None, copy, lambda: pool)
    block = np.zeros(200)
    start = block.ctypes.data + -block.ctypes.data % 16
    rng = np.random.default_rng(3)
    left, right = rng.normal(size=(3, 4)), rng.normal(size=(4, 5))
    out_steps = (0, 0, 1, 4) if transposed else (0, 0, 7, 1)
    numbers = (1, 1, 3, 5, 4, *out_steps, 0, 0, 6, 1, 0, 0, 5, 1)
    for places in itertools.product((0, 8), repeat=3):
        block[:] = -7.0
        out, a, b = (start + 512 * i + place for i, place in enumerate(places))
        view_memory(a, float64, (3, 4), (6, 1))[...] = left
        view_memory(b, float64, (4, 5), (5, 1))[...] = right
        found = view_memory(out, float64, (3, 5), out_steps[2:])
        others = (block == -7.0).sum()
        product(out, a, b, *numbers)
        assert np.allclose(found, left @ right)
        assert (block == -7.0).sum() == others - found.size  # nothing beside it is written
    assert fake.alignments == [16] and pool.live == 0


def test_where_cublas_has_no_algorithm_the_own_kernel_runs():
    reference, fake = ReferenceDevice(), FakeCublas()
    fake.prepare = lambda *_: None
    ran = []
    product = gemm.Gemm(
        Contract(float64, float64), fake, lambda *n: ran.append(n), None, lambda: Pool(reference)
    )
    numbers = (1, 1, 2, 2, 2, 0, 0, 2, 1, 0, 0, 2, 1, 0, 0, 2, 1)
    product(64, 128, 192, *numbers)
    product(64, 128, 192, *numbers)
    assert ran == [(64, 128, 192, *numbers)] * 2 and not fake.products


def test_product_refuses_a_wrong_count():
    with pytest.raises(TypeError, match="takes 17 or 21 sizes"):
        gemm.plan_contract((1, 2), 4)


def test_only_its_own_types_go_to_cublas():
    assert gemm.takes(Contract(float16, compute_type(float16)))
    assert not gemm.takes(Contract(int32, int32))
    assert not gemm.takes(Contract(float32, float64))


# ---- the compiler and the disk cache, on a CuPy that only records ----


class FakeCupy:
    """The part of CuPy that `compile_kernel` uses."""

    def __init__(self, code: bytes) -> None:
        self.compiled: list[tuple[str, tuple[str, ...]]] = []
        self.linked: list[bytes] = []
        self.loaded: list[bytes] = []
        outer = self

        class Module:
            def load(self, code: bytes) -> None:
                outer.loaded.append(code)

            def get_function(self, name: str) -> object:
                return type("Function", (), {"ptr": 0x1234})

        class LinkState:
            def add_ptr_data(self, code: bytes, name: str) -> None:
                outer.linked.append(code)

            def complete(self) -> bytes:
                return b"\x7fELF linked"

        class Refused(Exception):
            pass

        def compile_using_nvrtc(source, options=(), arch=None, filename="kern.cu", **more):
            outer.compiled.append((source, options))
            if "refuse" in source:
                raise Refused("expected a ;")
            return code, None

        compiler = type("compiler", (), {"CompileException": Refused})
        compiler.compile_using_nvrtc = staticmethod(compile_using_nvrtc)
        function = type("function", (), {"Module": Module, "LinkState": LinkState})
        self.cuda = type("cuda", (), {"compiler": compiler, "function": function})

    def session(self, target: str = "90", is_hip: bool = False) -> driver.Session:
        return driver.Session(self, None, Driver(0, 0, 0xC0, 0), lambda context: 0, is_hip, target)


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("RUSHLIGHT_CACHE", str(tmp_path / "kernels"))
    return tmp_path / "kernels" / "cuda"


def test_a_binary_is_compiled_once_per_source_and_target(own_cache: Path):
    fake = FakeCupy(b"\x7fELF code")
    for _ in range(2):
        assert driver.compile_kernel(fake.session(), "source", "map_flat")[1] == 0x1234
    assert len(fake.compiled) == 1 and fake.loaded == [b"\x7fELF code"] * 2
    driver.compile_kernel(fake.session("100"), "source", "map_flat")
    driver.compile_kernel(fake.session(), "other source", "map_flat")
    driver.compile_kernel(fake.session(is_hip=True), "source", "map_flat")
    assert len(fake.compiled) == 4 == len(list(own_cache.iterdir()))


def test_subnormals_are_kept_and_nothing_is_fused(own_cache: Path):
    fake = FakeCupy(b"\x7fELF")
    driver.compile_kernel(fake.session(), "source", "map_flat")
    ((_, options),) = fake.compiled
    assert {"--fmad=false", "--ftz=false", "--prec-div=true", "--prec-sqrt=true"} <= set(options)


def test_what_is_no_binary_yet_is_linked(own_cache: Path):
    fake = FakeCupy(b".version 8.0")
    driver.compile_kernel(fake.session(), "source", "map_flat")
    assert fake.linked == [b".version 8.0"] and fake.loaded == [b"\x7fELF linked"]


def test_a_refused_source_names_the_kernel(own_cache: Path):
    with pytest.raises(DeviceError, match="refused kernel map_flat: expected a ;"):
        driver.compile_kernel(FakeCupy(b"").session(), "refuse this", "map_flat")
    assert list(own_cache.iterdir()) == []


# ---- without CuPy ----


def test_missing_cupy_says_what_to_install(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "cupy", None)
    with pytest.raises(DeviceUnavailable, match=r"pip install rushlight\[cuda\]"):
        open_device()


def test_missing_gpu_says_so(monkeypatch):
    class Refused(Exception):
        pass

    class Runtime:
        CUDARuntimeError = Refused

        @staticmethod
        def getDeviceCount() -> int:
            raise Refused("cudaErrorNoDevice")

    fake = type("cupy", (), {"cuda": type("cuda", (), {"runtime": Runtime})})
    monkeypatch.setattr(driver, "_import_cupy", lambda: fake)
    with pytest.raises(DeviceUnavailable, match="no GPU answers"):
        open_device()


def test_random_words_need_no_header():
    assert "#include" not in emit(
        Map((float32,), (), (int64,), (s.cast(index(), float32),), 0, ("1",))
    )
