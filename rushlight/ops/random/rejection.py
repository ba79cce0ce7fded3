"""Samplers that reject: gamma, Dirichlet, Poisson and binomial numbers.

# Note [Bounded rejection]
1. Element i draws from the stream of its own position (Note [Random positions], rule 3), so its
   result depends on nothing but seed, position and its parameters: not on the device, the other
   elements or the number of launches.
2. A launch makes TRIES proposals for every element without an accepted one; an open element is
   marked by a number that no result can be. After LAUNCHES launches less than one element in 10^12
   is open and gets a middle value.
3. Where the host need not wait it checks whether any is open and stops early; that changes no bit.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

from rushlight.core.dtypes import FLOAT, DType, compute_type, float32, float64, int64, promote
from rushlight.core.errors import DTypeError, NotDifferentiable, RushlightError, UnsupportedDType
from rushlight.core.shapes import Spec, broadcast_shapes
from rushlight.ops.batching.random import draw_operands, draw_result
from rushlight.ops.create.creation import full_spec
from rushlight.ops.family.declare import elementwise
from rushlight.ops.family.kernel_op import KernelOp
from rushlight.ops.family.map import Formula, MapOp, map_plan
from rushlight.ops.family.no_derivative import with_zero_derivative, without_derivative
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.random.random import Generator, default_generator, drawing, holds
from rushlight.ops.reduce.softmax import softmax
from rushlight.ops.registry import composite
from rushlight.scalar import build as s, gamma
from rushlight.scalar.elementary_exponential import log1p
from rushlight.scalar.ir import Expr, arg, const, index, param
from rushlight.scalar.named import named
from rushlight.scalar.philox import bell, element_words, fraction
from rushlight.tape.record import call
from rushlight.tape.record.op import Op, Plan, Static, check_dtypes
from rushlight.tape.record.state import STATE, Changed
from rushlight.tape.record.value import Value

TRIES = 1
LAUNCHES = 24


class Draws:
    """The numbers in [0, 1) that one element may take: two per try and more.

    Each comes from words of its own.
    """

    def __init__(self, dtype: DType, seed: Expr, position: Expr) -> None:
        self.dtype, self.seed, self.position = dtype, seed, position

    def pair(self, number: Expr | int) -> tuple[Expr, Expr]:
        words = element_words(self.seed, self.position, number)
        return fraction(words[:2], self.dtype), fraction(words[2:], self.dtype)

    def open(self, number: int) -> Expr:
        """One in (0, 1), for logarithms."""
        u = self.pair(number)[0]
        return s.where(
            u.eq(0), const(2.0**-54 if self.dtype is float64 else 2.0**-25, self.dtype), u
        )


class Sampler(MapOp):
    """One launch: `body(draws, number, state, *parameters)`; the first input is the state.

    `number` is the index of the first draw. With `static` (True,) the numbers repeat after as many
    elements as the launch's last number: examples of a `vmap` that draw the same ones.
    """

    __slots__ = ("body",)

    def __init__(self, name: str, body: Callable[..., Expr], doc: str) -> None:
        super().__init__(name, doc)
        self.body = body

    def formula(self, ins: Sequence[Spec], static: Static) -> Formula:
        check_dtypes(self.name, ins, FLOAT)
        dtype = ins[0].dtype
        inputs = [arg(i, compute_type(dtype)) for i in range(len(ins))]
        place = s.remainder_c(index(), param(3, int64)) if static else index()
        draws = Draws(compute_type(dtype), param(0, int64), param(1, int64) + place)
        body = self.body(draws, param(2, int64), *inputs)
        return Formula((dtype,) * len(ins), (int64,) * (4 if static else 3), (dtype,), (body,))


def _sampled(
    op: str,
    first: Sampler | None,
    again: Sampler,
    mark: float,
    generator: Generator | None,
    *parameters: Value,
    lanes: int = 1,
) -> Value:
    """Launches until nothing is open, at most LAUNCHES, in float64 or float32.

    `lanes` equal parts draw the same.
    """
    if STATE.get().batch:
        ready, levels, lanes = draw_operands(op, parameters)
        if levels:
            with Changed(batch=()):
                return draw_result(
                    _sampled(op, first, again, mark, generator, *ready, lanes=lanes), levels
                )
    wide = float64 if any(p._spec.dtype is float64 for p in parameters) else float32
    shape = broadcast_shapes([p._spec.shape for p in parameters], op, [p._spec for p in parameters])
    pool = parameters[0]._spec.device
    state = full_spec(Spec.of(pool, wide, shape), mark)
    inputs = [e.cast(call.detached(p), wide) for p in parameters]
    stream = generator or default_generator
    count = state._spec.numel // max(lanes, 1)
    static, more = ((True,), (max(count, 1),)) if lanes > 1 else ((), ())
    words = stream.take(count)
    try:
        if first is not None:
            state = call.call(first, (state, *inputs), static, (*words, 0, *more))
        for launch in range(LAUNCHES):
            if (
                not pool.device.limits.asynchronous
                and (launch or first)
                and holds(state, lambda v: e.ne(v, mark))
            ):
                break
            state = call.call(
                again, (state, *inputs), static, (*words, 1 + 2 * TRIES * launch, *more)
            )
    except BaseException:
        stream.give_back(words, count)
        raise
    return state


def _check_floats(op: str, *parameters: Value) -> DType:
    dtype = functools.reduce(promote, (p._spec.dtype for p in parameters))
    if dtype.kind != "f":
        raise UnsupportedDType(
            f"{op}: parameters are floats, got {', '.join(repr(p._spec) for p in parameters)}"
        )
    return dtype


# ---- gamma: Marsaglia and Tsang, A simple method for generating gamma variables (2000) ----

_OPEN = math.inf  # in place of the logarithm of a number


def _gamma_tries(draws: Draws, number: Expr, state: Expr, a: Expr) -> Expr:
    """The logarithm of a gamma number; below 1 it is one of a + 1 times u ** (1 / a)."""
    small = a < 1
    d = s.where(small, a + 1, a) - 1 / 3
    c = 1 / s.sqrt(d * 9)
    base = s.log(d) + s.where(small, s.log(draws.open(0)) / a, const(0, a.dtype))
    for k in range(TRIES):
        x = bell(*draws.pair(number + 2 * k))
        u = draws.pair(number + (2 * k + 1))[0]
        t = c * x
        inside = t > -1
        log_v = log1p(s.where(inside, t, const(0, a.dtype))) * 3
        # d (1 - v + log v) with v = (1 + t) ** 3, without cancellation of large terms
        fits = s.log(1 - u) < x * x * 0.5 + d * (log_v - t * (t * (t + 3) + 3))
        state = s.where(state.eq(_OPEN) & inside & fits, base + log_v, state)
    return s.where(a >= 0, state, const(math.nan, a.dtype))


_gamma = Sampler("_standard_gamma", _gamma_tries, "Logarithms of gamma numbers.")


@functools.cache
def _nodes(n: int) -> list[tuple[float, float]]:
    """Nodes in (0, 1) and weights of Gauss-Legendre quadrature, by Newton's method."""
    found = []
    for i in range(n):
        x = math.cos(math.pi * (i + 0.75) / (n + 0.5))
        for _ in range(100):
            before, now = 1.0, x
            for k in range(2, n + 1):
                before, now = now, ((2 * k - 1) * x * now - (k - 1) * before) / k
            slope = n * (x * now - before) / (x * x - 1)
            x -= now / slope
            if abs(now / slope) < 1e-15:
                break
        found.append(((1 - x) / 2, 1 / ((1 - x * x) * slope * slope)))
    return found


@named
def _less_one(y: Expr) -> Expr:
    """exp(y) - 1 to the accuracy of the quadrature, in few instructions: there are many points."""
    series = const(0, y.dtype)
    for k in range(10 if y.dtype is float64 else 5, 0, -1):
        series = (series + 1) * y * (1 / k)
    return s.where(s.absolute(y) < 0.1, series, s.exp(y) - 1)


def _gamma_slope(log_x: Expr, a: Expr) -> Expr:
    """The derivative of log x by a at equal rank, x a gamma number.

    It is -(dP(a, x) / da) / (x p(x)). With t = x exp(sign * r) the integral of p(t) (log t -
    digamma(a)) from x outwards, on the side on which the second factor has one sign, is that of
    exp(f(r)) (|log x - digamma(a)| + r) with the concave f(r) = sign * a r - x (exp(sign * r) - 1).
    Both factors are positive: nothing cancels. The integral ends where f has fallen to -DEPTH,
    found by Newton's method.
    """
    depth, count, steps = (44.0, 32, 12) if a.dtype is float64 else (20.0, 16, 8)
    # Far below, P(a, x) is x^a / gamma(a + 1) to the last digit; the integral's end would overflow.
    edge = -38.0 if a.dtype is float64 else -17.0
    far = log_x < edge
    below = (gamma.digamma_above(a + 1) - log_x) / a
    log_x = s.where(far, const(edge, a.dtype), log_x)
    x = s.exp(log_x)
    away = log_x - gamma.digamma_above(a)
    above = away > 0
    sign = s.where(above, const(1, a.dtype), const(-1, a.dtype))

    # Right of the end, from where Newton's steps on a concave function stay right of it.
    reach = s.where(above, log1p((a + (depth + 4)) * 4 / x), (x + depth) / a)
    for _ in range(steps):
        reach = _nearer(reach, sign, a, x, const(depth, a.dtype))
    total = const(0, a.dtype)
    for place, weight in _nodes(count):
        here, share = const(place, a.dtype), const(weight, a.dtype)
        total = total + _integrand(reach, sign, a, x, away, here) * share
    return s.where(far, below, total * reach)


def _exponent(r: Expr, sign: Expr, a: Expr, x: Expr) -> Expr:
    """f(r) of `_gamma_slope`."""
    return sign * (a * r) - x * _less_one(sign * r)


@named
def _nearer(reach: Expr, sign: Expr, a: Expr, x: Expr, depth: Expr) -> Expr:
    """A step of Newton's method to where f is -depth."""
    slope = sign * (a - x * s.exp(sign * reach))
    return reach - (_exponent(reach, sign, a, x) + depth) / slope


@named
def _integrand(reach: Expr, sign: Expr, a: Expr, x: Expr, away: Expr, place: Expr) -> Expr:
    r = reach * place
    return s.exp(_exponent(r, sign, a, x)) * (s.absolute(away) + r)


def _no_slope(*_: Expr) -> Expr:
    raise NotDifferentiable(
        "_standard_gamma: it has a first derivative only; take none of a gradient through it"
    )


_slope = elementwise(
    "_standard_gamma",
    lambda log_x, a: _gamma_slope(log_x, a),
    "The derivative.",
    FLOAT,
    vjp=_no_slope,
    listed=False,
)


def _path_plan(op: Op, ins: Sequence[Spec], static: Static) -> Plan:
    dtype = ins[0].dtype
    log_x, a = arg(0, dtype), arg(1, dtype)
    formula = Formula((dtype, dtype), (), (dtype,), (s.where(s.isnan(a), a, log_x),))
    return map_plan(op, formula, ins, [Spec.of(ins[0].device, dtype, ins[0].shape)], static)


_gamma_path = KernelOp(
    "_standard_gamma",
    _path_plan,
    (None, lambda g, out, log_x, a: e.mul(g, _slope(out, a))),
    ((), ("out", 1)),
    "A drawn number, with the derivative by the parameter of its distribution.",
    batching="index.stand",
)


def log_gamma_draw(op: str, alpha: Value, generator: Generator | None) -> Value:
    """Logarithms of gamma numbers, differentiable in alpha; in float32 at least."""
    _check_floats(op, alpha)
    drawn = _sampled(op, None, _gamma, _OPEN, generator, alpha)
    wide = e.cast(alpha, drawn._spec.dtype)
    drawn = e.select(e.eq(drawn, _OPEN), e.log(call.detached(wide)), drawn)
    return call.call(_gamma_path, (drawn, wide))


@composite("_standard_gamma", method=False)
@drawing
def _standard_gamma(input: Value, generator: Generator | None = None) -> Value:
    """Gamma numbers of shape `input` and rate 1; the gradient is that at equal rank."""
    least = {float64: 2.0**-1022}.get(input._spec.dtype, 2.0**-126)
    drawn = e.maximum(e.exp(log_gamma_draw("_standard_gamma", input, generator)), least)
    return e.cast(drawn, input._spec.dtype)


@composite("_sample_dirichlet", method=False)
@drawing
def _sample_dirichlet(input: Value, generator: Generator | None = None) -> Value:
    """Rows of positive numbers with sum 1: gamma numbers over their sum."""
    drawn = softmax(log_gamma_draw("_sample_dirichlet", input, generator), -1)
    # Inside the simplex, as in PyTorch: the logarithms of x and 1 - x stay finite.
    least, most = {float64: (2.0**-1022, 1 - 2.0**-53), float32: (2.0**-126, 1 - 2.0**-24)}.get(
        input._spec.dtype, (2.0**-14, 1 - 2.0**-9)
    )
    return e.cast(e.minimum(e.maximum(drawn, least), most), input._spec.dtype)


# ---- counts ----

_NONE = -1.0  # no count yet
_SMALL = 10.0  # the mean up to which counts are found by adding probabilities
_STEPS = 45


def _counted(u: Expr, start: Expr, ratio: Callable[[int], Expr]) -> Expr:
    """The index of u among the sums of probabilities `start`, `start * ratio(1)`, ..."""
    dtype = u.dtype
    count, chance, total = const(0, dtype), start, start
    least = 2.0**-54 if dtype is float64 else 2.0**-25
    going = s.cast(const(1, dtype), dtype).eq(1)
    for k in range(1, _STEPS + 1):
        # The sum may be rounded to less than the largest u: the search ends where probabilities
        # vanish.
        chance = chance * ratio(k)
        going = going & (total <= u) & ((least < chance) | (count < 12))
        count = count + s.cast(going, dtype)
        total = total + chance
    return count


@named
def _deviance(x: Expr, mean: Expr) -> Expr:
    """x log(x / mean) + mean - x."""
    d = (x - mean) / mean
    inside = d > -1
    return mean * s.where(
        inside, (d + 1) * log1p(s.where(inside, d, const(0, x.dtype))) - d, const(1, x.dtype)
    )


@named
def _stirling(k: Expr) -> Expr:
    """log(k!) - k log(k) + k."""
    many = s.maximum(k, 16.0)
    square = 1 / (many * many)
    series = (
        s.log(many * (2 * math.pi)) * 0.5
        + (1 / 12 - (1 / 360 - square * (1 / 1260)) * square) / many
    )
    few = s.minimum(s.maximum(k, 0.0), 16.0)
    return s.where(
        k < 16, gamma.above_half(few + 1) - few * s.log(s.maximum(few, 1.0)) + few, series
    )


def _transformed(
    draws: Draws, number: Expr, a: Expr, b: Expr, centre: Expr
) -> tuple[Expr, Expr, Expr]:
    """A proposal of transformed rejection: the count, v, and the distance of u from the ends."""
    u, v = draws.pair(number)
    u = u - 0.5
    edge = 0.5 - s.absolute(u)
    edge = s.maximum(edge, 2.0**-26)
    return s.floor((a * 2 / edge + b) * u + centre), 1 - v, edge


def _poisson_few(draws: Draws, number: Expr, state: Expr, rate: Expr) -> Expr:
    small = s.minimum(rate, _SMALL)
    count = _counted(draws.pair(0)[0], s.exp(-small), lambda k: small * (1 / k))
    return s.where(rate < _SMALL, count, s.where(s.isnan(rate) | rate.eq(math.inf), rate, state))


def _poisson_tries(draws: Draws, number: Expr, state: Expr, rate: Expr) -> Expr:
    """Hoermann: The transformed rejection method for generating Poisson random variables (1993)."""
    mean = s.maximum(rate, _SMALL)
    b = s.sqrt(mean) * 2.53 + 0.931
    a = b * 0.02483 - 0.059
    scale = 1.1328 / (b - 3.4) + 1.1239
    quick = 0.9277 - 3.6224 / (b - 2)
    for k in range(TRIES):
        count, v, edge = _transformed(draws, number + 2 * k, a, b, mean + 0.43)
        exact = s.log(v * scale / (a / (edge * edge) + b)) <= -_deviance(count, mean) - _stirling(
            count
        )
        fits = ((edge >= 0.07) & (v <= quick)) | (
            (count >= 0) & ((edge >= 0.013) | (v <= edge)) & exact
        )
        state = s.where(state.eq(_NONE) & fits, count, state)
    return state


_few = Sampler("poisson", _poisson_few, "Counts of small rates.")
_many = Sampler("poisson", _poisson_tries, "Counts of large rates.")


@composite("poisson", method=False)
@drawing
def poisson(input: Value, generator: Generator | None = None) -> Value:
    """Counts of events at the rate in each element."""
    _check_floats("poisson", input)
    if not holds(input, lambda v: e.logical_not(e.lt(v, 0))):
        raise RushlightError(f"poisson: no rate may be negative, but one is, in {input._spec!r}")
    drawn = _sampled("poisson", _few, _many, _NONE, generator, input)
    left = e.floor(e.cast(call.detached(input), drawn._spec.dtype))
    counts = e.cast(e.select(e.eq(drawn, _NONE), left, drawn), input._spec.dtype)
    return with_zero_derivative("poisson", counts, input)


def _rarer(p: Expr) -> Expr:
    return s.minimum(p, 1 - p)


def _successes(count: Expr, n: Expr, p: Expr) -> Expr:
    """Failures were counted where successes are more frequent."""
    return s.where(p > 0.5, n - count, count)


def _binomial_few(draws: Draws, number: Expr, state: Expr, n: Expr, p: Expr) -> Expr:
    q = _rarer(p)
    few = n * q < _SMALL
    q = s.where(few, q, const(0, q.dtype))
    odds = q / (1 - q)
    count = _counted(
        draws.pair(0)[0],
        s.exp(n * log1p(-q)),
        lambda k: s.maximum(n - (k - 1), 0.0) * odds * (1 / k),
    )
    bad = s.isnan(p) | s.isnan(n)
    return s.where(bad, const(math.nan, p.dtype), s.where(few, _successes(count, n, p), state))


def _binomial_tries(draws: Draws, number: Expr, state: Expr, n: Expr, p: Expr) -> Expr:
    """Hoermann: The generation of binomial random variates (1993)."""
    many = n * _rarer(p) >= _SMALL
    q = s.where(many, _rarer(p), const(0.5, p.dtype))
    n = s.where(many, n, const(40, p.dtype))
    mean, rest = n * q, n * (1 - q)
    spread = s.sqrt(mean * (1 - q))
    b = spread * 2.53 + 1.15
    a = b * 0.0248 + q * 0.01 - 0.0873
    scale = (5.1 / b + 2.83) * spread
    quick = 0.92 - 4.2 / b

    def fall(k: Expr) -> Expr:
        """Minus the log probability of k, without terms that do not depend on k."""
        return _deviance(k, mean) + _deviance(n - k, rest) + _stirling(k) + _stirling(n - k)

    highest = fall(s.floor((n + 1) * q))
    for k in range(TRIES):
        count, v, edge = _transformed(draws, number + 2 * k, a, b, mean + 0.5)
        inside = (count >= 0) & (count <= n)
        exact = s.log(v * scale / (a / (edge * edge) + b)) <= highest - fall(
            s.minimum(s.maximum(count, 0.0), n)
        )
        fits = inside & (((edge >= 0.07) & (v <= quick)) | exact)
        state = s.where(state.eq(_NONE) & fits, _successes(count, n, p), state)
    return state


_binomial_small = Sampler("binomial", _binomial_few, "Counts of few successes.")
_binomial_large = Sampler("binomial", _binomial_tries, "Counts of many successes.")


@composite("binomial", method=False, keywords={"input": "count"})
@drawing
def binomial(count: Value, prob: Value, generator: Generator | None = None) -> Value:
    """The number of successes in `count` trials, each with probability `prob`."""
    dtype = _check_floats("binomial", count, prob)
    if count._spec.dtype is not prob._spec.dtype:
        raise DTypeError(
            f"binomial: count and prob are of one type, got {count._spec!r} and {prob._spec!r}; "
            "cast one of them"
        )
    if not holds(prob, lambda v: e.logical_and(e.ge(v, 0), e.le(v, 1))):
        raise RushlightError(
            f"binomial: probabilities must lie in [0, 1], but not all in {prob._spec!r} do"
        )
    if not holds(count, lambda v: e.ge(v, 0)):
        raise RushlightError(
            f"binomial: counts must not be negative, but one is, in {count._spec!r}"
        )
    drawn = _sampled("binomial", _binomial_small, _binomial_large, _NONE, generator, count, prob)
    n, p = (e.cast(call.detached(v), drawn._spec.dtype) for v in (count, prob))
    counts = e.cast(e.select(e.eq(drawn, _NONE), e.floor(e.mul(n, p)), drawn), dtype)
    return without_derivative("binomial", counts, count, prob)
