"""Methods and properties of Tensor that read its metadata, and its transposes as properties."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rushlight.core.errors import KindError, RushlightError
from rushlight.ops.create import creation
from rushlight.ops.family import read_back
from rushlight.ops.pointwise import complex_numbers
from rushlight.ops.surface.metadata_functions import is_inference
from rushlight.ops.view import views
from rushlight.tape.program.memo import memo
from rushlight.tape.record import state
from rushlight.tape.record.needed import edge_of
from rushlight.tape.record.value import Output, Value
from rushlight.tape.record.written import writes_of


def _device(x: Value) -> str:
    name: str = x._spec.device.device.name
    return name


def numel(self: Value) -> int:
    """The number of elements."""
    return self._spec.numel


def nelement(self: Value) -> int:
    """The number of elements."""
    return self._spec.numel


def ndimension(self: Value) -> int:
    """The number of dimensions."""
    return len(self._spec.shape)


def is_floating_point(self: Value) -> bool:
    """Whether the dtype is floating-point."""
    return self._spec.dtype.kind == "f"


def is_complex(self: Value) -> bool:
    """Whether the dtype is complex."""
    return self._spec.dtype.kind == "c"


def is_signed(self: Value) -> bool:
    """Whether the elements can be negative."""
    return self._spec.dtype.is_signed


def _tensor(op: str, given: Any) -> Value:
    if not isinstance(given, Value):
        raise KindError(f"{op}(): a tensor is needed, got {type(given).__name__}")
    return given


def is_same_size(self: Value, other: Value) -> bool:
    """Whether another tensor has the same shape."""
    return self._spec.shape == _tensor("is_same_size", other)._spec.shape


def is_set_to(self: Value, tensor: Value) -> bool:
    """Whether another tensor has the same memory and layout."""
    _tensor("is_set_to", tensor)
    return (
        self._memory is tensor._memory
        and self._offset == tensor._offset
        and self._spec is tensor._spec
    )


def is_nonzero(self: Value) -> bool:
    """Whether the one element is nonzero; it is read from the device."""
    if self._spec.numel != 1:
        raise RushlightError(
            f"is_nonzero: one element is needed, got {self._spec!r}; use .any() or .all()"
        )
    return bool(read_back.read(self)[0])


def is_conj(self: Value) -> bool:
    """False: conjugates are never lazy here."""
    return False


def is_neg(self: Value) -> bool:
    """False: negatives are never lazy here."""
    return False


def get_device(self: Value) -> int:
    """The number of the device: 0, and -1 for the host."""
    return -1 if self._spec.device.device.limits.host_memory else 0


def record_stream(self: Value, stream: Any) -> None:
    """Accepted; memory is freed in the order of the one stream."""


_transpose: Callable[..., Value] = memo(views.transpose)
_permute: Callable[..., Value] = memo(views.permute)


def _mT(self: Value) -> Value:
    if len(self._spec.shape) < 2:
        raise RushlightError(f"mT: a matrix or a stack of them is needed, got {self._spec!r}")
    return _transpose(self, -1, -2)


def _T(self: Value) -> Value:
    rank = len(self._spec.shape)
    return _transpose(self, 0, 1) if rank == 2 else _permute(self, tuple(reversed(range(rank))))


def _H(self: Value) -> Value:
    if len(self._spec.shape) not in (0, 2):
        raise RushlightError(f"H: takes a matrix, got {self._spec!r}; use .mH for a stack of them")
    return complex_numbers.conjugate(_T(self))


def _output_number(self: Value) -> int:
    edge = edge_of(self)
    return edge.index if type(edge) is Output else 0


def _is_view(self: Value) -> bool:
    """Whether it is a view of another tensor's memory."""
    return self._base is not None


def _version(self: Value) -> int:
    if state.is_inference(self._memory):
        raise RushlightError(
            f"_version: {self._spec!r} was made in inference_mode(), which counts no writes"
        )
    return writes_of(self)


METHODS = (
    numel,
    nelement,
    ndimension,
    is_floating_point,
    is_complex,
    is_signed,
    _is_view,
    is_same_size,
    is_set_to,
    is_nonzero,
    is_conj,
    is_inference,
    is_neg,
    get_device,
    record_stream,
)


def _never(x: Value) -> bool:
    return False


# How each attribute is read, and its docstring.
PROPERTIES: dict[str, tuple[Callable[[Any], Any], str]] = {
    "T": (_T, "The tensor with its dimensions in reverse order."),
    "mT": (_mT, "The tensor with its last two dimensions exchanged."),
    "H": (_H, "The conjugate transpose of a matrix."),
    "mH": (complex_numbers.adjoint, "The conjugate transpose of a matrix or a stack of them."),
    "nbytes": (lambda x: x._spec.nbytes, "The number of bytes of all elements."),
    "itemsize": (lambda x: x._spec.dtype.itemsize, "The number of bytes of one element."),
    "is_cuda": (
        lambda x: creation.shown_name(_device(x)) == "cuda",
        "Whether the elements are on an NVIDIA GPU.",
    ),
    "is_cpu": (lambda x: _device(x) == "cpu", "Whether the elements are on the CPU."),
    "is_meta": (lambda x: _device(x) == "null", "Whether the tensor has no elements in memory."),
    "is_mps": (_never, "False: there is no such device."),
    "is_xpu": (_never, "False: there is no such device."),
    "is_xla": (_never, "False: there is no such device."),
    "is_mkldnn": (_never, "False: there is no such layout."),
    "is_sparse": (_never, "Whether the tensor is sparse, by coordinates."),
    "is_sparse_csr": (_never, "Whether the tensor is a sparse matrix by rows."),
    "is_quantized": (_never, "False: there are no quantised tensors."),
    "is_nested": (_never, "False: there are no nested tensors."),
    "layout": (lambda x: creation.strided, "`strided`, or the layout of a sparse tensor."),
    "output_nr": (_output_number, "Which result of its op this tensor is, from 0."),
    "_version": (_version, "The number of writes into the tensor's memory, but through `data`."),
}
