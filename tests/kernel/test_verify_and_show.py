"""The kernel room: what the verifier refuses, what the printer prints, how arguments are
counted.
"""

import pytest

from rushlight import scalar as s
from rushlight.core.dtypes import (
    bfloat16,
    bool_,
    complex64,
    float16,
    float32,
    float64,
    int32,
    int64,
    uint64,
)
from rushlight.kernel.interpret import signature, sort_arguments
from rushlight.kernel.shapes import (
    Attend,
    Cell,
    Contract,
    Convolve,
    Gather,
    Map,
    Reduce,
    Rowwise,
    Scan,
    Scatter,
    Search,
    Sort,
)
from rushlight.kernel.show import show
from rushlight.kernel.verify import verify
from rushlight.scalar.ir import make

X, Y = s.arg(0, float32), s.arg(1, float32)
N = s.arg(0, int32)
ADD = Map((float32,), (float32, float32), (), (X + Y,), 0, ("1", "1", "1"))
TOP, TOTAL = s.row(0, float32), s.row(1, float32)
SOFTMAX = Rowwise(
    outputs=(float32,),
    kinds=("element",),
    inputs=(float32,),
    params=(),
    passes=(Reduce("max", X), Reduce("sum", s.exp(X - TOP))),
    stores=(s.exp(X - TOP) / TOTAL,),
    vector="axis",
    steps=("1", "1"),
)
MEAN = Rowwise(
    outputs=(float32,),
    kinds=("row",),
    inputs=(float32,),
    params=(),
    passes=(Reduce("sum", X),),
    stores=(TOP / s.cast(s.extent(), float32),),
    vector="axis",
    steps=("0", "1"),
)


def body(expr, out=float32, inputs=(float32, float32), params=()):
    """A flat map of one body."""
    return Map((out,), inputs, params, (expr,), 0, ("1",) * (1 + len(inputs)))


def rows(**changes):
    fields = {f: getattr(SOFTMAX, f) for f in SOFTMAX.__slots__}
    return Rowwise(**(fields | changes))


GOOD = [
    ADD,
    SOFTMAX,
    MEAN,
    body(X + s.param(0, float32), out=bfloat16, inputs=(float16,), params=(float32,)),
    body(s.index(), out=int64, inputs=()),
    body(X > 0, out=bool_),
    Map((float32,), (float32,), (), (X,), 3, ("n", "0")),
    Contract(bfloat16, float32),
    Contract(int64, int64),
    Contract(float16, float32, True),
    Convolve(bfloat16, "back", rank=3),
    Gather(bool_, int32),
    Scatter(float16, int64),
    Scatter(bool_, int32, "set"),
    Sort(bfloat16, True),
    Search(float16, False),
    Cell(float32, 1, 1, (X + Y,)),
    Scan(float16, (float32, bool_), s.const(0.0, float32), s.where(s.arg(1, bool_), TOP + X, TOP)),
]


@pytest.mark.parametrize("kernel", GOOD, ids=lambda k: type(k).__name__)
def test_good_kernels_pass(kernel):
    verify(kernel)


BAD = {
    "no output": (Map((), (), (), (), 0, ()), "no output"),
    "missing body": (
        Map((float32, float32), (float32,), (), (X,), 0, ("1",) * 3),
        "2 outputs but 1 bodies",
    ),
    "body type": (body(X, out=int64), "output 0 is int64 and takes int64, its body is float32"),
    "half body": (body(s.cast(X, float64), out=float16), "takes float32, its body is float64"),
    "complex memory": (body(X, out=complex64), "memory cannot hold complex64"),
    "wide mulhi": (
        body(s.cast(s.mulhi(s.const(1, uint64), s.const(2, uint64)), float32)),
        "mulhi takes uint32",
    ),
    "few steps": (Map((float32,), (float32,), (), (X,), 0, ("1",)), "2 operands but 1 steps"),
    "unknown step": (Map((float32,), (float32,), (), (X,), 0, ("1", "2")), "step 1 is '2'"),
    "flat n": (Map((float32,), (float32,), (), (X,), 0, ("1", "n")), "passes no strides"),
    "output stays": (Map((float32,), (float32,), (), (X,), 1, ("0", "1")), "would be overwritten"),
    "negative rank": (Map((float32,), (float32,), (), (X,), -1, ("1", "1")), "negative"),
    "unknown arg": (body(s.arg(2, float32)), "there is no arg2: 2 known"),
    "arg type": (body(s.cast(s.arg(0, float64), float32)), "arg0 is float32, not float64"),
    "unknown param": (body(X + s.param(0, float32)), "there is no param0"),
    "row in a map": (body(X + s.row(0, float32)), "there is no row0"),
    "extent in a map": (body(s.cast(s.extent(), float32)), "extent has no meaning here"),
    "instruction": (body(make("sinh", (X,), float32)), "no instruction 'sinh'"),
    "arity": (body(make("add", (X,), float32)), "add takes 2 operands, got 1"),
    "operand types": (
        body(make("add", (X, s.cast(X, float64)), float32)),
        "operands of add differ in type",
    ),
    "result type": (
        body(make("add", (X, Y), float64), out=float64),
        "add of float32, float32 is float32",
    ),
    "comparison type": (body(make("lt", (X, Y), float32)), "is bool, not float32"),
    "arithmetic on bool": (
        body(make("add", (X > 0, Y > 0), bool_), out=bool_),
        "add does not take bool",
    ),
    "bits of floats": (body(make("and", (X, Y), float32)), "and does not take float32"),
    "exp of integers": (body(s.exp(N), out=int32, inputs=(int32,)), "exp does not take int32"),
    "mulhi of int32": (
        body(s.mulhi(N, N), out=int32, inputs=(int32,)),
        "mulhi does not take int32",
    ),
    "select by number": (body(make("select", (X, X, Y), float32)), "select chooses by bool"),
    "bitcast width": (body(s.bits_to(X, int64), out=int64), "bitcast from float32 to int64"),
    "constant range": (body(N + 2**40, out=int32, inputs=(int32,)), "is not a int32"),
    "later row": (
        rows(passes=(Reduce("sum", X - TOP), Reduce("sum", X))),
        "pass 0: there is no row0",
    ),
    "reduction": (rows(passes=(Reduce("mean", X), SOFTMAX.passes[1])), "pass 0 is 'mean'"),
    "reduce bool": (rows(passes=(Reduce("max", X > 0),)), "reduces bool"),
    "kind": (rows(kinds=("each",)), "kind 0 is 'each'"),
    "kinds": (rows(kinds=()), "1 outputs, 0 kinds"),
    "vector": (rows(vector="outer"), "vector is 'outer'"),
    "any with steps": (rows(vector="any"), "every step is n"),
    "row store moves": (rows(kinds=("row",)), "row store 0 uses arg0, which moves"),
    "row store index": (
        rows(kinds=("row",), stores=(s.cast(s.index(), float32),)),
        "index has no meaning",
    ),
    "element stays": (rows(steps=("0", "1")), "would be overwritten"),
    "convolve integers": (Convolve(int32, "image"), "cannot be int32"),
    "convolve runs of halves": (Convolve(bfloat16, "runs"), "cannot be bfloat16"),
    "convolve runs of lines": (Convolve(float32, "runs", rank=1), "runs in 1 dimensions"),
    "convolve nothing": (Convolve(float32, "sound"), "not one of image, back"),
    "contract of scaled integers": (Contract(int32, int32, True), "only floats are scaled"),
    "contract bool": (Contract(bool_, int32), "cannot be bool"),
    "contract narrow": (Contract(float64, float32), "float64 cannot be summed in float32"),
    "float index": (Gather(float32, float32), "indices are int32 or int64"),
    "search memory": (Search(bool_, False), "search: elements cannot be bool"),
    "cell memory": (Cell(int32, 1, 0, (N,)), "cell: elements cannot be int32"),
    "cell product": (Cell(float32, 0, 2, (X + Y,)), "cell: there is no product"),
    "cell output": (Cell(float32, 1, 1, ()), "cell: there is no output"),
    "cell input": (Cell(float32, 1, 0, (X + Y,)), "cell: body 0: there is no arg1"),
    "sort memory": (Sort(complex64, False), "sort: elements cannot be complex64"),
    "scan memory": (
        Scan(complex64, (), s.const(0, complex64), s.row(0, complex64)),
        "scan: memory cannot hold complex64",
    ),
    "scan state": (
        Scan(float64, (float32,), s.const(0.0, float32), TOP + X),
        "takes float64, its body is float32",
    ),
    "scan start": (Scan(float32, (float32,), X, TOP + X), "start is arg0, not a constant"),
    "scan start type": (
        Scan(float32, (float32,), s.const(0, int64), TOP + X),
        "start is int64, the state float32",
    ),
    "scan start range": (
        Scan(int32, (int32,), s.const(2**40, int32), s.row(0, int32) + N),
        "is not a int32",
    ),
    "scan arg": (
        Scan(float32, (float32,), s.const(0.0, float32), TOP + Y),
        "there is no arg1: 1 known",
    ),
    "scan row": (
        Scan(float32, (float32,), s.const(0.0, float32), s.row(1, float32) + X),
        "there is no row1",
    ),
    "scan extent": (
        Scan(int64, (), s.const(0, int64), s.row(0, int64) + s.extent()),
        "extent has no meaning here",
    ),
    "scatter bool": (Scatter(bool_, int64), "scatter add: elements cannot be bool"),
    "scatter kind": (Scatter(float32, int64, "mean"), "kind 'mean', not one of add, set"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_kernels_are_refused(name):
    kernel, reason = BAD[name]
    with pytest.raises(ValueError) as caught:
        verify(kernel)
    assert reason in str(caught.value)


def test_show_names_shared_subexpressions():
    shared = s.exp(X) + 1
    kernel = Map(
        (float32, float32),
        (float32, float16),
        (int64,),
        (shared * Y, -shared),
        2,
        ("1", "1", "0", "n"),
    )
    assert show(kernel) == (
        "map rank 2 (out0: float32 step 1, out1: float32 step 1; arg0: float32 step 0, arg1: "
        "float16 step n; "
        "param0: int64)\n"
        "  for p0, p1:\n"
        "    t0: float32 = exp(arg0) + 1.0\n"
        "    out0[p0, p1] = t0 * arg1\n"
        "    out1[p0, p1] = -t0\n"
    )


def test_show_rowwise():
    assert show(SOFTMAX) == (
        "rowwise by axis (out0: float32 step 1; arg0: float32 step 1)\n"
        "  for outer, inner:\n"
        "    row0 = max over axis:\n"
        "      arg0\n"
        "    row1 = sum over axis:\n"
        "      exp(arg0 - row0)\n"
        "    for axis:\n"
        "      out0 = exp(arg0 - row0) / row1\n"
    )


def test_show_scan():
    shared = s.exp(X)
    kernel = Scan(float16, (float32, bool_), s.const(0.0, float32), TOP * shared + shared)
    assert show(kernel) == (
        "scan (out0: float16; arg0: float32; arg1: bool)\n"
        "  for outer, inner:\n"
        "    row0 = 0.0\n"
        "    for axis:\n"
        "      t0: float32 = exp(arg0)\n"
        "      out0 = row0 = (row0 * t0) + t0\n"
    )


def test_show_cell():
    assert show(Cell(float32, 1, 1, (X + Y, X * Y))) == (
        "cell float32 of 1 products\n  for r, i:\n"
        "    arg0 = sum over s: state[r, s] * w[0, s, i]\n"
        "    out0[r, i] = arg0 + arg1\n    out1[r, i] = arg0 * arg1\n"
    )


def test_show_keeps_parentheses_that_matter():
    assert "= (arg0 + arg1) * (arg0 - arg1)\n" in show(body((X + Y) * (X - Y)))
    assert "= arg0 - (arg1 - arg0)\n" in show(body(X - (Y - X)))


@pytest.mark.parametrize("kernel", GOOD, ids=lambda k: type(k).__name__)
def test_show_ends_in_a_newline_and_repeats_itself(kernel):
    assert show(kernel).endswith("\n")
    assert show(kernel) == show(kernel)


def test_show_breaks_long_formulas():
    long = X
    for _ in range(200):
        long = s.sin(long) * Y
    assert max(map(len, show(body(long)).splitlines())) < 150


def test_signatures():
    assert signature(ADD).total == 3 + 1
    assert (
        signature(Map((float32,), (float32,), (float32,), (X,), 3, ("1", "1"))).total
        == 2 + 3 + 6 + 1
    )
    assert signature(SOFTMAX).total == 2 + 3 + 6
    assert signature(Contract(float32, float32)).total == 3 + 5 + 12
    assert signature(Convolve(float32, "back", rank=3)).total == 3 + 5 + 18
    assert signature(Scan(float32, (float32,), s.const(0.0, float32), TOP + X)).total == 2 + 3 + 6
    assert signature(Gather(float32, int64)).total == 4 + 4 + 9
    assert signature(Search(float32, True)).total == 3 + 3 + 6
    assert signature(Cell(float32, 1, 1, (X + Y,))).total == 4 + 3 + 3
    assert signature(Sort(float32, False)).total == 3 + 4 + 9


def test_arguments_are_sorted():
    kernel = Map((float32,), (float32,), (float32,), (X + s.param(0, float32),), 2, ("1", "1"))
    call = sort_arguments(kernel, (64, 128, 3, 4, 4, 1, 0, 1, 0.5))
    assert call.addresses == (64, 128)
    assert call.sizes == (3, 4)
    assert call.strides == ((4, 1), (0, 1))
    assert call.params == (0.5,)


@pytest.mark.parametrize(
    "numbers", [(64, 64, 64), (64, None, 64, 1), (64, 64, 64, 1.5), (64, 64, 64, 1, 1)]
)
def test_bad_arguments_are_type_errors(numbers):
    with pytest.raises(TypeError):
        sort_arguments(ADD, numbers)


ATTEND = Attend(float16, "keys", 64, 32, mask=bool_, dropout=True)


def test_attend():
    verify(ATTEND)
    assert show(ATTEND) == (
        "attend float16 64 by 32, dropout, bool mask\n"
        "  dk, dv = keys of g, level, along, q, k, v, mask\n"
    )
    assert signature(ATTEND).strides == (5,) * 9 and signature(ATTEND).params == 5
    assert signature(Attend(float32, "along", 8, 8)).total == 3 + 5 + 15


@pytest.mark.parametrize(
    "kernel, reason",
    [
        (Attend(int32, "output", 8, 8), "attend: elements cannot be int32"),
        (Attend(float32, "values", 8, 8), "attend: of 'values'"),
        (Attend(float32, "output", 8, 8, float64), "attend: a mask of float32"),
        (Attend(float32, "mask", 8, 8, bool_), "only a mask that is added"),
        (Attend(float32, "output", -1, 8), "attend: a width is negative"),
    ],
)
def test_ill_formed_attend(kernel, reason):
    with pytest.raises(ValueError, match=reason):
        verify(kernel)
