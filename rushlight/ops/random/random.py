"""Random numbers: Philox by seed and position, the same on every device.

# Note [Random positions]
1. A generator is a seed and a position: the number of the next word of 32 bits. An op that takes n
   words advances the generator by n after it has run; seed and position are the record's
   parameters, so a replay draws the same numbers. A failed op has drawn nothing: an op that draws
   and then does more is declared with `drawing`, which restores the position.
2. A number of float32 or less takes one word, one of float64 two, a normal one twice as many, an
   integer two.
3. A sampler that may reject its draws has no fixed number of words. It takes one position per
   element, and the words of that element are a stream of its own under that position
   (`element_words`), which no other op reads.
"""

from __future__ import annotations

import functools
import math
import os
import threading
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from rushlight.core.dtypes import (
    FLOAT,
    FLOAT8,
    DType,
    bfloat16,
    compute_type,
    float16,
    float32,
    float64,
    get_default,
    int32,
    int64,
    integer_range,
    real_type,
    uint8,
    uint64,
)
from rushlight.core.errors import (
    DeviceError,
    DTypeError,
    KindError,
    RushlightError,
    UnsupportedDType,
)
from rushlight.core.shapes import Spec
from rushlight.devices.shared.registry import is_named, names
from rushlight.ops.batching.random import draw_batch, drawn_lanes
from rushlight.ops.create.creation import (
    Constant,
    device_name,
    requiring,
    resolve_pool,
    shape_of,
    sizes_of,
    take,
)
from rushlight.ops.family import read_back
from rushlight.ops.family.build import check_device_dtype
from rushlight.ops.family.map import Formula, MapOp
from rushlight.ops.family.no_derivative import with_zero_derivative
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.registry import composite
from rushlight.ops.view import complex_parts, inplace
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr, arg, const, index, param
from rushlight.scalar.philox import normal, random_word, uniform, word_pair, words_of
from rushlight.tape.record import call
from rushlight.tape.record.op import Static, check_dtypes
from rushlight.tape.record.state import STATE
from rushlight.tape.record.value import Value
from rushlight.tape.vmap.batched import physical_of


def _fresh_seed() -> int:
    return int.from_bytes(os.urandom(8), "little") >> 2


def _state_body(compute: DType, seed: Expr, position: Expr) -> Expr:
    word = s.where(index() < 8, seed, position)
    return s.cast((word >> ((index() & 7) << 3)) & 255, compute)


_STATE_BYTES = 16
_state = Constant(
    "get_rng_state",
    _state_body,
    (int64, int64),
    "Seed and position, eight bytes each, low ones first.",
)


_FIRST_SEED = 67280421310721  # PyTorch's: an unseeded generator gives the same numbers each time


class _Taken(threading.local):
    """The number of words this thread has taken, of any generator."""

    words = 0


TAKEN = _Taken()


class Generator:
    """A stream of random numbers: seed and position, nothing else. It serves every device."""

    def __init__(self, device: Any = "cpu") -> None:
        self.device_name = device_name("cpu" if device is None else device)
        if not is_named(self.device_name):
            raise DeviceError(
                f"Generator: device {self.device_name!r} is none of {', '.join(names())}"
            )
        self.seed_value = _FIRST_SEED
        self.position = 0

    def manual_seed(self, seed: int) -> Generator:
        """Start at the beginning of a seed; a negative one counts back from 2^64."""
        if not -(1 << 63) <= int(seed) < 1 << 64:
            raise RushlightError(f"manual_seed: the seed must fit into 64 bits, got {seed}")
        self.seed_value = int(seed) & ((1 << 64) - 1)
        self.position = 0
        return self

    def initial_seed(self) -> int:
        """The seed that the stream was started with."""
        return self.seed_value

    def seed(self) -> int:
        """Start at a random seed, which is returned."""
        self.manual_seed(_fresh_seed())
        return self.seed_value

    @property
    def words(self) -> tuple[int, int]:
        """Seed and position as the parameters of a kernel."""
        return _signed(self.seed_value), self.position

    def take(self, count: int) -> tuple[int, int]:
        """Seed and position for `count` numbers, drawn by no other.

        See Note [Counting and threads].
        """
        position = self.position
        self.position = position + count
        TAKEN.words += count
        return _signed(self.seed_value), position

    def give_back(self, words: tuple[int, int], count: int) -> None:
        """Undo the draw of a failed call."""
        if self.position == words[1] + count:
            self.position = words[1]
            TAKEN.words -= count

    def get_state(self) -> Value:
        """Seed and position, as a tensor of bytes."""
        spec = Spec.of(resolve_pool("cpu"), uint8, (_STATE_BYTES,))
        return call.call(_state, (), (spec,), self.words)

    def set_state(self, new_state: Value) -> Generator:
        """Restore a state of `get_state`."""
        if not isinstance(new_state, Value) or new_state._spec.dtype is not uint8:
            raise TypeError(
                f"set_state: the state is a uint8 tensor from get_state, got {new_state!r}"
            )
        if new_state._spec.shape != (_STATE_BYTES,):
            raise RushlightError(
                f"set_state: the state has {_STATE_BYTES} bytes, got {new_state._spec!r}"
            )
        raw: Any = new_state
        octets = bytes(raw.tolist())
        self.seed_value, self.position = (
            int.from_bytes(octets[k : k + 8], "little") for k in (0, 8)
        )
        return self

    def clone_state(self) -> Generator:
        """Another generator with this state."""
        other = Generator(self.device_name)
        other.seed_value, other.position = self.seed_value, self.position
        return other

    graphsafe_get_state = clone_state

    def graphsafe_set_state(self, state: Generator) -> Generator:
        """Continue at the state of another generator."""
        self.seed_value, self.position = state.seed_value, state.position
        return self

    def get_offset(self) -> int:
        """The position in the stream."""
        return self.position

    def set_offset(self, offset: int) -> Generator:
        """Go to a position in the stream."""
        self.position = int(offset)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.device_name, self.seed_value, self.position)


def _restored(device: str, seed: int, position: int) -> Generator:
    generator = Generator(device).manual_seed(seed)
    generator.position = position
    return generator


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word


default_generator = Generator()
default_generator.seed()


def manual_seed(seed: int) -> Generator:
    """Start the default stream at the beginning of `seed`.

    Args:
        seed (int): The seed.
    """
    return default_generator.manual_seed(seed)


def get_rng_state() -> Value:
    """The state of the default stream, as a tensor of bytes."""
    return default_generator.get_state()


def set_rng_state(new_state: Value) -> None:
    """Restore a state of `get_rng_state` in the default stream.

    Args:
        new_state (Tensor): A state.
    """
    default_generator.set_state(new_state)


def _stream(generator: Generator | None) -> Generator:
    if generator is None:
        return default_generator
    if not isinstance(generator, Generator):
        raise KindError(
            f"a generator is a rushlight.Generator or None, got {type(generator).__name__}"
        )
    return generator


def drawing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a function that draws and may fail afterwards: then the position is restored.

    It is not restored if other threads drew too.
    """

    @functools.wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        given = [g for g in (*args, named.get("generator")) if isinstance(g, Generator)]
        generator = given[0] if given else default_generator
        seed, position, taken = generator.seed_value, generator.position, TAKEN.words
        try:
            return function(*args, **named)
        except BaseException:
            if generator.seed_value == seed:
                generator.give_back((seed, position), TAKEN.words - taken)
            raise

    return called


def _draw(
    op: Any,
    inputs: tuple[Value, ...],
    static: Static,
    more: tuple[Any, ...],
    count: int,
    g: Generator | None,
) -> Any:
    generator = _stream(g)
    run: Callable[..., Any] = call.call
    if STATE.get().batch:
        count, run = count * drawn_lanes(op.name), draw_batch
    words = generator.take(count)
    try:
        return run(op, inputs, static, (*words, *more))
    except BaseException:
        generator.give_back(words, count)
        raise


def holds(x: Value, condition: Callable[[Value], Value]) -> bool:
    """Whether a condition is true of every element; True where the host would have to wait."""
    spec = x._spec
    limits = spec.device.device.limits
    if not spec.numel or limits.asynchronous or not limits.computes:
        return True
    x = physical_of(x)
    return read_back.read(reductions.amin(e.cast(condition(call.detached(x)), int32)))[0] == 1


def _uniform(bits: int) -> tuple[Constant, Constant]:
    """Numbers of so many bits for dtypes narrower than float32: rounding must not reach 1."""

    def body(compute: DType, seed: Expr, position: Expr) -> Expr:
        number = uniform(seed, position + index() * words_of(compute), compute)
        return number if bits >= 24 else s.floor(number * float(1 << bits)) * (1 / (1 << bits))

    return (
        Constant("rand", body, (int64, int64), "Uniform in [0, 1)."),
        Constant("uniform", _scaled(body), _SCALED, "Uniform numbers times a width, plus a start."),
    )


def _normal_body(compute: DType, seed: Expr, position: Expr) -> Expr:
    return normal(seed, position + index() * (2 * words_of(compute)), compute)


def _scaled(body: Callable[..., Expr]) -> Callable[..., Expr]:
    """The numbers of a body, times a factor, plus another number."""

    def scaled(compute: DType, seed: Expr, position: Expr, factor: Expr, more: Expr) -> Expr:
        return body(compute, seed, position) * factor + more

    return scaled


_SCALED = (int64, int64, None, None)
_whole = _uniform(24)
_UNIFORM = {float16: _uniform(11), bfloat16: _uniform(8), float32: _whole, float64: _whole}
_normal = Constant("randn", _normal_body, (int64, int64), "Normal with mean 0 and deviation 1.")
NORMAL = Constant(
    "normal", _scaled(_normal_body), _SCALED, "Normal numbers times a deviation, plus a mean."
)


def _remainder(high: Expr, rest: Expr, span: Expr, share: Expr) -> Expr:
    """(high * 2^32 + rest) % span without a division; `share` is 2^64 // span.

    The quotient is the estimate or one less.
    """
    drawn, low_word = (high << 32) | rest, const(0xFFFFFFFF, uint64)
    share_high, share_rest = share >> 32, share & low_word
    first, second, third = rest * share_rest, rest * share_high, high * share_rest
    carried = (first >> 32) + (second & low_word) + (third & low_word)
    quotient = high * share_high + (second >> 32) + (third >> 32) + (carried >> 32)
    left = drawn - quotient * span
    return s.where(left < span, left, left - span)


def _integer_body(both: bool) -> Callable[..., Expr]:
    """`both`: positions are even, so the two words of a number come from one block."""

    def body(
        compute: DType, seed: Expr, position: Expr, low: Expr, span: Expr, share: Expr
    ) -> Expr:
        # 64 bits for a span of at most 2^32 make the probabilities equal to 2^-32. A span of 0
        # stands for 2^64.
        at = position + index() + index()
        words = word_pair(seed, at) if both else (random_word(seed, at), random_word(seed, at + 1))
        high, rest = (s.cast(word, uint64) for word in words)
        found = _remainder(high, rest, s.cast(span, uint64), s.cast(share, uint64))
        return low + s.cast(s.where(span.eq(0), (high << 32) | rest, found), int64)

    return body


_integer, _integer_of_pairs = (
    Constant("randint", _integer_body(both), (int64,) * 5, "Integers from low to high - 1.")
    for both in (False, True)
)


def words_for(spec: Spec) -> int:
    """The number of words of as many uniform numbers."""
    return spec.numel * words_of(spec.dtype)


def _spec(size: tuple[Any, ...], dtype: DType | None, device: Any) -> Spec:
    return Spec.of(resolve_pool(device), dtype or get_default(), shape_of(size))


@drawing
def _drawn_complex(draw: Callable[..., Value], spec: Spec, scale: float, **named: Any) -> Value:
    """Complex numbers with drawn real and imaginary parts, times a scale."""
    drawn = draw((*spec.shape, 2), dtype=real_type(spec.dtype), **named)
    return call.detached(complex_parts.joined(drawn if scale == 1 else e.mul(drawn, scale)))


def uniform_op(dtype: DType) -> Constant:
    """Uniform numbers times a width, plus a start; `words_for` says how many words they take."""
    return _UNIFORM[dtype][1]


def draw_into(
    name: str,
    target: Value,
    op: Constant,
    count: int,
    numbers: tuple[float, float],
    given: Generator | None,
) -> Value:
    """Store what an op makes of as many random words and two numbers."""
    state = STATE.get()
    if state.special or not target._spec.contiguous or (state.grad and target._node is not None):
        inplace.check_record(target, name)
        return _copy_into(target, op, count, numbers, given)
    generator = _stream(given)
    words = generator.take(count)
    try:
        plan = call.plan_for(op, (), (target._spec,))
        if not inplace.launched(plan, target, (), (*words, *numbers)):
            inplace.check_writable(target, name)
            inplace.write(target, plan, (), (*words, *numbers))
    except BaseException:
        generator.give_back(words, count)
        raise
    return target


@drawing
def _copy_into(
    target: Value, op: Constant, count: int, numbers: tuple[Any, ...], generator: Generator | None
) -> Value:
    spec = Spec.of(target._spec.device, target._spec.dtype, target._spec.shape)
    return inplace.copy_(target, _draw(op, (), (spec,), numbers, count, generator))


@composite("rand", method=False, out="made")
def rand(
    *size: Any,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
    **named: Any,
) -> Value:
    """Uniform numbers in [0, 1)."""
    spec = _spec(sizes_of("rand", size, named), dtype, device)
    if spec.dtype.kind == "c":
        return requiring(
            _drawn_complex(rand, spec, 1.0, device=device, generator=generator), requires_grad
        )
    check_dtypes("rand", [spec], FLOAT)
    return requiring(uniform_of(spec, generator), requires_grad)


def uniform_of(spec: Spec, generator: Generator | None) -> Value:
    """Uniform numbers in [0, 1), of a float type."""
    return _draw(_UNIFORM[spec.dtype][0], (), (spec,), (), words_for(spec), generator)


@composite("randn", method=False, out="made")
def randn(
    *size: Any,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
    **named: Any,
) -> Value:
    """Normal numbers with mean 0 and standard deviation 1."""
    spec = _spec(sizes_of("randn", size, named), dtype, device)
    if spec.dtype.kind == "c":  # variance 1 in all: a half for each of the real and imaginary parts
        return requiring(
            _drawn_complex(randn, spec, math.sqrt(0.5), device=device, generator=generator),
            requires_grad,
        )
    check_dtypes("randn", [spec], FLOAT)
    return requiring(_draw(_normal, (), (spec,), (), 2 * words_for(spec), generator), requires_grad)


@composite("randint", method=False, out="made")
def randint(
    low: int = 0,
    high: int | Sequence[int] | None = None,
    size: Sequence[int] | None = None,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    generator: Generator | None = None,
    **named: Any,
) -> Value:
    """Integers from low to high - 1."""
    take("randint", named)
    first: int = low
    beyond: Any = high
    sizes: Any = size
    if sizes is None and not isinstance(beyond, int):
        first, beyond, sizes = 0, low, beyond
    elif beyond is None:
        first, beyond = 0, low
    if not isinstance(beyond, int) or sizes is None:
        raise TypeError("randint: call it as randint(high, size) or randint(low, high, size)")
    spec = _spec((tuple(sizes),), dtype or int64, device)
    return requiring(integers("randint", spec, first, beyond, generator), requires_grad)


# Binary ones, of floating-point types.
DIGITS = {
    float16: 11,
    bfloat16: 8,
    float32: 24,
    float64: 53,
}


def _inside(low: int, high: int, dtype: DType) -> tuple[int, int]:
    """Bounds such that no integer between them, rounded to the dtype, leaves the given ones."""
    digits = DIGITS[dtype]

    def rounded(n: int) -> tuple[int, int]:
        step = 1 << max(0, abs(n).bit_length() - digits)
        return round(Fraction(n, step)) * step, step

    first, step = rounded(low + 1)
    low = low if first >= low else first + step
    last, step = rounded(high - 1)
    return low, high if last < high else last - step


@drawing
def integers(op: str, spec: Spec, low: int, high: int, generator: Generator | None) -> Value:
    """Integers from low to high - 1, all of which the dtype must hold."""
    if high <= low:
        raise RushlightError(f"{op}: there is no integer from {low} to {high} - 1")
    if spec.dtype.kind == "c":
        raise DTypeError(f"{op}: random integers are of integer or float types, got {spec.dtype!r}")
    if spec.dtype in FLOAT8:
        raise UnsupportedDType(f"{op}: no random integers of {spec.dtype!r}; cast others to it")
    if spec.dtype.kind == "f":
        low, high = _inside(low, high, spec.dtype)
        least, most = (-65504, 65504) if spec.dtype is float16 else (-(1 << 63), (1 << 63) - 1)
    else:
        least, most = (0, 1) if spec.dtype.kind == "b" else integer_range(spec.dtype)
    if low < least or high - 1 > most:
        raise RushlightError(
            f"{op}: {low} to {high} - 1 do not fit into {spec.dtype.name}, which holds {least} to "
            f"{most}"
        )
    drawn = Spec.of(spec.device, int64, spec.shape)
    share = min((1 << 64) // (high - low), (1 << 64) - 1)
    places = [_signed(n & ((1 << 64) - 1)) for n in (low, high - low, share)]
    kind = _integer if _stream(generator).position % 2 else _integer_of_pairs
    return e.cast(_draw(kind, (), (drawn,), tuple(places), 2 * spec.numel, generator), spec.dtype)


class Dropout(MapOp):
    """x / (1 - p) where the number at the element's position is at least p, else 0.

    Nothing is saved.
    """

    __slots__ = ()

    batching = "random.dropout"

    def formula(self, ins: Any, static: Static) -> Formula:
        check_dtypes(self.name, ins, FLOAT)
        dtype = ins[0].dtype
        compute = compute_type(dtype)
        x, seed, position = arg(0, compute), param(0, int64), param(1, int64)
        chance = uniform(seed, position + index(), float32)
        kept = s.cast(param(2, float32), float32) <= chance
        # A product, so that NaN stays NaN where it is dropped.
        body = x * s.where(kept, s.cast(param(3, float32), compute), const(0, compute))
        return Formula((dtype,), (int64, int64, float32, float32), (dtype,), (body,))


_dropout = Dropout("dropout", "Some elements zeroed, the others scaled up.")


def drop_again(input: Value, drawn: tuple[Any, ...]) -> Value:
    """Dropout with numbers drawn before: seed, position, probability and factor."""
    return call.call(_dropout, (input,), (), drawn)


@composite("dropout", method=False)
def dropout(input: Value, p: float = 0.5, training: bool = True, inplace: bool = False) -> Value:
    """Zero each element with probability p and scale the others by 1 / (1 - p).

    Outside of training the input is returned.
    """
    if not 0 <= p <= 1:
        raise ValueError(f"dropout: the probability must lie in [0, 1], got {p}")
    if not training or p == 0:
        return input
    scale = 0.0 if p == 1 else 1 / (1 - p)
    spec = input._spec
    check_device_dtype("dropout", spec.device, spec.dtype)
    return _draw(_dropout, (input,), (), (float(p), scale), spec.numel, None)


@composite("bernoulli", out="numbers")
@drawing
def bernoulli(input: Value, p: Any = None, *, generator: Generator | None = None) -> Value:
    """1 with the probability in each element, or with probability p; else 0."""
    spec = input._spec
    if p is None and spec.dtype.kind != "f":
        raise UnsupportedDType(
            f"bernoulli: probabilities are floats, got {spec!r}; cast with .float(), or pass p"
        )
    chances = input if p is None else p
    if not isinstance(chances, Value):
        if not 0 <= chances <= 1:
            raise RushlightError(f"bernoulli: the probability must lie in [0, 1], got {chances}")
        chances, drawn = float(chances), float32
    else:
        # In the dtype itself: rounding a probability to fewer digits than the number has would
        # shift it.
        drawn = chances._spec.dtype if chances._spec.dtype in (float32, float64) else float32
        chances = e.cast(chances, drawn)
        if not holds(chances, lambda v: e.logical_and(e.ge(v, 0), e.le(v, 1))):
            raise RushlightError(
                f"bernoulli: probabilities must lie in [0, 1], but not all in {chances._spec!r} do"
            )
    chance = rand(spec.shape, dtype=drawn, device=spec.device.device.name, generator=generator)
    return with_zero_derivative("bernoulli", e.cast(e.lt(chance, chances), spec.dtype), input, p)
