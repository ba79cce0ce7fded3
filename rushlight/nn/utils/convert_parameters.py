"""All parameters as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rushlight.core.errors import ShapeError
from rushlight.ops.view import views
from rushlight.tape.record.state import no_grad
from rushlight.tensor import Tensor


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """The elements of all parameters as one vector.

    Args:
        parameters (tensors): The parameters.
    """
    return views.cat([views.reshape(p, (-1,)) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Write the elements of a vector into the parameters, in order.

    Args:
        vec (Tensor): A vector with as many elements as all parameters.
        parameters (tensors): The parameters.
    """
    listed = list(parameters)
    wanted = sum(p.numel() for p in listed)
    if vec.shape != (wanted,):
        raise ShapeError(
            f"vector_to_parameters: a vector of {wanted} elements is needed, got {vec._spec!r}"
        )
    start = 0
    with no_grad():
        for p in listed:
            part: Any = views.slice_dim(vec, 0, start, p.numel())
            p.copy_(part.reshape(p.shape))
            start += p.numel()
