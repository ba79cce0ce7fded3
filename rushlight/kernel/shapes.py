"""The kernels: what an emitter prints and a device builds.

# Note [Kernel arguments]
A built kernel is called with numbers only, in this order, and returns None:
1. addresses of the outputs, then of the inputs (byte addresses, view offsets added in);
2. sizes;
3. strides, in elements, operand by operand, outputs first;
4. params (floats for float types, else ints).
Each kernel's docstring lists its sizes and strides. An output may share its address with an input
of the same strides (in place); other overlap does not happen. A size may be 0: then nothing is
written, except that a reduction over nothing gives its identity. Operands are aligned to their item
size only.

# Note [Steps]
`steps` says, per operand (outputs first), how it moves along the dimension that a vector unit would
walk: "1" next element, "0" stays (one element is used again), "n" any stride, given at launch. In a
strided map "r" goes to the previous element (its stride is -1), and "e" followed by "o" are two
operands that share memory, its even and its odd elements: both have stride 2 and the second starts
one element after the first. Strides are passed for every operand whatever its step: the argument
list depends on the shape of the loop alone.

# Note [Anomaly kernels]
A Map or a Rowwise may check for anomalies: its `anomaly` is then a tuple of input numbers (mostly
empty) instead of None. The kernel tests the floats it stores, and the floats it loads from those
inputs, and ors what it finds into one int32: 1 for a NaN stored, 2 for an infinity stored, LOADED
times these for loads. A NaN may hide an infinity. The stored bits are those of the kernel without
checks. On a device whose `limits.asynchronous` is false, `Device.build` takes a function with the
kernel; the launch calls it with the int32, if that is not 0, and the launch's numbers before it
returns, and raises what the function raises. On other devices a launch takes one more number, after
the operands' addresses: the address of the int32.
"""

from __future__ import annotations

from dataclasses import dataclass

from rushlight.core.dtypes import DType
from rushlight.scalar.ir import Expr

LOADED = 4  # see Note [Anomaly kernels]


@dataclass(frozen=True, slots=True)
class Map:
    """out[p] = body(in[p], ...) for every position p.

    Flat (rank 0): sizes are (n,), no strides are passed, every step is "1" or "0" ("0" for inputs
    only). Strided (rank r > 0): sizes are r dimensions, outermost first; each operand has r
    strides; `steps` describes the last dimension. `index` is the linear position in row-major order
    of the sizes. `body` has one expression per output, typed as the output's compute type.
    """

    outputs: tuple[DType, ...]
    inputs: tuple[DType, ...]
    params: tuple[DType, ...]
    body: tuple[Expr, ...]
    rank: int
    steps: tuple[str, ...]
    anomaly: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Reduce:
    """One pass along the axis: fold `body` with `kind`, one of sum, prod, max, min.

    The result has the body's type and is `row k` in later passes (k counts passes). `body` may use
    earlier rows. Identities: sum 0, prod 1, max lowest (-inf for floats), min highest (+inf).
    """

    kind: str
    body: Expr


@dataclass(frozen=True, slots=True)
class Rowwise:
    """Several passes over one axis of a block (outer, axis, inner), for each (outer, inner).

    Sizes are (outer, axis, inner); each operand has three strides. First the `passes` run in order,
    then for each output its `store`: `kinds[i]` is "element" (evaluated for each position of the
    axis and stored there) or "row" (evaluated once, may not use `arg`s that move along the axis;
    stored with axis stride ignored). A "row" store may use `arg`s whose axis stride is 0. `vector`
    says which dimension has the unit steps: "axis" (inner is 1), "inner", or "any" (every step is
    "n"). Order of a reduction is fixed by the axis length alone, whatever the number of threads.
    """

    outputs: tuple[DType, ...]
    kinds: tuple[str, ...]
    inputs: tuple[DType, ...]
    params: tuple[DType, ...]
    passes: tuple[Reduce, ...]
    stores: tuple[Expr, ...]
    vector: str
    steps: tuple[str, ...]
    anomaly: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Contract:
    """out[x, y, m, n] = sum over k of a[x, y, m, k] * b[x, y, k, n], in `compute`, in blocks of k.

    All three operands have the type `dtype`. The sum is ascending in k. Sizes are (x, y, m, n, k);
    strides are out (x, y, m, n), a (x, y, m, k), b (x, y, k, n). Integer types are allowed. k = 0
    gives zeros.

    One that is `scaled` is of floats and has two params, alpha and beta, of the compute type: it
    stores alpha * sum + beta * out, rounded once. One with `added`, of floats and not scaled, has a
    fourth operand with the sizes of out, which is added to the sum before it is rounded.
    """

    dtype: DType
    compute: DType
    scaled: bool = False
    added: bool = False

    @property
    def params(self) -> tuple[DType, ...]:
        return (self.compute, self.compute) if self.scaled else ()


@dataclass(frozen=True, slots=True)
class Scan:
    """A running fold: out[o, a, i] = state = body(state, in[o, a, i], ...), a ascending from 0.

    Sizes are (outer, axis, inner); each operand has three strides. Strides may be negative; the
    address is then that of the last element, and the fold runs from the end. In `body`, `row 0` is
    the state before this position (the constant `start` before the first); `arg`s are the inputs'
    elements, `index` is a. The state has the body's type, which is the output's compute type:
    halves are folded in float32 and rounded when stored, the state is not. The order is strictly
    ascending on every device.
    """

    output: DType
    inputs: tuple[DType, ...]
    start: Expr
    body: Expr


@dataclass(frozen=True, slots=True)
class Gather:
    """out[o, k, i] = source[o, index[o, k, i], i].

    Addresses: out, source, index, status. Sizes are (outer, count, inner, limit), `limit` being the
    length of the source's indexed axis. Strides are out, source, index, three each (outer, axis,
    inner). An index outside [0, limit), a negative one included, stores 0 and sets the int32 at
    `status` to 1. `index_dtype` is int32 or int64.
    """

    dtype: DType
    index_dtype: DType


SCATTERS = ("add", "set", "prod", "max", "min")


@dataclass(frozen=True, slots=True)
class Scatter:
    """out[o, index[o, k, i], i] += source[o, k, i], k ascending: deterministic, without atomics.

    `kind` is the update: "add", "prod", "max" and "min" fold the source into the old element (max
    and min as the instructions of these names), "set" stores the source, so the last k wins.
    Arguments as for Gather: out, source, index, status; sizes (outer, count, inner, limit), where
    `limit` is the length of out's indexed axis; strides out, source, index. An index outside [0,
    limit) writes nothing and sets `status`. Halves are folded in float32 and rounded once per step.
    """

    dtype: DType
    index_dtype: DType
    kind: str = "add"


@dataclass(frozen=True, slots=True)
class Sort:
    """values[o, k, i] = source[o, p, i], positions[o, k, i] = p: the axis sorted, its first `keep`.

    Addresses: values, positions (int64), source. Sizes are (outer, axis, inner, keep), keep <= axis
    < 2**31; strides are values, positions, source, three each (outer, axis, inner). Ascending, or
    `descending`; equal elements keep the order of their positions either way. NaN is the largest
    element and equal to itself; -0.0 equals 0.0. No operand overlaps another.
    """

    dtype: DType
    descending: bool


@dataclass(frozen=True, slots=True)
class Library:
    """A function of a host library (LAPACK, a Fourier transform), by name, over whole arrays.

    Every operand is contiguous; `ranks` has the number of dimensions of each, outputs first, and
    sizes are all their dimensions one after another. No strides. `options` are the function's own
    switches, fixed at build time. The function may raise: it runs on the host, so its result is
    known when a launch returns.
    """

    library: str
    function: str
    outputs: tuple[DType, ...]
    inputs: tuple[DType, ...]
    ranks: tuple[int, ...]
    options: tuple[object, ...] = ()


@dataclass(frozen=True, slots=True)
class Search:
    """out[r, k] (int64) = the number of elements of the sorted line[r, :] below wanted[r, k].

    With `right`, elements equal to the wanted one are counted too. Addresses: out, line, wanted.
    Sizes are (rows, count, length); strides are out, line, wanted, two each (row, along).
    Bisection: of n candidates the first step = max(n // 2, 1) are counted, unless the last of them
    is at or above (`right`: above) the wanted one; n - step candidates remain either way.
    Comparisons with NaN are false, so a wanted NaN counts all.
    """

    dtype: DType
    right: bool


@dataclass(frozen=True, slots=True)
class Convolve:
    """A convolution in `rank` dimensions, or a gradient of it. Limits say which devices have which.

    With z the window of x at a pixel i of y: z[n, g, c, p, i] = x[n, g, c, i * s + p * d - t], 0
    outside of x; i, p, s, d and t have `rank` numbers each. `of` is
    - "image": out[n, g, m, i] = sum over c, p of w[g, m, c, p] * z; addresses out, x, w;
    - "back", the transpose in x: out[n, g, c, u] = sum over m and over i, p with u = i * s + p * d
      - t of y[n, g, m, i] * w[g, m, c, p]; addresses out, y, w;
    - "weights", the transpose in w: out[g, m, c, p] = sum over n, i of y[n, g, m, i] * z; addresses
      out, y, x. A device may split the sum over n, i into `parts` runs;
    - "runs": out[s, g, c, p, m] = the same sum over i and the s-th of `parts` runs of n;
    - "depthwise", "depthwise weights": image and runs for groups of one channel in and one out.
      parts is 1;
    - "turned": out[g, c, m, p] = w[g, m, c, t + s * (k - 1 - p)], of k taps each, which stand where
      the pixels do; addresses out, w. n, image, d and parts are 1.

    Operands are contiguous. Sizes are (n, g, m, c, pixels, window, image, s, d, t, parts), where
    the six in the middle have `rank` numbers each and image is the size of x; no strides. In
    "image" t may be negative. Sums run in an order fixed by the sizes, in the compute type. `step`
    is the last of s where it is 1 or 2, or 0 for any. With `tf32` a device may round float32
    factors to TF32.
    """

    dtype: DType
    of: str
    step: int = 0
    rank: int = 2
    tf32: bool = False


@dataclass(frozen=True, slots=True)
class Attend:
    """Attention over queries q[t], keys k[s] and values v[s] of a batch, or a part of its gradient.

    With w[t, s] = q[t] . k[s] * scale, plus the mask (a bool mask that is false, and with `causal`
    a key s > t, give -inf), p = exp(w - level), and e = p after dropout:
    - "output": level[t] = log of the sum over s of exp(w), out[t] = sum over s of e * v[s]; a row
      of -inf gives zeros and level 0. Operands out, level, q, k, v;
    - "along": along[t] = g[t] . out[t]. Operands along, g, out;
    - "query", "keys", "mask", with d[t, s] = p * (dropout of g[t] . v[s] - along[t]):
      dq[t] = scale * sum of d * k[s]; dk[s] = scale * sum of d * q[t], dv[s] = sum of e * g[t];
      dmask = d, summed over batch dimensions in which its stride is 0. Operands: the results, g,
      level, along, q, k, v;
    - "operands": dq, dk and dv at once. Operands: these, g, out, level, q, k, v.
    The mask is the last operand where there is one, of type `mask`. level and along have the
    compute type, everything else `dtype`. Dropout multiplies by its factor, or by 0 where the
    uniform number at the score's position in all scores of the batch is below its probability.

    Sizes are (x, y, z, rows, keys), the first three being the batch; strides five per operand
    (batch, rows or keys, features; keys for a mask). Params are the scale, which is positive, and
    with dropout seed, position, probability and factor; none for "along". `width` is that of q and
    k, `depth` that of v. Sums run in an order fixed by the sizes; no memory holds all scores.
    Halves are multiplied as halves (p is rounded for that) and summed in float32.
    """

    dtype: DType
    of: str
    width: int
    depth: int
    mask: DType | None = None
    causal: bool = False
    dropout: bool = False


PANEL = 16  # columns of a panel of weights


@dataclass(frozen=True, slots=True)
class Cell:
    """out[r, i] = body(p0[r, i], p1[r, i], ..., in[r, i], ...): a step of a recurrent layer.

    The first `products` arguments of `body` are products: pq[r, i] = sum over s of state[r, s] *
    w[q, s, i], s ascending, the others are inputs. w lies in panels of PANEL columns, by (panel, q,
    s, column); columns past the last are any numbers. `body` has one expression per output.
    Addresses: the outputs, state, w, the inputs. Sizes are (rows, width, terms), width being that
    of the outputs, terms that of the state; a stride is that of an operand's rows, w has none. All
    operands have the type `dtype`. Limits say which devices have it.
    """

    dtype: DType
    products: int
    inputs: int
    body: tuple[Expr, ...]


Kernel = (
    Attend
    | Cell
    | Map
    | Rowwise
    | Scan
    | Contract
    | Gather
    | Scatter
    | Sort
    | Search
    | Library
    | Convolve
)
