"""Embedding and EmbeddingBag: tables of learned rows."""

from __future__ import annotations

from typing import Any

from rushlight.core.dtypes import DType
from rushlight.core.errors import RowError, ShapeError
from rushlight.nn import functional, init
from rushlight.nn.module import Module
from rushlight.nn.parameter import Parameter
from rushlight.ops.create import creation
from rushlight.tape.record.state import no_grad
from rushlight.tensor import Tensor


class _Table(Module):
    """Rows drawn from the normal distribution; the row `padding_idx` begins at zero."""

    weight: Parameter

    def _fill(
        self,
        rows: int,
        width: int,
        padding_idx: int | None,
        weight: Tensor | None,
        frozen: bool,
        device: Any,
        dtype: Any,
    ) -> None:
        name = type(self).__name__
        if padding_idx is not None and not -rows <= padding_idx < rows:
            raise RowError(f"{name}: padding_idx {padding_idx} is outside the table of {rows} rows")
        if weight is not None and weight.shape != (rows, width):
            raise ShapeError(
                f"{name}: a weight of shape {[rows, width]} is needed, got {weight._spec!r}"
            )
        self.num_embeddings = rows
        self.embedding_dim = width
        self.padding_idx = None if padding_idx is None else padding_idx % rows
        if weight is None:
            self.weight = Parameter(
                creation.empty(rows, width, device=device, dtype=dtype), not frozen
            )
            self.reset_parameters()
        else:
            self.weight = Parameter(weight, not frozen)

    def reset_parameters(self) -> None:
        init.normal_(self.weight)
        if self.padding_idx is not None:
            with no_grad():
                self.weight[self.padding_idx] = 0

    def _options(self, **defaults: Any) -> str:
        said = [
            f"{name}={getattr(self, name)!r}"
            for name, value in defaults.items()
            if getattr(self, name) != value
        ]
        return ", ".join([f"{self.num_embeddings}, {self.embedding_dim}", *said])


def _check_table(name: str, embeddings: Tensor) -> None:
    if embeddings.ndim != 2:
        raise ShapeError(
            f"{name}.from_pretrained: the table must have 2 dimensions, got {embeddings._spec!r}"
        )


class Embedding(_Table):
    """Rows of a table by index; the row `padding_idx` stays zero."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.sparse = sparse
        self._fill(num_embeddings, embedding_dim, padding_idx, _weight, _freeze, device, dtype)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
    ) -> Embedding:
        """A layer with an existing table; with `freeze` it is not trained."""
        _check_table("Embedding", embeddings)
        rows, width = embeddings.shape
        return cls(
            rows,
            width,
            padding_idx,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            sparse,
            _weight=embeddings,
            _freeze=freeze,
        )

    def forward(self, input: Tensor) -> Tensor:
        return functional.embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
        )

    def extra_repr(self) -> str:
        return self._options(
            padding_idx=None, max_norm=None, norm_type=2.0, scale_grad_by_freq=False, sparse=False
        )


class EmbeddingBag(_Table):
    """The sum, mean or largest of the rows of each bag of indices."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.scale_grad_by_freq = scale_grad_by_freq
        self.mode = mode
        self.sparse = sparse
        self.include_last_offset = include_last_offset
        self._fill(num_embeddings, embedding_dim, padding_idx, _weight, False, device, dtype)

    @classmethod
    def from_pretrained(
        cls,
        embeddings: Tensor,
        freeze: bool = True,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
    ) -> EmbeddingBag:
        """A layer with an existing table; with `freeze` it is not trained."""
        _check_table("EmbeddingBag", embeddings)
        rows, width = embeddings.shape
        made = cls(
            rows,
            width,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            embeddings,
            include_last_offset,
            padding_idx,
        )
        made.weight.requires_grad_(not freeze)
        return made

    def forward(
        self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None
    ) -> Tensor:
        return functional.embedding_bag(
            input,
            self.weight,
            offsets,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.mode,
            self.sparse,
            per_sample_weights,
            self.include_last_offset,
            self.padding_idx,
        )

    def extra_repr(self) -> str:
        told = self._options(
            max_norm=None, norm_type=2.0, scale_grad_by_freq=False, padding_idx=None
        )
        return f"{told}, mode={self.mode!r}"
