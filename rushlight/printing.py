"""Tensors as text, as readable as PyTorch's."""

from __future__ import annotations

from typing import Any

from rushlight.core import dtypes
from rushlight.interop import to_numpy
from rushlight.tape import call
from rushlight.tape.value import Leaf, Output, Value

_EDGE = 3
_THRESHOLD = 1000


def _style(shown: Any) -> dict[str, Any]:
    """One format for all elements: whole numbers as `1.`, others with four digits, far ranges in scientific form."""
    import numpy as np

    finite = np.abs(shown[np.isfinite(shown) & (shown != 0)])
    whole = bool(np.all(shown[np.isfinite(shown)] == np.round(shown[np.isfinite(shown)])))
    if whole and (not finite.size or finite.max() < 1e8):
        return {"float": lambda v: f"{v:.0f}." if np.isfinite(v) else str(v)}
    far = finite.size > 0 and (finite.max() >= 1e8 or (finite.max() / finite.min() > 1e3 and finite.max() >= 1e4))
    if finite.size and (far or finite.min() < 1e-4):
        return {"float": lambda v: f"{v:.4e}" if np.isfinite(v) else str(v)}
    return {"float": lambda v: f"{v:.4f}" if np.isfinite(v) else str(v)}


def show(value: Value) -> str:
    import numpy as np

    array = to_numpy(call.detached(value), copy=True)
    if value.spec.dtype.kind == "f":
        array = array.astype(np.float64)
    spec = value.spec
    text = _array_text(array)
    notes = []
    default = {dtypes.get_default(), dtypes.int64, dtypes.bool_}
    if not spec.numel and spec.shape != (0,):
        notes.append(f"size={spec.shape}")
    if spec.dtype not in default:
        notes.append(f"dtype={spec.dtype!r}")
    pool: Any = spec.device
    if pool.device.name != "cpu":
        notes.append(f"device='{pool.device.name}'")
    edge = value.node
    if type(edge) is Leaf:
        notes.append("requires_grad=True")
    elif edge is not None:
        notes.append(f"grad_fn={(edge.node if type(edge) is Output else edge)!r}")
    return f"tensor({', '.join([text, *notes])})"


def _array_text(array: Any) -> str:
    import numpy as np

    if not array.size:
        return "[]"
    formatter = _style(array) if array.dtype.kind == "f" else {}
    if array.dtype.kind == "f":
        width = max(len(formatter["float"](v)) for v in _visible(array))
        plain = formatter["float"]
        formatter = {"float": lambda v: plain(v).rjust(width)}
    if array.ndim == 0:
        return formatter["float"](array.item()) if formatter else str(array.item())
    text = np.array2string(
        array, separator=", ", threshold=_THRESHOLD, edgeitems=_EDGE, formatter=formatter or None, prefix="tensor("
    )
    return text.replace("\n ", "\n ")


def _visible(array: Any) -> Any:
    """The elements that will be printed, as far as widths go."""
    import numpy as np

    if array.size <= _THRESHOLD:
        return array.reshape(-1)
    index = [np.r_[:_EDGE, n - _EDGE : n] if n > 2 * _EDGE else np.arange(n) for n in array.shape]
    return array[np.ix_(*index)].reshape(-1)
