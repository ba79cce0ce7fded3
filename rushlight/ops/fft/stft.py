"""Short-time Fourier transforms: of every frame of a signal, and back."""

from __future__ import annotations

import warnings
from typing import Any

from rushlight.core.dtypes import real_type
from rushlight.core.errors import DTypeError, RushlightError, ShapeError
from rushlight.core.shapes import Shape
from rushlight.ops.create import creation
from rushlight.ops.family.view import View, shift_none
from rushlight.ops.fft import transforms
from rushlight.ops.nn.padding import pad
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.reduce import reductions
from rushlight.ops.registry import composite
from rushlight.ops.view import complex_parts, views
from rushlight.ops.view.windows import bordered, fold, windows_of
from rushlight.tape.record import call
from rushlight.tape.record.value import Value
from rushlight.tape.vmap.batched import physical_of

# ---- frames ----


def _frames_of(shape: Shape, strides: Shape, size: int, hop: int) -> views.View3:
    return windows_of(shape, strides, (size,), (hop,), (1,))


_frames = View(
    "frames",
    _frames_of,
    lambda g, x, size, hop: overlapped(g, x.shape[-1], hop),
    "Frames along the last dimension, one every `hop`.",
    shift=shift_none,
)


def frames(x: Value, size: int, hop: int) -> Value:
    """(..., length) viewed as (..., frames, size)."""
    return call.call(_frames, (x,), (size, hop))


def overlapped(x: Value, length: int, hop: int) -> Value:
    """(..., frames, size) added at their positions in (..., length): the transpose of `frames`.

    A frame is split into pieces of `hop`; a piece then covers one row of (rows, hop), so there are
    few large additions.
    """
    *lead, count, size = x._spec.shape
    pieces = -(-size // hop)
    padded = bordered(x, ((0, pieces * hop - size),), 0)
    blocks = views.transpose(views.reshape(padded, (*lead, count, pieces, hop)), -1, -2)
    rows = (*lead, count + pieces - 1, hop)
    whole = fold(views.unsqueeze(blocks, -1), rows, (pieces, 1), (1, 1), (1, 1))
    line = views.reshape(whole, (*lead, rows[-2] * hop))
    extra = length - rows[-2] * hop
    return (
        bordered(line, ((0, extra),), 0)
        if extra > 0
        else views.slice_dim(line, len(lead), 0, length)
    )


# ---- arguments ----


class _Setting:
    """The sizes and the window of both directions."""

    def __init__(
        self,
        op: str,
        x: Any,
        n_fft: int,
        hop_length: int | None,
        win_length: int | None,
        window: Value | None,
    ) -> None:
        self.op = op
        self.size = n_fft
        self.hop = self.size // 4 if hop_length is None else hop_length
        self.width = self.size if win_length is None else win_length
        self.window = window
        self.complex = x._spec.dtype.kind == "c" or self.complex_window

    @property
    def complex_window(self) -> bool:
        return self.window is not None and self.window._spec.dtype.kind == "c"

    def check(self, hop_fits: bool) -> None:
        if not 0 < self.width <= self.size:
            raise ShapeError(
                f"{self.op}: expected 0 < win_length <= n_fft, got {self.width} and n_fft "
                f"{self.size}"
            )
        if self.hop < 1 or (hop_fits and self.hop > self.width):
            fits = "0 < hop_length <= win_length" if hop_fits else "hop_length > 0"
            raise ShapeError(
                f"{self.op}: expected {fits}, got {self.hop} and win_length {self.width}"
            )
        if self.window is not None and self.window._spec.shape != (self.width,):
            raise ShapeError(
                f"{self.op}: expected a 1D window of win_length {self.width} elements, got "
                f"{self.window._spec!r}"
            )

    def padded_window(self, like: Value) -> Value | None:
        """The window centred in a frame; None: ones everywhere."""
        window = self.window
        if window is None and self.width == self.size:
            return None
        if window is None:
            device = like._spec.device.device.name
            window = creation.ones(self.width, dtype=real_type(like._spec.dtype), device=device)
        before = (self.size - self.width) // 2
        return bordered(window, ((before, self.size - self.width - before),), 0)

    def say_no_window(self, more: str) -> None:
        if self.window is None:
            warnings.warn(
                f"{self.op}: A window was not provided. A rectangular window will be applied, "
                f"{more}. To use one without this warning give window=torch.ones(win_length)",
                stacklevel=4,
            )


# ---- forward ----


def _centred(x: Value, side: int, mode: str) -> Value:
    """A 1-D or 2-D signal padded on both sides."""
    shape = x._spec.shape
    lead = (1,) * (3 - len(shape)) + shape[:-1]
    wide = pad(views.reshape(x, (*lead, shape[-1])), [side, side], mode)
    return views.reshape(wide, (*shape[:-1], wide._spec.shape[-1]))


@composite("stft", autocast="float32")
def stft(
    input: Value,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Value | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Value:
    """The Fourier transforms of windowed frames of a signal: (..., frequencies, frames).

    Example:
        >>> window = torch.hann_window(8)
        >>> torch.stft(torch.ones(32), 8, window=window, return_complex=True).shape
        rushlight.Size([5, 17])
    """
    setting = _Setting("stft", input, n_fft, hop_length, win_length, window)
    setting.say_no_window("which is known to cause spectral leakage")
    if return_complex is None and not setting.complex:
        raise RushlightError(
            "stft: requires the return_complex parameter be given for real inputs; give True"
        )
    if input._spec.dtype.kind not in "fc":
        raise DTypeError(
            f"stft: expected a tensor of floating point or complex values, got {input._spec!r}"
        )
    if len(input._spec.shape) not in (1, 2):
        raise ShapeError(f"stft: expected a 1D or 2D tensor, got {input._spec!r}")
    if align_to_window is not None and center:
        raise RushlightError("stft: align_to_window should only be set when center is False")
    half = not setting.complex if onesided is None else onesided
    if half and setting.complex:
        raise RushlightError("stft: Cannot have onesided output if window or input is complex")
    side = setting.size // 2
    if setting.size < 1 or (center and pad_mode == "reflect" and side >= input._spec.shape[-1]):
        raise ShapeError(
            f"stft: n_fft {setting.size} must be positive and fit the signal {input._spec!r}"
        )
    x = _centred(input, side, pad_mode) if center else input
    if align_to_window and setting.size > setting.width:
        before = (setting.size - setting.width) // 2
        x = bordered(x, ((before, setting.size - setting.width - before),), 0)
    length = x._spec.shape[-1]
    if setting.size > length:
        raise ShapeError(
            f"stft: expected 0 < n_fft <= {length}, got {setting.size} for {input._spec!r}"
        )
    setting.check(hop_fits=False)
    out = views.transpose(
        _transformed(setting, x, "ortho" if normalized else "backward", half), -1, -2
    )
    if return_complex is False:
        warnings.warn(
            "stft: return_complex=False is deprecated; view_as_real of the complex output gives "
            "the same",
            stacklevel=3,
        )
        return complex_parts.split(out)
    return out


def _transformed(setting: _Setting, x: Value, norm: str, half: bool) -> Value:
    seen = frames(x, setting.size, setting.hop)
    weights = setting.padded_window(x)
    seen = transforms.promoted("stft", seen if weights is None else e.mul(seen, weights))
    last = (len(seen._spec.shape) - 1,)
    return transforms.half(seen, last, norm) if half else transforms.full(seen, last, norm, True)


# ---- inverse ----


def _check_spectrum(
    setting: _Setting, input: Value, onesided: bool | None, return_complex: bool
) -> None:
    op, spec = setting.op, input._spec
    if spec.dtype.kind != "c":
        raise DTypeError(
            f"{op}: requires a complex input as stft gives with return_complex=True, got {spec!r}"
        )
    if len(spec.shape) not in (2, 3):
        raise ShapeError(
            f"{op}: expected (frequencies, frames) or (batch, frequencies, frames), got {spec!r}"
        )
    if not spec.numel:
        raise ShapeError(f"{op}: input tensor cannot be empty, got {spec!r}")
    bins = spec.shape[-2]
    half = bins != setting.size if onesided is None else onesided
    wanted = setting.size // 2 + 1 if half else setting.size
    if bins != wanted:
        raise ShapeError(
            f"{op}: expected the frequency dimension to have {wanted} elements (n_fft "
            f"{setting.size}, onesided={half}), got {spec!r}"
        )
    if setting.complex_window and not return_complex:
        raise RushlightError(f"{op}: Complex windows are incompatible with return_complex=False")
    if return_complex and half:
        raise RushlightError(f"{op}: Cannot have onesided output if window or input is complex")


def _signals(setting: _Setting, input: Value, norm: str, return_complex: bool) -> Value:
    """The frames of a signal: (..., frames, n_fft)."""
    x = views.transpose(input, -1, -2)
    last = len(x._spec.shape) - 1
    if return_complex:
        return transforms.full(x, (last,), norm, False)
    return transforms.from_half(
        views.slice_dim(x, last, 0, setting.size // 2 + 1), (last,), norm, setting.size
    )


def _envelope(
    setting: _Setting, like: Value, weights: Value | None, count: int, length: int
) -> Value:
    """The sum of the squares of the windows."""
    if weights is None:
        device = like._spec.device.device.name
        weights = creation.ones(setting.size, dtype=real_type(like._spec.dtype), device=device)
    return overlapped(views.expand(e.square(weights), (count, setting.size)), length, setting.hop)


@composite("istft")
def istft(
    input: Value,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Value | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Value:
    """The inverse of stft by least squares: summed frames over the squares of their windows.

    Example:
        >>> x = torch.sin(torch.arange(32.0))
        >>> window = torch.hann_window(8)
        >>> frames = torch.stft(x, 8, window=window, return_complex=True)
        >>> torch.allclose(torch.istft(frames, 8, window=window, length=32), x, atol=1e-5)
        True
    """
    setting = _Setting("istft", input, n_fft, hop_length, win_length, window)
    setting.say_no_window("which is right only if stft had the same")
    _check_spectrum(setting, input, onesided, return_complex)
    setting.check(hop_fits=True)
    count = input._spec.shape[-1]
    total = setting.size + setting.hop * (count - 1)
    start = setting.size // 2 if center else 0
    end = start + length if length is not None else total - start
    if end <= start:
        raise ShapeError(
            f"istft: nothing is left of {input._spec!r}: from {start} to {end} of {total}"
        )
    pieces = _signals(setting, input, "ortho" if normalized else "backward", return_complex)
    weights = setting.padded_window(input)
    pieces = pieces if weights is None else e.mul(pieces, weights)
    kept = min(end, total) - start
    signal = overlapped(pieces, total, setting.hop)
    signal = views.slice_dim(signal, len(signal._spec.shape) - 1, start, kept)
    below = views.slice_dim(_envelope(setting, input, weights, count, total), 0, start, kept)
    least: Any = reductions.amin(e.abs(physical_of(below)))
    if input._spec.device.device.limits.computes and least.item() < 1e-11:
        raise RushlightError(
            "istft: the squares of the windows add up to nothing somewhere (window overlap add "
            f"min: {least.item()}); use a window without zeros there, a smaller hop_length than "
            f"{setting.hop}, or center=True"
        )
    out = e.div(signal, below)
    if end > total:
        warnings.warn(
            f"istft: The signal of {kept} elements is shorter than length {length}; it is padded "
            "with zeros",
            stacklevel=3,
        )
        out = bordered(out, ((0, end - total),), 0)
    return out
