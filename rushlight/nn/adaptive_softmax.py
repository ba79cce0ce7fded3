"""A softmax over many classes, few of them common.

Rare classes are in clusters, computed on demand.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight.core.dtypes import DType
from rushlight.core.errors import RushlightError, ShapeError
from rushlight.nn import functional
from rushlight.nn.containers import ModuleList, Sequential
from rushlight.nn.linear import Linear
from rushlight.nn.module import Module
from rushlight.ops.view import views
from rushlight.tensor import Tensor


class _ASMoutput(NamedTuple):
    """The log probability of each target, and the negative of their mean."""

    output: Any
    loss: Any


class AdaptiveLogSoftmaxWithLoss(Module):
    """A softmax over classes sorted by frequency, the rare ones in clusters.

    Classes up to the first cutoff are in the head. A cluster is one class of the head; its own
    classes are computed from features whose width shrinks by `div_value` from cluster to cluster.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        device: Any = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        given = list(cutoffs)
        rising = all(a < b for a, b in itertools.pairwise(given))
        if not given or not rising or given[0] <= 0 or given[-1] > n_classes - 1:
            raise ValueError(
                "AdaptiveLogSoftmaxWithLoss: cutoffs must be rising numbers between 1 and "
                f"{n_classes - 1}, got {given}"
            )
        self.in_features = in_features
        self.n_classes = n_classes
        self.cutoffs = [*given, n_classes]
        self.div_value = div_value
        self.head_bias = head_bias
        self.shortlist_size = self.cutoffs[0]
        self.n_clusters = len(self.cutoffs) - 1
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, device=device, dtype=dtype)
        self.tail = ModuleList()
        for i in range(self.n_clusters):
            width = int(in_features // div_value ** (i + 1))
            size = self.cutoffs[i + 1] - self.cutoffs[i]
            inner = Linear(in_features, width, bias=False, device=device, dtype=dtype)
            self.tail.append(
                Sequential(inner, Linear(width, size, bias=False, device=device, dtype=dtype))
            )

    def reset_parameters(self) -> None:
        self.head.reset_parameters()
        for part in self.tail.modules():
            if isinstance(part, Linear):
                part.reset_parameters()

    def log_prob(self, input: Tensor) -> Tensor:
        """The log probabilities of all classes."""
        head = functional.log_softmax(self.head(input), 1)
        parts = [head[:, : self.shortlist_size]]
        for i, cluster in enumerate(self.tail):
            inside = functional.log_softmax(cluster(input), 1)
            parts.append(inside + head[:, self.shortlist_size + i : self.shortlist_size + i + 1])
        return views.cat(parts, 1)

    def predict(self, input: Tensor) -> Tensor:
        """The most probable class of each row."""
        return self.log_prob(input).argmax(1)

    def forward(self, input_: Tensor, target_: Tensor) -> _ASMoutput:
        alone = target_.ndim == 0
        if (
            target_.ndim > 1
            or input_.ndim != 2 - alone
            or (not alone and input_.shape[0] != target_.shape[0])
        ):
            raise ShapeError(
                f"AdaptiveLogSoftmaxWithLoss: input {input_._spec!r} (batch, {self.in_features}) "
                f"and target {target_._spec!r} (batch,) do not fit"
            )
        x, target = (input_.unsqueeze(0), target_.unsqueeze(0)) if alone else (input_, target_)
        low, high = int(target.min().item()), int(target.max().item())
        if low < 0 or high >= self.n_classes:
            raise RushlightError(
                f"AdaptiveLogSoftmaxWithLoss: targets must lie between 0 and {self.n_classes - 1}, "
                f"got {low} to {high}"
            )
        output = self._target_log_prob(x, target)
        return _ASMoutput(output.squeeze(0) if alone else output, -output.mean())

    def _target_log_prob(self, x: Any, target: Any) -> Any:
        """The log probability of each row's target.

        Only the clusters of these targets are computed.
        """
        head = functional.log_softmax(self.head(x), 1)
        place = target
        extra: list[tuple[Any, Any]] = []
        for i, cluster in enumerate(self.tail):
            first, last = self.cutoffs[i], self.cutoffs[i + 1]
            here = (target >= first) & (target < last)
            rows = here.nonzero().squeeze(1)
            place = place.masked_fill(here, self.shortlist_size + i)
            if rows.numel():
                inside = functional.log_softmax(cluster(x.index_select(0, rows)), 1)
                at = (target.index_select(0, rows) - first).unsqueeze(1)
                extra.append((rows, inside.gather(1, at).squeeze(1)))
        output = head.gather(1, place.unsqueeze(1)).squeeze(1)
        for rows, part in extra:
            output = output.index_add(0, rows, part)
        return output
