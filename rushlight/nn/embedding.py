"""Embedding: a table of learned rows."""

from __future__ import annotations

from typing import Any

from rushlight.core.dtypes import DType
from rushlight.nn import functional, init
from rushlight.nn.module import Module
from rushlight.nn.parameter import Parameter
from rushlight.ops import creation
from rushlight.tape.state import no_grad
from rushlight.tensor import Tensor


class Embedding(Module):
    """Rows of a table by index, drawn from the normal distribution; the row `padding_idx` stays zero."""

    weight: Parameter

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        *,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ValueError(f"Embedding: padding_idx {padding_idx} is outside the table of {num_embeddings} rows")
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        self.weight = Parameter(creation.empty(num_embeddings, embedding_dim, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0

    def forward(self, input: Tensor) -> Tensor:
        return functional.embedding(input, self.weight, self.padding_idx)

    def extra_repr(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"{self.num_embeddings}, {self.embedding_dim}{padding}"
