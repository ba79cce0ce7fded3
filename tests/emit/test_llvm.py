"""The LLVM printer: text that LLVM accepts, vectorised, without fast-math flags."""

import re
from dataclasses import replace

import pytest

from rushlight import scalar as s
from rushlight.core.dtypes import ALL, FLOAT, INTEGER, compute_type, float32, float64, int64
from rushlight.devices.cpu import native
from rushlight.emit.llvm import kernels as llvm
from rushlight.emit.llvm.rowwise import plan
from rushlight.kernel.interpret import signature
from rushlight.kernel.shapes import SCATTERS, Contract, Gather, Map, Reduce, Rowwise, Scatter
from rushlight.scalar.philox import normal
from tests.devices.cuda_launches import scan_kernel

X, Y = s.arg(0, float32), s.arg(1, float32)
ROW = s.row(0, float32)
SOFTMAX = Rowwise(
    (float32,), ("element",), (float32,), (), (Reduce("max", X), Reduce("sum", s.exp(X - ROW))),
    (s.exp(X - ROW) / s.row(1, float32),), "axis", ("1", "1"),
)  # fmt: skip


ADD = Map((float32,), (float32, float32), (), (X + Y,), 0, ("1",) * 3)
TRANSPOSED = (float32,), (float32, float32), (), (X + Y,), 2, ("1", "n", "1")


def kernels():
    yield "add", ADD
    yield (
        "scaled",
        Map(
            (float32,),
            (float32, float32),
            (float32, int64),
            (X * Y + s.param(0, float32),),
            0,
            ("1", "1", "0"),
        ),
    )
    for op in (s.exp, s.log, s.sin, s.cos, s.tanh, s.erf):
        yield op.__name__, Map((float32,), (float32,), (), (op(X),), 0, ("1",) * 2)
        yield (
            f"{op.__name__} of float64",
            Map((float64,), (float64,), (), (op(s.arg(0, float64)),), 0, ("1",) * 2),
        )
    yield (
        "normal",
        Map((float32,), (), (int64,), (normal(s.param(0, int64), s.index()),), 0, ("1",)),
    )
    for rank in (1, 2, 5):
        yield (
            f"strided {rank}",
            Map((float32,), (float32, float32), (), (X - Y,), rank, ("1", "n", "0")),
        )
        yield (
            f"scattered {rank}",
            Map((float32,), (float32, float32), (), (X - Y,), rank, ("n", "n", "1")),
        )
    for dtype in ALL:
        body = s.arg(0, compute_type(dtype))
        yield f"copy {dtype.name}", Map((dtype,), (dtype,), (), (body,), 3, ("1", "n"))
        yield f"gather {dtype.name}", Gather(dtype, int64)
    for vector, steps in (("axis", ("1", "1")), ("inner", ("1", "1")), ("any", ("n", "n"))):
        yield f"softmax {vector}", replace(SOFTMAX, vector=vector, steps=steps)
        for dtype in (*FLOAT, *INTEGER):
            body, row = s.arg(0, compute_type(dtype)), s.row(0, compute_type(dtype))
            for kind in ("sum", "prod", "max", "min"):
                yield (
                    f"{kind} {dtype.name} {vector}",
                    Rowwise(
                        (dtype,),
                        ("row",),
                        (dtype,),
                        (),
                        (Reduce(kind, body),),
                        (row,),
                        vector,
                        steps,
                    ),
                )
    for dtype in (*FLOAT, *INTEGER):
        yield f"contract {dtype.name}", Contract(dtype, compute_type(dtype))
        for kind in SCATTERS:
            yield f"scatter {kind} {dtype.name}", Scatter(dtype, int64, kind)
        for kind in ("sum", "prod", "max", "min", "linear"):
            yield f"scan {kind} {dtype.name}", scan_kernel(kind, dtype)
    for anomaly in ((), (0,)):
        yield f"anomaly map {anomaly}", replace(ADD, anomaly=anomaly)
        yield f"anomaly transposed map {anomaly}", Map(*TRANSPOSED, anomaly)
        for vector, steps in (("axis", ("1", "1")), ("inner", ("1", "1")), ("any", ("n", "n"))):
            yield (
                f"anomaly softmax {vector} {anomaly}",
                replace(SOFTMAX, vector=vector, steps=steps, anomaly=anomaly),
            )
        for dtype in FLOAT:
            body = s.arg(0, compute_type(dtype))
            yield (
                f"anomaly copy {dtype.name} {anomaly}",
                Map((dtype,), (dtype,), (), (body,), 3, ("1", "n"), anomaly),
            )
    yield "scan log", scan_kernel("log", float32)


KERNELS = dict(kernels())


@pytest.mark.parametrize("name", KERNELS)
def test_llvm_accepts_the_text(name):
    kernel = KERNELS[name]
    letters, anomaly = llvm.arguments(kernel), name.startswith("anomaly")
    # The entry adds the address of the anomaly flags.
    assert len(letters) == signature(kernel).total - anomaly
    native.optimised(llvm.emit(kernel))


@pytest.mark.parametrize("name", KERNELS)
def test_nothing_is_assumed_about_numbers(name):
    """Rule 4 and rule 5 of Note [Scalar instructions]."""
    text = llvm.emit(KERNELS[name])
    assert not re.search(r"\b(fast|nnan|ninf|nsz|arcp|contract|afn|reassoc|nsw|nuw)\b", text)


@pytest.mark.parametrize("name", KERNELS)
def test_the_text_is_the_same_each_time(name):
    """It is the cache's key."""
    assert llvm.emit(KERNELS[name]) == llvm.emit(KERNELS[name])


@pytest.mark.parametrize(
    "name",
    [
        "add",
        "exp",
        "softmax axis",
        "softmax inner",
        "sum float32 axis",
        "scan sum float32",
        "copy bfloat16",
    ],
)
def test_wide_registers_are_used_where_there_are_any(name):
    if "+avx512f" not in native.machine().identity:
        pytest.skip("limit: no AVX-512 on this processor")
    kernel = KERNELS[name]
    assert "%zmm" in native.assembly(llvm.emit(kernel))


def test_anomaly_checks_of_a_sum_costs_two_instructions_a_vector():
    """The running maximum of the stored words; the loop has no test."""
    text = llvm.emit(KERNELS["anomaly map ()"])
    # declared; four vectors at once, and the masked rest.
    assert text.count("@llvm.umax.v16i32(<16 x i32>") == 1 + 4 + 1
    assert "fcmp" not in text


def test_pairs_are_loaded_and_stored_side_by_side():
    """Also those of a row's rest: nothing is gathered or scattered."""
    for steps in (("e", "o", "1", "1"), ("1", "1", "e", "o")):
        text = llvm.emit(Map((float32,) * 2, (float32,) * 2, (), (X, Y), 2, steps))
        assert "gather" not in text and "scatter" not in text


def test_no_function_is_called_for_elementary_functions():
    for name in ("exp", "log", "sin", "tanh", "erf", "normal"):
        outside = re.findall(r"declare .*@([\w.]+)\(", llvm.emit(KERNELS[name]))
        assert all(found.startswith("llvm.") for found in outside)
        assert not any(
            found.startswith(("llvm.exp", "llvm.log", "llvm.sin", "llvm.cos")) for found in outside
        )


def test_softmax_computes_each_exponential_once():
    planned = plan(llvm.lowered(SOFTMAX))
    assert planned.kept == 0
    assert repr(planned.kernel.stores[0]) == "div(arg1, row1)"


def test_a_pass_is_not_kept_when_the_store_needs_its_input_again():
    store = s.exp(X - ROW) * X
    assert plan(llvm.lowered(replace(SOFTMAX, stores=(store,)))).kept is None
    halves = replace(SOFTMAX, outputs=(FLOAT[0],))
    assert plan(llvm.lowered(halves)).kept is None
