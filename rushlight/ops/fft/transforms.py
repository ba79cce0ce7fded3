"""Discrete Fourier transforms with PyTorch's names and rules.

# Note [Transforms]
1. Three library ops do all: `full` (complex, or real converted to complex), `half` (real, without
   the redundant frequencies) and `from_half` (back to real numbers). The hermitian ones are these
   of conjugates.
2. Inputs of another size than requested are cut, or padded with zeros at the end, first.
3. The adjoint of a transform is the transform in the other direction with the other norm:
   "backward" divides in one direction, "forward" in the other. Of half transforms, the frequencies
   that stand for two count twice.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

from rushlight.core.dtypes import (
    COMPLEX,
    DType,
    complex_type,
    float32,
    float64,
    get_default,
    int64,
    real_type,
)
from rushlight.core.errors import DTypeError, RushlightError, ShapeError
from rushlight.core.shapes import Shape, Spec, wrap_dim
from rushlight.ops.create import creation
from rushlight.ops.family.library import LibraryOp, call_library
from rushlight.ops.index.flip import roll
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.pointwise.complex_numbers import conjugate
from rushlight.ops.registry import Out, composite
from rushlight.ops.view import complex_parts, views
from rushlight.ops.view.windows import bordered
from rushlight.scalar import build as s
from rushlight.scalar.ir import Expr, const, index
from rushlight.tape.record import call
from rushlight.tape.record.value import Value

Dims = int | Sequence[int]
Results = list[tuple[DType, Shape]]

_OTHER = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


# ---- the three library ops; see Note [Transforms] ----


def _resized(shape: Shape, dim: int, size: int) -> Shape:
    return (*shape[:dim], size, *shape[dim + 1 :])


def _full_grad(
    needs: int,
    grads: list[Any],
    ins: list[Any],
    outs: list[Any],
    dims: Shape,
    norm: str,
    forward: bool,
) -> list[Value | None]:
    back = full(grads[0], dims, _OTHER[norm], not forward)
    return [back if ins[0].dtype.kind == "c" else complex_parts.real_part(back)]


def _half_grad(
    needs: int, grads: list[Any], ins: list[Any], outs: list[Any], dims: Shape, norm: str
) -> list[Value | None]:
    size = ins[0].shape[dims[-1]]
    return [from_half(_mirrored(grads[0], dims[-1], size, 0.5), dims, _OTHER[norm], size)]


def _from_half_grad(
    needs: int, grads: list[Any], ins: list[Any], outs: list[Any], dims: Shape, norm: str, size: int
) -> list[Value | None]:
    return [_mirrored(half(grads[0], dims, _OTHER[norm]), dims[-1], size, 2)]


_full = LibraryOp(
    "fft",
    "full",
    lambda ins, dims, norm, forward: [(complex_type(ins[0].dtype), ins[0].shape)],
    "The Fourier transform.",
    _full_grad,
)
_half = LibraryOp(
    "fft",
    "half",
    lambda ins, dims, norm: [
        (
            complex_type(ins[0].dtype),
            _resized(ins[0].shape, dims[-1], ins[0].shape[dims[-1]] // 2 + 1),
        )
    ],
    "The half of the Fourier transform of real numbers.",
    _half_grad,
)
_from_half = LibraryOp(
    "fft",
    "from_half",
    lambda ins, dims, norm, size: [
        (real_type(ins[0].dtype), _resized(ins[0].shape, dims[-1], size))
    ],
    "Real numbers from the half of their Fourier transform.",
    _from_half_grad,
)


def full(x: Value, dims: Shape, norm: str, forward: bool) -> Value:
    return call_library(_full, (x,), dims, norm, forward)


def half(x: Value, dims: Shape, norm: str) -> Value:
    return call_library(_half, (x,), dims, norm)


def from_half(x: Value, dims: Shape, norm: str, size: int) -> Value:
    return call_library(_from_half, (x,), dims, norm, size)


def _mirror_body(compute: DType, size: Expr, factor: Expr) -> Expr:
    twice = index() + index()
    return s.where((twice > 0) & (twice < size), factor, const(1, compute))


_mirror = creation.Constant(
    "mirror", _mirror_body, (int64, None), "A factor where a frequency stands for two."
)


def _mirrored(x: Value, dim: int, size: int, factor: float) -> Value:
    """x times `factor` at the frequencies of a half transform that stand for two."""
    count = x._spec.shape[dim]
    line = Spec.of(x._spec.device, real_type(x._spec.dtype), (count,))
    factors = call.call(_mirror, (), (line,), (size, factor))
    return e.mul(x, views.reshape(factors, (count,) + (1,) * (len(x._spec.shape) - dim - 1)))


# ---- arguments ----


def promoted(op: str, x: Any, real: bool = False) -> Value:
    """Integers in the default float dtype; `real`: nothing complex."""
    if not isinstance(x, Value):
        raise TypeError(f"{op}: takes a tensor, got {type(x).__name__}")
    if x._spec.dtype.kind in "biu":
        x = e.cast(x, get_default())
    if x._spec.dtype not in (float32, float64, *COMPLEX):
        raise DTypeError(
            f"{op}: Unsupported dtype, got {x._spec!r}; cast with .float() or .double()"
        )
    if real and x._spec.dtype.kind == "c":
        raise DTypeError(
            f"{op}: expects a real input tensor, got {x._spec!r}; take its .real, or use the full "
            "transform"
        )
    return x


def _norm_of(op: str, norm: str | None) -> str:
    if norm is None:
        return "backward"
    if norm not in _OTHER:
        raise RushlightError(
            f'{op}: Invalid normalization mode: "{norm}"; it is "backward", "ortho" or "forward"'
        )
    return norm


def _wrapped(op: str, x: Value, dim: int) -> int:
    rank = len(x._spec.shape)
    if not rank:
        raise IndexError(f"{op}: Dimension specified as {dim} but tensor has no dimensions")
    return wrap_dim(dim, rank, op)


def _listed(op: str, given: Dims | None) -> list[int] | None:
    if given is None:
        return None
    try:
        return [operator.index(v) for v in (given if isinstance(given, Sequence) else [given])]
    except TypeError:
        raise TypeError(f"{op}: sizes and dimensions are whole numbers, got {given!r}") from None


class _Axes:
    """The transformed dimensions, and the number of points of each (-1: all)."""

    def __init__(self, op: str, x: Value, sizes: Dims | None, dim: Dims | None) -> None:
        rank = len(x._spec.shape)
        wanted, dims = _listed(op, sizes), _listed(op, dim)
        if dims is not None:
            dims = [_wrapped(op, x, d) for d in dims]
            if len(set(dims)) < len(dims):
                raise RushlightError(f"{op}: FFT dims must be unique, got {dim} for {x._spec!r}")
            if wanted is not None and len(wanted) != len(dims):
                raise ShapeError(
                    f"{op}: s and dim must have the same length, got {wanted} and {dims}"
                )
        elif wanted is not None:
            if len(wanted) > rank:
                raise ShapeError(
                    f"{op}: Got shape with {len(wanted)} values but the input is {x._spec!r}"
                )
            dims = list(range(rank - len(wanted), rank))
        else:
            dims = list(range(rank))
        self.op = op
        self.dims = tuple(dims)
        self.sizes = [-1] * len(dims) if wanted is None else wanted

    @classmethod
    def one(cls, op: str, x: Value, n: int | None, dim: int) -> _Axes:
        if isinstance(n, Sequence) or isinstance(dim, Sequence):
            raise TypeError(
                f"{op}: n and dim are one number each, got {n!r} and {dim!r}; use {op}n for several"
            )
        axes = cls(op, x, n, dim)
        if n is not None and n < 1:
            raise ShapeError(f"{op}: Invalid number of data points ({n}) specified")
        return axes

    def need_one(self) -> None:
        if not self.dims:
            raise RushlightError(f"{self.op}: must transform at least one axis")

    def fit(self, x: Value, last: int | None = None) -> Value:
        """x cut or zero-padded to the sizes; `last` replaces the last size."""
        sizes = [
            x._spec.shape[d] if n == -1 else n for d, n in zip(self.dims, self.sizes, strict=True)
        ]
        for n in sizes:
            if n < 1:
                raise ShapeError(
                    f"{self.op}: Invalid number of data points ({n}) specified for {x._spec!r}"
                )
        if last is not None:
            sizes[-1] = last
        sides = [(0, 0)] * len(x._spec.shape)
        for d, n in zip(self.dims, sizes, strict=True):
            more = n - x._spec.shape[d]
            if more < 0:
                x = views.slice_dim(x, d, 0, n)
            sides[d] = (0, max(0, more))
        return bordered(x, tuple(sides), 0)

    def last_of_half(self, x: Value) -> int:
        """The number of points of the last dimension when x has half of its frequencies."""
        size = self.sizes[-1]
        size = 2 * (x._spec.shape[self.dims[-1]] - 1) if size == -1 else size
        if size < 1:
            raise ShapeError(
                f"{self.op}: Invalid number of data points ({size}) specified for {x._spec!r}"
            )
        return size


# ---- public functions ----


def _run_full(x: Value, axes: _Axes, norm: str, forward: bool) -> Value:
    if not axes.dims:
        return e.clone(x) if x._spec.dtype.kind == "c" else e.cast(x, complex_type(x._spec.dtype))
    return full(axes.fit(x), axes.dims, norm, forward)


def _run_half(x: Value, axes: _Axes, norm: str) -> Value:
    axes.need_one()
    return half(axes.fit(x), axes.dims, norm)


def _run_from_half(x: Value, axes: _Axes, norm: str) -> Value:
    axes.need_one()
    size = axes.last_of_half(x)
    whole = e.cast(x, complex_type(x._spec.dtype))
    return from_half(axes.fit(whole, size // 2 + 1), axes.dims, norm, size)


_RUNS: dict[str, Callable[[Value, _Axes, str], Value]] = {
    "fft": lambda x, axes, norm: _run_full(x, axes, norm, True),
    "ifft": lambda x, axes, norm: _run_full(x, axes, norm, False),
    "rfft": _run_half,
    "irfft": _run_from_half,
    "hfft": lambda x, axes, norm: _run_from_half(conjugate(x), axes, _OTHER[norm]),
    "ihfft": lambda x, axes, norm: conjugate(_run_half(x, axes, _OTHER[norm])),
}
_OF_REAL = ("rfft", "ihfft")


def _transforms(
    kind: str, what: str
) -> tuple[Callable[..., Value], Callable[..., Value], Callable[..., Value]]:
    """The transforms of one dimension, of two, and of any number."""
    run, real = _RUNS[kind], kind in _OF_REAL

    def one(input: Value, n: int | None = None, dim: int = -1, norm: str | None = None) -> Value:
        op = f"fft.{kind}"
        x = promoted(op, input, real)
        return run(x, _Axes.one(op, x, n, dim), _norm_of(op, norm))

    def two(
        input: Value, s: Dims | None = None, dim: Dims = (-2, -1), norm: str | None = None
    ) -> Value:
        op = f"fft.{kind}2"
        x = promoted(op, input, real)
        return run(x, _Axes(op, x, s, dim), _norm_of(op, norm))

    def several(
        input: Value, s: Dims | None = None, dim: Dims | None = None, norm: str | None = None
    ) -> Value:
        op = f"fft.{kind}n"
        x = promoted(op, input, real)
        return run(x, _Axes(op, x, s, dim), _norm_of(op, norm))

    for function, suffix, where in (
        (one, "", "a dimension"),
        (two, "2", "two dimensions"),
        (several, "n", "dimensions"),
    ):
        function.__doc__ = what.format(where)
        # As in PyTorch.
        out: Out = "exact" if kind in ("ifft", "ihfft") and function is one else "cast"
        composite(
            f"fft_{kind}{suffix}", method=False, top=False, out=out, pure=True, autocast="float32"
        )(function)
    return one, two, several


fft, fft2, fftn = _transforms("fft", "The Fourier transform along {}.")
ifft, ifft2, ifftn = _transforms("ifft", "The inverse Fourier transform along {}.")
rfft, rfft2, rfftn = _transforms(
    "rfft", "Of real numbers: the frequencies along {} that do not mirror others."
)
irfft, irfft2, irfftn = _transforms("irfft", "The inverse of rfft along {}: real numbers.")
hfft, hfft2, hfftn = _transforms(
    "hfft", "The Fourier transform along {} of numbers that mirror each other: real ones."
)
ihfft, ihfft2, ihfftn = _transforms("ihfft", "The inverse of hfft along {}.")


# ---- frequencies and their order ----


def _shifted(input: Value, dim: Dims | None, by: Callable[[int], int]) -> Value:
    dims = list(range(len(input._spec.shape))) if dim is None else _listed("fft.fftshift", dim)
    shape = input._spec.shape
    if not dims:
        raise ShapeError(
            f"fft.fftshift: at least one dimension is needed, got {dim} for {input._spec!r}"
        )
    return roll(input, [by(shape[wrap_dim(d, len(shape), "fft.fftshift")]) for d in dims], dims)


@composite("fft_fftshift", method=False, top=False)
def fftshift(input: Value, dim: Dims | None = None) -> Value:
    """The zero frequency moved from the start to the middle, along dimensions or all."""
    return _shifted(input, dim, lambda size: size // 2)


@composite("fft_ifftshift", method=False, top=False)
def ifftshift(input: Value, dim: Dims | None = None) -> Value:
    """The inverse of fftshift: the zero frequency moved from the middle to the start."""
    return _shifted(input, dim, lambda size: (size + 1) // 2)


def _frequency_body(compute: DType, size: Expr, step: Expr) -> Expr:
    # The upper half counts up to 0; the middle of an even number is negative.
    above = index() + index() >= size
    return s.cast(s.where(above, index() - size, index()), compute) * step


_frequencies = creation.Constant(
    "frequencies", _frequency_body, (int64, None), "Whole numbers around 0, times a step."
)


def _frequencies_of(
    op: str,
    n: int,
    count: int,
    size: int,
    d: Any,
    dtype: DType | None,
    device: Any,
    requires_grad: bool,
) -> Value:
    dtype = dtype or get_default()
    if dtype.kind != "f":
        raise DTypeError(f"{op}: requires a floating point dtype, got {dtype!r}")
    if n < 0:
        raise ShapeError(f"{op}: n must not be negative, got {n}")
    span = n * float(creation.number_of(d, op))
    step = 1 / span if span else float("inf")
    line = Spec.of(creation.resolve_pool(device), dtype, (count,))
    return creation.requiring(call.call(_frequencies, (), (line,), (size, step)), requires_grad)


@composite("fft_fftfreq", method=False, top=False, out="cast")
def fftfreq(
    n: int,
    d: float = 1.0,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    **named: Any,
) -> Value:
    """The frequencies of a transform of n points with spacing d, in its order."""
    creation.take("fft.fftfreq", named)
    return _frequencies_of("fft.fftfreq", n, n, n, d, dtype, device, requires_grad)


@composite("fft_rfftfreq", method=False, top=False, out="cast")
def rfftfreq(
    n: int,
    d: float = 1.0,
    *,
    dtype: DType | None = None,
    device: Any = None,
    requires_grad: bool = False,
    **named: Any,
) -> Value:
    """The frequencies of a half transform of n points with spacing d."""
    creation.take("fft.rfftfreq", named)
    return _frequencies_of(
        "fft.rfftfreq", n, n // 2 + 1, 2 * n + 2, d, dtype, device, requires_grad
    )
