"""PyTorch's functions beneath `nn.functional`: reductions and modes are numbers.

Each computes what `nn.functional` does, with PyTorch's arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rushlight.core.dtypes import FLOAT8, DType
from rushlight.core.errors import DTypeError, RushlightError, ShapeError
from rushlight.func.modules import functional_call
from rushlight.nn import functional as F
from rushlight.nn.rnn import GRU, LSTM, RNN
from rushlight.ops.reduce.statistics import vector_norm
from rushlight.ops.registry import REGISTRY, stores
from rushlight.random import fork_rng
from rushlight.tensor import Tensor

_REDUCTIONS = ("none", "mean", "sum")
_SAMPLED = ("bilinear", "nearest", "bicubic")
_BORDERS = ("zeros", "border", "reflection")
_kl_div = REGISTRY["kl_div"].function  # which does not warn of its mean
Loss = TypeVar("Loss", bound=Callable[..., Tensor])


def _mode_name(op: str, names: Sequence[str], number: int) -> str:
    if not 0 <= number < len(names):
        raise RushlightError(
            f"{op}: {number} is none of {', '.join(f'{i} ({n})' for i, n in enumerate(names))}"
        )
    return names[number]


def embedding(
    weight: Any,
    indices: Any,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Any:
    """Rows of a table by index; padding_idx=-1 means none. The table comes first."""
    pad = None if padding_idx == -1 else padding_idx
    return F.embedding(indices, weight, pad, scale_grad_by_freq=scale_grad_by_freq, sparse=sparse)


def _reduction(op: str, number: int) -> str:
    return _mode_name(op, _REDUCTIONS, number)


def _numbered(loss: Loss) -> Loss:
    """The loss, whose docstring says what the number of a reduction means."""
    loss.__doc__ = f"""{loss.__doc__}

Args:
    reduction: 0 none, 1 mean, 2 sum.
Returns:
    A tensor with one element; with `reduction=0` the loss of each element or sample.
"""
    return loss


@_numbered
def kl_div(
    input: Tensor, target: Tensor, reduction: int = 0, *, log_target: bool = False
) -> Tensor:
    """The Kullback-Leibler divergence of `target` from exp(input)."""
    return _kl_div(input, target, reduction=_reduction("kl_div", reduction), log_target=log_target)


@_numbered
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = 0,
) -> Tensor:
    """The binary cross-entropy of logits."""
    name = _reduction("binary_cross_entropy_with_logits", reduction)
    return F.binary_cross_entropy_with_logits(
        input, target, weight, reduction=name, pos_weight=pos_weight
    )


@_numbered
def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: bool, full: bool, eps: float, reduction: int
) -> Tensor:
    """The negative log-likelihood of counts with Poisson distributions."""
    name = _reduction("poisson_nll_loss", reduction)
    return F.poisson_nll_loss(input, target, log_input, full, eps=eps, reduction=name)


@_numbered
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """1 - cosine of pairs with target 1, max(0, cosine - margin) of pairs with target -1."""
    name = _reduction("cosine_embedding_loss", reduction)
    return F.cosine_embedding_loss(input1, input2, target, margin, reduction=name)


@_numbered
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: float = 1.0, reduction: int = 0
) -> Tensor:
    """input where the target is 1, max(0, margin - input) where it is -1."""
    name = _reduction("hinge_embedding_loss", reduction)
    return F.hinge_embedding_loss(input, target, margin, reduction=name)


@_numbered
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: float = 0.0, reduction: int = 0
) -> Tensor:
    """max(0, -target * (input1 - input2) + margin)."""
    name = _reduction("margin_ranking_loss", reduction)
    return F.margin_ranking_loss(input1, input2, target, margin, reduction=name)


@_numbered
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: float = 1.0,
    p: float = 2.0,
    eps: float = 1e-6,
    swap: bool = False,
    reduction: int = 0,
) -> Tensor:
    """max(0, |anchor - positive| - |anchor - negative| + margin), in the norm of order p."""
    name = _reduction("triplet_margin_loss", reduction)
    return F.triplet_margin_loss(
        anchor, positive, negative, margin=margin, p=p, eps=eps, swap=swap, reduction=name
    )


def batch_norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Any:
    """Each channel with mean 0 and variance 1 over the batch, or by the running statistics."""
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


def layer_norm(
    input: Any,
    normalized_shape: Sequence[int],
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Any:
    """The last dimensions with mean 0 and variance 1.

    Args:
        cudnn_enable: Accepted; the result does not depend on it.
    """
    return F.layer_norm(input, normalized_shape, weight, bias, eps)


def group_norm(
    input: Any,
    num_groups: int,
    weight: Any = None,
    bias: Any = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = True,
) -> Any:
    """Each group of channels with mean 0 and variance 1."""
    return F.group_norm(input, num_groups, weight, bias, eps)


def instance_norm(
    input: Any,
    weight: Any,
    bias: Any,
    running_mean: Any,
    running_var: Any,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Any:
    """Each channel of each example with mean 0 and variance 1."""
    return F.instance_norm(
        input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    )


def _in_place(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    def written(input: Any, p: float, train: bool) -> Any:
        return input.copy_(function(input.clone(), p, train))

    written.__name__ = written.__qualname__ = name
    written.__doc__ = f"{name.removesuffix('_')}(input, p, train), written into the input."
    return written


dropout_ = _in_place(F.dropout, "dropout_")
alpha_dropout_ = _in_place(F.alpha_dropout, "alpha_dropout_")
feature_alpha_dropout_ = _in_place(F.feature_alpha_dropout, "feature_alpha_dropout_")
feature_dropout_ = _in_place(REGISTRY["feature_dropout"].function, "feature_dropout_")


def native_dropout(input: Any, p: float, train: bool | None) -> tuple[Any, Any]:
    """dropout, and the mask of kept elements."""
    if train is False or p == 0:
        return input.clone(), REGISTRY["ones_like"].function(input).bool()
    kept = F.dropout(REGISTRY["ones_like"].function(input.detach()), p, True)
    return input * kept, kept.bool()


def grid_sampler(
    input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> Any:
    """nn.functional.grid_sample with numbers for modes.

    0 bilinear, 1 nearest, 2 bicubic; padding 0 zeros, 1 border, 2 reflection.
    """
    op = "grid_sampler"
    mode, border = (
        _mode_name(op, _SAMPLED, interpolation_mode),
        _mode_name(op, _BORDERS, padding_mode),
    )
    return F.grid_sample(input, grid, mode, border, align_corners)


def affine_grid_generator(theta: Any, size: Sequence[int], align_corners: bool) -> Any:
    """nn.functional.affine_grid."""
    return F.affine_grid(theta, list(size), align_corners)


def convolution(
    input: Any,
    weight: Any,
    bias: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    """A convolution, or its transpose, over the weight's dimensions after its first two."""
    dims = weight.dim() - 2
    if dims not in (1, 2, 3):
        raise ShapeError(
            f"convolution: a weight has 1 to 3 dimensions after its first two, got {weight._spec!r}"
        )

    def each(values: Sequence[int]) -> tuple[int, ...]:
        return tuple(values) * dims if len(values) == 1 else tuple(values)

    if transposed:
        run = getattr(F, f"conv_transpose{dims}d")
        return run(
            input,
            weight,
            bias,
            each(stride),
            each(padding),
            each(output_padding),
            groups,
            each(dilation),
        )
    return getattr(F, f"conv{dims}d")(
        input, weight, bias, each(stride), each(padding), each(dilation), groups
    )


def conv_tbc(input: Any, weight: Any, bias: Any, pad: int = 0) -> Any:
    """A convolution of (time, batch, channels) by a (time, channels in, channels out) weight."""
    return F.conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad).permute(
        2, 0, 1
    )


def norm_except_dim(v: Any, pow: int = 2, dim: int = 0) -> Any:
    """The norm of each slice along a dimension, to be broadcast over `v`; of everything at -1."""
    if dim == -1:
        return vector_norm(v, pow)
    return vector_norm(v, pow, [d for d in range(v.dim()) if d != dim], True)


def max_pool1d_with_indices(
    input: Any,
    kernel_size: Any,
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
) -> Any:
    """max_pool1d, and the index of each maximum."""
    return F.max_pool1d(
        input, kernel_size, stride or None, padding, dilation, ceil_mode, return_indices=True
    )


# ---- recurrent layers ----


def _recurrent(kind: type, name: str, **options: Any) -> Callable[..., Any]:
    """A recurrent layer as a function of its weights."""

    def run(
        input: Any,
        hx: Any,
        params: Sequence[Any],
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[Any, ...]:
        if not isinstance(input, Tensor):
            raise TypeError(
                f"{name}: a tensor is expected, got {type(input).__name__}; pack sequences for "
                f"nn.{kind.__name__}"
            )
        if not 0 < num_layers <= len(params):
            raise ShapeError(
                f"{name}: {num_layers} layers have at least as many weights, got {len(params)}"
            )
        hidden = (hx[0] if isinstance(hx, (list, tuple)) else hx).shape[-1]
        with fork_rng():  # the layer's own initial weights are drawn and discarded
            named = {
                "bias": has_biases,
                "batch_first": batch_first,
                "dropout": dropout,
                "bidirectional": bidirectional,
            }
            module = kind(input.shape[-1], hidden, num_layers, device="null", **named, **options)
        module.train(train)
        names = [name for name, _ in module.named_parameters()]
        if len(names) != len(params):
            raise ShapeError(
                f"{name}: {len(names)} weights are needed for these options, got {len(params)}"
            )
        state = tuple(hx) if isinstance(hx, (list, tuple)) else hx
        from_weights: Any = functional_call(
            module, dict(zip(names, params, strict=True)), (input, state)
        )
        output, last = from_weights
        return (output, *last) if isinstance(last, tuple) else (output, last)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = (
        f"nn.{kind.__name__} as a function: input, state, weights in the layer's order, and its "
        "options."
    )
    return run


lstm = _recurrent(LSTM, "lstm")
gru = _recurrent(GRU, "gru")
rnn_tanh = _recurrent(RNN, "rnn_tanh", nonlinearity="tanh")
rnn_relu = _recurrent(RNN, "rnn_relu", nonlinearity="relu")


# ---- copies of views ----


@stores("cast")
def select_copy(input: Any, dim: int, index: int) -> Any:
    """A copy of one slice."""
    return input.select(dim, index).clone()


@stores("cast")
def slice_copy(
    input: Any, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Any:
    """A copy of a slice of a dimension."""
    key: list[Any] = [slice(None)] * input.dim()
    key[dim] = slice(start, end, step)
    return input[tuple(key)].clone()


@stores("cast")
def split_copy(input: Any, split_size: Any, dim: int = 0) -> tuple[Any, ...]:
    """Copies of the results of `split`."""
    return tuple(part.clone() for part in input.split(split_size, dim))


@stores("cast")
def view_as_real_copy(input: Any) -> Any:
    """A copy of real and imaginary parts."""
    return REGISTRY["view_as_real"].function(input).clone()


@stores("cast")
def view_as_complex_copy(input: Any) -> Any:
    """A copy of pairs as complex numbers."""
    return REGISTRY["view_as_complex"].function(input).clone()


def unsafe_split_with_sizes(
    input: Any, split_sizes: Sequence[int], dim: int = 0
) -> tuple[Any, ...]:
    """`split` into given sizes; here always safe."""
    return tuple(input.split(list(split_sizes), dim))


def _scaled_mm(
    input: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: DType | None = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """The product of two float8 matrices times their scales, in `out_dtype`.

    It is computed in float32.

    Args:
        input (Tensor): A float8 matrix.
        mat2 (Tensor): Another.
        scale_a (Tensor): One number for `input`, or one for each row.
        scale_b (Tensor): One number for `mat2`, or one for each column.
        bias (Tensor): Added to the scaled product.
        scale_result (Tensor): A factor of a float8 result.
        out_dtype (dtype): The type of the result; None for that of `input`.
        use_fast_accum (bool): Ignored: sums are in float32.
    """
    if input.dtype not in FLOAT8 or mat2.dtype not in FLOAT8:
        raise DTypeError(
            f"_scaled_mm: both matrices are of float8 types, got {input.dtype!r} and {mat2.dtype!r}"
        )
    wanted = input.dtype if out_dtype is None else out_dtype
    made = input.float().matmul(mat2.float()) * scale_a * scale_b
    if bias is not None:
        made = made + bias.float()
    if scale_result is not None and wanted in FLOAT8:
        made = made * scale_result
    return made.to(wanted)
