# Written by tools/stubs.py: `make stubs`.
from builtins import bool as _bool, complex as _complex, float as _float, int as _int
from collections.abc import Callable, Sequence
from typing import Any, Literal, overload

from rushlight.core.dtypes import DType as _dtype
from rushlight.ops.create.creation import MemoryFormat as _layout
from rushlight.ops.random.random import Generator as _Generator
from rushlight.tensor import (
    LU,
    QR,
    SVD,
    CumMax,
    CumMin,
    Eigenpairs,
    Frexp,
    Geqrf,
    Histogram,
    HistogramDD,
    KthValue,
    LUFactor,
    LUFactorEx,
    Max,
    Median,
    Min,
    MinMax,
    Mode,
    NanMedian,
    SLogDet,
    Sorted,
    Tensor,
    TopK,
    TriangularSolve,
    _DeviceLike,
    _Operand,
)

def abs(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def absolute(input: Tensor) -> Tensor: ...
def acos(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def acosh(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def adaptive_avg_pool1d(
    input: Tensor, output_size: _int | Sequence[_int | None] | None
) -> Tensor: ...
def adaptive_avg_pool2d(
    input: Tensor, output_size: _int | Sequence[_int | None] | None
) -> Tensor: ...
def adaptive_avg_pool3d(
    input: Tensor, output_size: _int | Sequence[_int | None] | None
) -> Tensor: ...
@overload
def adaptive_max_pool1d(
    input: Tensor,
    output_size: _int | Sequence[_int | None] | None,
    return_indices: Literal[False] = False,
) -> Tensor: ...
@overload
def adaptive_max_pool1d(
    input: Tensor,
    output_size: _int | Sequence[_int | None] | None,
    *,
    return_indices: Literal[True],
) -> tuple[Tensor, Tensor]: ...
def adaptive_max_pool1d_with_indices(
    input: Tensor, output_size: _int | Sequence[_int | None] | None, return_indices: _bool = False
) -> Tensor: ...
@overload
def adaptive_max_pool2d(
    input: Tensor,
    output_size: _int | Sequence[_int | None] | None,
    return_indices: Literal[False] = False,
) -> Tensor: ...
@overload
def adaptive_max_pool2d(
    input: Tensor,
    output_size: _int | Sequence[_int | None] | None,
    *,
    return_indices: Literal[True],
) -> tuple[Tensor, Tensor]: ...
def adaptive_max_pool2d_with_indices(
    input: Tensor, output_size: _int | Sequence[_int | None] | None, return_indices: _bool = False
) -> Tensor: ...
@overload
def adaptive_max_pool3d(
    input: Tensor,
    output_size: _int | Sequence[_int | None] | None,
    return_indices: Literal[False] = False,
) -> Tensor: ...
@overload
def adaptive_max_pool3d(
    input: Tensor,
    output_size: _int | Sequence[_int | None] | None,
    *,
    return_indices: Literal[True],
) -> tuple[Tensor, Tensor]: ...
def adaptive_max_pool3d_with_indices(
    input: Tensor, output_size: _int | Sequence[_int | None] | None, return_indices: _bool = False
) -> Tensor: ...
def add(
    input: Tensor, other: _Operand, *, alpha: _complex = 1, out: Tensor | None = None
) -> Tensor: ...
def addbmm(
    input: Tensor,
    batch1: Tensor,
    batch2: Tensor,
    *,
    beta: _float = 1,
    alpha: _float = 1,
    out: Tensor | None = None,
) -> Tensor: ...
def addcdiv(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: _Operand = 1) -> Tensor: ...
def addcmul(input: Tensor, tensor1: Tensor, tensor2: Tensor, *, value: _Operand = 1) -> Tensor: ...
def addmm(
    input: Tensor,
    mat1: Tensor,
    mat2: Tensor,
    *,
    beta: _float = 1,
    alpha: _float = 1,
    out: Tensor | None = None,
) -> Tensor: ...
def addmv(
    input: Tensor,
    mat: Tensor,
    vec: Tensor,
    *,
    beta: _float = 1,
    alpha: _float = 1,
    out: Tensor | None = None,
) -> Tensor: ...
def addr(
    input: Tensor,
    vec1: Tensor,
    vec2: Tensor,
    *,
    beta: _complex = 1,
    alpha: _complex = 1,
    out: Tensor | None = None,
) -> Tensor: ...
def adjoint(input: Tensor) -> Tensor: ...
def affine_grid(
    theta: Tensor, size: Sequence[_int], align_corners: _bool | None = None
) -> Tensor: ...
def airy_ai(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def alias_copy(input: Tensor) -> Tensor: ...
def all(
    input: Tensor,
    dim: _int | Sequence[_int] | None = None,
    keepdim: _bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def allclose(
    input: Tensor,
    other: Tensor,
    rtol: _float = 1e-05,
    atol: _float = 1e-08,
    equal_nan: _bool = False,
) -> _bool: ...
def alpha_dropout(
    input: Tensor, p: _float = 0.5, training: _bool = False, inplace: _bool = False
) -> Tensor: ...
def amax(
    input: Tensor,
    dim: _int | Sequence[_int] | None = (),
    keepdim: _bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def amin(
    input: Tensor,
    dim: _int | Sequence[_int] | None = (),
    keepdim: _bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def aminmax(
    input: Tensor,
    *,
    dim: _int | None = None,
    keepdim: _bool = False,
    out: Sequence[Tensor] | None = None,
) -> MinMax: ...
def angle(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def any(
    input: Tensor,
    dim: _int | Sequence[_int] | None = None,
    keepdim: _bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def arange(
    start: Tensor | _float | None = None,
    end: Tensor | _float | None = None,
    step: _float = 1,
    *,
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    layout: _layout | None = None,
    pin_memory: _bool = False,
    out: Tensor | None = None,
) -> Tensor: ...
def arccos(input: Tensor) -> Tensor: ...
def arccosh(input: Tensor) -> Tensor: ...
def arcsin(input: Tensor) -> Tensor: ...
def arcsinh(input: Tensor) -> Tensor: ...
def arctan(input: Tensor) -> Tensor: ...
def arctan2(input: _Operand, other: _Operand) -> Tensor: ...
def arctanh(input: Tensor) -> Tensor: ...
def argmax(
    input: Tensor, dim: _int | None = None, keepdim: _bool = False, *, out: Tensor | None = None
) -> Tensor: ...
def argmin(
    input: Tensor, dim: _int | None = None, keepdim: _bool = False, *, out: Tensor | None = None
) -> Tensor: ...
def argsort(
    input: Tensor, dim: _int = -1, descending: _bool = False, stable: _bool = False
) -> Tensor: ...
def argwhere(input: Tensor) -> Tensor: ...
def as_strided(
    input: Tensor, size: Sequence[_int], stride: Sequence[_int], storage_offset: _int | None = None
) -> Tensor: ...
def as_strided_copy(
    input: Tensor, size: Sequence[_int], stride: Sequence[_int], storage_offset: _int | None = None
) -> Tensor: ...
def as_strided_scatter(
    input: Tensor,
    src: Tensor,
    size: Sequence[_int],
    stride: Sequence[_int],
    storage_offset: _int | None = None,
) -> Tensor: ...
def asin(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def asinh(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def atan(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def atan2(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def atanh(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
@overload
def atleast_1d(tensor: Tensor, /) -> Tensor: ...
@overload
def atleast_1d(tensors: Sequence[Tensor], /) -> tuple[Tensor, ...]: ...
@overload
def atleast_1d(first: Tensor, second: Tensor, /, *more: Tensor) -> tuple[Tensor, ...]: ...
@overload
def atleast_2d(tensor: Tensor, /) -> Tensor: ...
@overload
def atleast_2d(tensors: Sequence[Tensor], /) -> tuple[Tensor, ...]: ...
@overload
def atleast_2d(first: Tensor, second: Tensor, /, *more: Tensor) -> tuple[Tensor, ...]: ...
@overload
def atleast_3d(tensor: Tensor, /) -> Tensor: ...
@overload
def atleast_3d(tensors: Sequence[Tensor], /) -> tuple[Tensor, ...]: ...
@overload
def atleast_3d(first: Tensor, second: Tensor, /, *more: Tensor) -> tuple[Tensor, ...]: ...
def avg_pool1d(
    input: Tensor,
    kernel_size: _int | Sequence[_int],
    stride: _int | Sequence[_int] | None = None,
    padding: _int | Sequence[_int] = 0,
    ceil_mode: _bool = False,
    count_include_pad: _bool = True,
) -> Tensor: ...
def avg_pool2d(
    input: Tensor,
    kernel_size: _int | Sequence[_int],
    stride: _int | Sequence[_int] | None = None,
    padding: _int | Sequence[_int] = 0,
    ceil_mode: _bool = False,
    count_include_pad: _bool = True,
    divisor_override: _int | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def avg_pool3d(
    input: Tensor,
    kernel_size: _int | Sequence[_int],
    stride: _int | Sequence[_int] | None = None,
    padding: _int | Sequence[_int] = 0,
    ceil_mode: _bool = False,
    count_include_pad: _bool = True,
    divisor_override: _int | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def baddbmm(
    input: Tensor,
    batch1: Tensor,
    batch2: Tensor,
    *,
    beta: _float = 1,
    alpha: _float = 1,
    out: Tensor | None = None,
) -> Tensor: ...
def bartlett_window(
    window_length: _int,
    periodic: _bool = True,
    *,
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: _bool = False,
    momentum: _float = 0.1,
    eps: _float = 1e-05,
) -> Tensor: ...
def bernoulli(
    input: Tensor, p: _float | str | Tensor | None = None, *, generator: _Generator | None = None
) -> Tensor: ...
def bessel_j0(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def bessel_j1(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def bessel_y0(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def bessel_y1(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def bilinear(
    input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor: ...
def binary_cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: _bool | None = None,
    reduce: _bool | None = None,
    reduction: str = "mean",
) -> Tensor: ...
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: _bool | None = None,
    reduce: _bool | None = None,
    reduction: str = "mean",
    pos_weight: Tensor | None = None,
) -> Tensor: ...
def bincount(input: Tensor, weights: Tensor | None = None, minlength: _int = 0) -> Tensor: ...
def binomial(count: Tensor, prob: Tensor, generator: _Generator | None = None) -> Tensor: ...
def bitwise_and(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def bitwise_left_shift(
    input: _Operand, other: _Operand, *, out: Tensor | None = None
) -> Tensor: ...
def bitwise_not(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def bitwise_or(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def bitwise_right_shift(
    input: _Operand, other: _Operand, *, out: Tensor | None = None
) -> Tensor: ...
def bitwise_xor(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def blackman_window(
    window_length: _int,
    periodic: _bool = True,
    *,
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def block_diag(*tensors: Tensor) -> Tensor: ...
def bmm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def broadcast_tensors(*tensors: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]: ...
def broadcast_to(input: Tensor, *size: _int | Sequence[_int]) -> Tensor: ...
def bucketize(
    input: Tensor | _float, boundaries: Tensor, *, out_int32: _bool = False, right: _bool = False
) -> Tensor: ...
def cartesian_prod(*tensors: Tensor) -> Tensor: ...
def cat(tensors: Sequence[Tensor], dim: _int = 0, *, out: Tensor | None = None) -> Tensor: ...
def cdist(
    x1: Tensor,
    x2: Tensor,
    p: _float = 2.0,
    compute_mode: str | None = "use_mm_for_euclid_dist_if_necessary",
) -> Tensor: ...
def ceil(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def celu(input: Tensor, alpha: _float = 1.0, inplace: _bool = False) -> Tensor: ...
def celu_(input: Tensor, alpha: _float = 1.0) -> Tensor: ...
def chain_matmul(*matrices: Tensor) -> Tensor: ...
def channel_shuffle(input: Tensor, groups: _int) -> Tensor: ...
def chebyshev_polynomial_t(
    input: _Operand, other: _Operand, *, out: Tensor | None = None
) -> Tensor: ...
def chebyshev_polynomial_u(
    input: _Operand, other: _Operand, *, out: Tensor | None = None
) -> Tensor: ...
def chebyshev_polynomial_v(
    input: _Operand, other: _Operand, *, out: Tensor | None = None
) -> Tensor: ...
def chebyshev_polynomial_w(
    input: _Operand, other: _Operand, *, out: Tensor | None = None
) -> Tensor: ...
def cholesky(input: Tensor, upper: _bool = False, *, out: Tensor | None = None) -> Tensor: ...
def cholesky_inverse(input: Tensor, upper: _bool = False) -> Tensor: ...
def cholesky_solve(
    B: Tensor, L: Tensor, upper: _bool = False, *, out: Tensor | None = None
) -> Tensor: ...
def chunk(input: Tensor, chunks: _int, dim: _int = 0) -> tuple[Tensor, ...]: ...
def clamp(
    input: Tensor,
    min: _Operand | None = None,
    max: _Operand | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def clamp_max(input: Tensor, max: _Operand) -> Tensor: ...
def clamp_min(input: Tensor, min: _Operand) -> Tensor: ...
def clip(input: Tensor, min: _Operand | None = None, max: _Operand | None = None) -> Tensor: ...
def clone(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def column_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor: ...
def combinations(input: Tensor, r: _int = 2, with_replacement: _bool = False) -> Tensor: ...
def complex(real: Tensor, imag: Tensor) -> Tensor: ...
def concat(tensors: Sequence[Tensor], dim: _int = 0) -> Tensor: ...
def concatenate(tensors: Sequence[Tensor], dim: _int = 0) -> Tensor: ...
def conj(input: Tensor) -> Tensor: ...
def conj_physical(input: Tensor) -> Tensor: ...
def constant_pad_nd(input: Tensor, pad: Sequence[_int], value: _float = 0) -> Tensor: ...
def contiguous(x: Tensor) -> Tensor: ...
def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _int | Sequence[_int] = 1,
    padding: _int | Sequence[_int] | str = 0,
    dilation: _int | Sequence[_int] = 1,
    groups: _int = 1,
) -> Tensor: ...
def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _int | Sequence[_int] = 1,
    padding: _int | Sequence[_int] | str = 0,
    dilation: _int | Sequence[_int] = 1,
    groups: _int = 1,
) -> Tensor: ...
def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _int | Sequence[_int] = 1,
    padding: _int | Sequence[_int] | str = 0,
    dilation: _int | Sequence[_int] = 1,
    groups: _int = 1,
) -> Tensor: ...
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: _int = 0) -> Tensor: ...
def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _int | Sequence[_int] = 1,
    padding: _int | Sequence[_int] = 0,
    output_padding: _int | Sequence[_int] = 0,
    groups: _int = 1,
    dilation: _int | Sequence[_int] = 1,
) -> Tensor: ...
def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _int | Sequence[_int] = 1,
    padding: _int | Sequence[_int] = 0,
    output_padding: _int | Sequence[_int] = 0,
    groups: _int = 1,
    dilation: _int | Sequence[_int] = 1,
) -> Tensor: ...
def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: _int | Sequence[_int] = 1,
    padding: _int | Sequence[_int] = 0,
    output_padding: _int | Sequence[_int] = 0,
    groups: _int = 1,
    dilation: _int | Sequence[_int] = 1,
) -> Tensor: ...
def copysign(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def corrcoef(input: Tensor) -> Tensor: ...
def cos(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def cosh(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def cosine_embedding_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: _float = 0,
    size_average: _bool | None = None,
    reduce: _bool | None = None,
    reduction: str = "mean",
) -> Tensor: ...
def cosine_similarity(x1: Tensor, x2: Tensor, dim: _int = 1, eps: _float = 1e-08) -> Tensor: ...
def count_nonzero(input: Tensor, dim: _int | Sequence[_int] | None = None) -> Tensor: ...
def cov(
    input: Tensor,
    *,
    correction: _float = 1,
    fweights: Tensor | None = None,
    aweights: Tensor | None = None,
) -> Tensor: ...
def cross(
    input: Tensor, other: Tensor, dim: _int | None = None, *, out: Tensor | None = None
) -> Tensor: ...
def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: _bool | None = None,
    ignore_index: _int = -100,
    reduce: _bool | None = None,
    reduction: str = "mean",
    label_smoothing: _float = 0.0,
    *,
    dtype: _dtype | None = None,
) -> Tensor: ...
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[_int],
    target_lengths: Tensor | Sequence[_int],
    blank: _int = 0,
    reduction: str = "mean",
    zero_infinity: _bool = False,
) -> Tensor: ...
def cummax(input: Tensor, dim: _int) -> CumMax: ...
def cummin(input: Tensor, dim: _int) -> CumMin: ...
def cumprod(
    input: Tensor, dim: _int, *, dtype: _dtype | None = None, out: Tensor | None = None
) -> Tensor: ...
def cumsum(
    input: Tensor, dim: _int, *, dtype: _dtype | None = None, out: Tensor | None = None
) -> Tensor: ...
def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: _float | None = None, dim: _int = -1
) -> Tensor: ...
def deg2rad(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def det(A: Tensor) -> Tensor: ...
def diag(input: Tensor, diagonal: _int = 0, *, out: Tensor | None = None) -> Tensor: ...
def diag_embed(input: Tensor, offset: _int = 0, dim1: _int = -2, dim2: _int = -1) -> Tensor: ...
def diagflat(input: Tensor, offset: _int = 0) -> Tensor: ...
def diagonal(input: Tensor, offset: _int = 0, dim1: _int = 0, dim2: _int = 1) -> Tensor: ...
def diagonal_copy(input: Tensor, offset: _int = 0, dim1: _int = 0, dim2: _int = 1) -> Tensor: ...
def diagonal_scatter(
    input: Tensor, src: Tensor, offset: _int = 0, dim1: _int = 0, dim2: _int = 1
) -> Tensor: ...
def diff(
    input: Tensor,
    n: _int = 1,
    dim: _int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def digamma(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def dist(input: Tensor, other: Tensor, p: _float = 2) -> Tensor: ...
def div(
    input: Tensor, other: _Operand, *, rounding_mode: str | None = None, out: Tensor | None = None
) -> Tensor: ...
def divide(input: Tensor, other: _Operand, *, rounding_mode: str | None = None) -> Tensor: ...
def dot(input: Tensor, tensor: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def dropout(
    input: Tensor, p: _float = 0.5, training: _bool = True, inplace: _bool = False
) -> Tensor: ...
def dropout1d(
    input: Tensor, p: _float = 0.5, training: _bool = True, inplace: _bool = False
) -> Tensor: ...
def dropout2d(
    input: Tensor, p: _float = 0.5, training: _bool = True, inplace: _bool = False
) -> Tensor: ...
def dropout3d(
    input: Tensor, p: _float = 0.5, training: _bool = True, inplace: _bool = False
) -> Tensor: ...
def dsplit(
    input: Tensor, indices_or_sections: _int | Sequence[_int] | Tensor
) -> tuple[Tensor, ...]: ...
def dstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor: ...
def einsum(equation: str, *operands: Tensor | Sequence[Tensor]) -> Tensor: ...
def elu(input: Tensor, alpha: _float = 1.0, inplace: _bool = False) -> Tensor: ...
def elu_(input: Tensor, alpha: _float = 1.0) -> Tensor: ...
def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: _int | None = None,
    max_norm: _float | None = None,
    norm_type: _float = 2.0,
    scale_grad_by_freq: _bool = False,
    sparse: _bool = False,
) -> Tensor: ...
def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: _float | None = None,
    norm_type: _float = 2,
    scale_grad_by_freq: _bool = False,
    mode: str = "mean",
    sparse: _bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: _bool = False,
    padding_idx: _int | None = None,
) -> Tensor: ...
def empty(
    *size: _int | Sequence[_int],
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def empty_like(
    input: Tensor,
    *,
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def empty_permuted(
    size: Sequence[_int],
    physical_layout: Sequence[_int],
    *,
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def empty_strided(
    size: Sequence[_int],
    stride: Sequence[_int],
    *,
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def entr(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def eq(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def equal(input: Tensor, other: Tensor) -> _bool: ...
def erf(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def erfc(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def erfcx(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def erfinv(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def exp(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def exp2(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def expand(input: Tensor, *size: _int | Sequence[_int]) -> Tensor: ...
def expand_as(input: Tensor, other: Tensor) -> Tensor: ...
def expand_copy(input: Tensor, *size: _int | Sequence[_int]) -> Tensor: ...
def expm1(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def eye(
    n: _int,
    m: _int | None = None,
    *,
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    layout: _layout | None = None,
    pin_memory: _bool = False,
    out: Tensor | None = None,
) -> Tensor: ...
def feature_alpha_dropout(
    input: Tensor, p: _float = 0.5, training: _bool = False, inplace: _bool = False
) -> Tensor: ...
def feature_dropout(input: Tensor, p: _float, train: _bool) -> Tensor: ...
def fill(input: Tensor, value: _complex | Tensor) -> Tensor: ...
def fix(input: Tensor) -> Tensor: ...
def flatten(input: Tensor, start_dim: _int = 0, end_dim: _int = -1) -> Tensor: ...
def flip(
    input: Tensor, *axes: _int | Sequence[_int], dims: _int | Sequence[_int] | None = None
) -> Tensor: ...
def fliplr(input: Tensor) -> Tensor: ...
def flipud(input: Tensor) -> Tensor: ...
def float_power(input: Tensor | _complex, exponent: Tensor | _complex) -> Tensor: ...
def floor(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def floor_divide(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def fmax(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def fmin(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def fmod(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def fold(
    input: Tensor,
    output_size: _int | Sequence[_int],
    kernel_size: _int | Sequence[_int],
    dilation: _int | Sequence[_int] = 1,
    padding: _int | Sequence[_int] = 0,
    stride: _int | Sequence[_int] = 1,
) -> Tensor: ...
def frac(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
@overload
def fractional_max_pool2d(
    input: Tensor,
    kernel_size: _int | Sequence[_int],
    output_size: _int | Sequence[_int] | None = None,
    output_ratio: _float | Sequence[_float] | None = None,
    return_indices: Literal[False] = False,
) -> Tensor: ...
@overload
def fractional_max_pool2d(
    input: Tensor,
    kernel_size: _int | Sequence[_int],
    output_size: _int | Sequence[_int] | None = None,
    output_ratio: _float | Sequence[_float] | None = None,
    *,
    return_indices: Literal[True],
) -> tuple[Tensor, Tensor]: ...
def fractional_max_pool2d_with_indices(
    input: Tensor,
    kernel_size: _int | Sequence[_int],
    output_size: _int | Sequence[_int] | None = None,
    output_ratio: _float | Sequence[_float] | None = None,
    return_indices: _bool = False,
) -> Tensor: ...
@overload
def fractional_max_pool3d(
    input: Tensor,
    kernel_size: _int | Sequence[_int],
    output_size: _int | Sequence[_int] | None = None,
    output_ratio: _float | Sequence[_float] | None = None,
    return_indices: Literal[False] = False,
) -> Tensor: ...
@overload
def fractional_max_pool3d(
    input: Tensor,
    kernel_size: _int | Sequence[_int],
    output_size: _int | Sequence[_int] | None = None,
    output_ratio: _float | Sequence[_float] | None = None,
    *,
    return_indices: Literal[True],
) -> tuple[Tensor, Tensor]: ...
def fractional_max_pool3d_with_indices(
    input: Tensor,
    kernel_size: _int | Sequence[_int],
    output_size: _int | Sequence[_int] | None = None,
    output_ratio: _float | Sequence[_float] | None = None,
    return_indices: _bool = False,
) -> Tensor: ...
def frexp(input: Tensor, *, out: Sequence[Tensor] | None = None) -> Frexp: ...
def frobenius_norm(input: Tensor, dim: _int | Sequence[_int], keepdim: _bool = False) -> Tensor: ...
def full(
    size: Sequence[_int],
    fill_value: _complex,
    *,
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    layout: _layout | None = None,
    pin_memory: _bool = False,
    out: Tensor | None = None,
) -> Tensor: ...
def full_like(
    input: Tensor,
    fill_value: _float,
    *,
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def gather(
    input: Tensor,
    dim: _int,
    index: Tensor,
    *,
    sparse_grad: _bool = False,
    out: Tensor | None = None,
) -> Tensor: ...
def gaussian_nll_loss(
    input: Tensor,
    target: Tensor,
    var: Tensor | _float,
    full: _bool = False,
    eps: _float = 1e-06,
    reduction: str = "mean",
) -> Tensor: ...
def gcd(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def ge(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def gelu(input: Tensor, approximate: str = "none", *, out: Tensor | None = None) -> Tensor: ...
def gelu_exact(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def gelu_tanh(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def geqrf(input: Tensor) -> Geqrf: ...
def ger(input: Tensor, vec2: Tensor) -> Tensor: ...
def glu(input: Tensor, dim: _int = -1) -> Tensor: ...
def gradient(
    input: Tensor,
    *,
    spacing: _float | Sequence[_float] | Sequence[Tensor] = 1,
    dim: _int | Sequence[_int] | None = None,
    edge_order: _int = 1,
) -> tuple[Tensor, ...]: ...
def greater(input: _Operand, other: _Operand) -> Tensor: ...
def greater_equal(input: _Operand, other: _Operand) -> Tensor: ...
def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: _bool | None = None,
) -> Tensor: ...
def grid_sampler_2d(
    input: Tensor, grid: Tensor, interpolation_mode: _int, padding_mode: _int, align_corners: _bool
) -> Tensor: ...
def grid_sampler_3d(
    input: Tensor, grid: Tensor, interpolation_mode: _int, padding_mode: _int, align_corners: _bool
) -> Tensor: ...
def group_norm(
    input: Tensor,
    num_groups: _int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: _float = 1e-05,
) -> Tensor: ...
def gru_cell(
    input: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor: ...
def gt(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def gumbel_softmax(
    logits: Tensor, tau: _float = 1, hard: _bool = False, eps: _float = 1e-10, dim: _int = -1
) -> Tensor: ...
def hamming_window(
    window_length: _int,
    periodic: _bool = True,
    alpha: _float = 0.54,
    beta: _float = 0.46,
    *,
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def hann_window(
    window_length: _int,
    periodic: _bool = True,
    *,
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def hardshrink(input: Tensor, lambd: _float = 0.5, *, out: Tensor | None = None) -> Tensor: ...
def hardsigmoid(input: Tensor, inplace: _bool = False, *, out: Tensor | None = None) -> Tensor: ...
def hardswish(input: Tensor, inplace: _bool = False) -> Tensor: ...
def hardtanh(
    input: Tensor,
    min_val: _float = -1.0,
    max_val: _float = 1.0,
    inplace: _bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def hardtanh_(input: Tensor, min_val: _float = -1.0, max_val: _float = 1.0) -> Tensor: ...
def heaviside(input: Tensor, values: Tensor) -> Tensor: ...
def hermite_polynomial_h(x: _Operand, n: _Operand) -> Tensor: ...
def hermite_polynomial_he(x: _Operand, n: _Operand) -> Tensor: ...
def hinge_embedding_loss(
    input: Tensor,
    target: Tensor,
    margin: _float = 1.0,
    size_average: _bool | None = None,
    reduce: _bool | None = None,
    reduction: str = "mean",
) -> Tensor: ...
def histc(input: Tensor, bins: _int = 100, min: _float = 0, max: _float = 0) -> Tensor: ...
def histogram(
    input: Tensor,
    bins: Tensor | _int | Sequence[_int] | Sequence[Tensor],
    *,
    range: Sequence[_float] | None = None,
    weight: Tensor | None = None,
    density: _bool = False,
) -> Histogram: ...
def histogramdd(
    input: Tensor,
    bins: Tensor | _int | Sequence[_int] | Sequence[Tensor],
    *,
    range: Sequence[_float] | None = None,
    weight: Tensor | None = None,
    density: _bool = False,
) -> HistogramDD: ...
def hsplit(
    input: Tensor, indices_or_sections: _int | Sequence[_int] | Tensor
) -> tuple[Tensor, ...]: ...
def hstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor: ...
def huber_loss(
    input: Tensor,
    target: Tensor,
    reduction: str = "mean",
    delta: _float = 1.0,
    weight: Tensor | None = None,
) -> Tensor: ...
def hypot(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def i0(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def i0e(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def i1(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def i1e(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def igamma(input: Tensor, other: Tensor) -> Tensor: ...
def igammac(input: Tensor, other: Tensor) -> Tensor: ...
def im2col(
    input: Tensor,
    kernel_size: _int | Sequence[_int],
    dilation: _int | Sequence[_int] = 1,
    padding: _int | Sequence[_int] = 0,
    stride: _int | Sequence[_int] = 1,
) -> Tensor: ...
def imag(input: Tensor) -> Tensor: ...
def index_add(
    input: Tensor,
    dim: _int,
    index: Tensor,
    source: Tensor,
    *,
    alpha: _float = 1,
    out: Tensor | None = None,
) -> Tensor: ...
def index_copy(
    input: Tensor, dim: _int, index: Tensor, source: Tensor, *, out: Tensor | None = None
) -> Tensor: ...
def index_fill(input: Tensor, dim: _int, index: Tensor, value: _complex | Tensor) -> Tensor: ...
def index_put(
    input: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: _bool = False
) -> Tensor: ...
def index_reduce(
    input: Tensor,
    dim: _int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: _bool = True,
) -> Tensor: ...
def index_select(
    input: Tensor, dim: _int, index: Tensor, *, out: Tensor | None = None
) -> Tensor: ...
def inner(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: _bool = True,
    momentum: _float = 0.1,
    eps: _float = 1e-05,
) -> Tensor: ...
def interpolate(
    input: Tensor,
    size: _int | Sequence[_int] | None = None,
    scale_factor: _float | Sequence[_float] | None = None,
    mode: str = "nearest",
    align_corners: _bool | None = None,
    recompute_scale_factor: _bool | None = None,
    antialias: _bool = False,
) -> Tensor: ...
def inverse(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def isclose(
    input: Tensor,
    other: Tensor,
    rtol: _float = 1e-05,
    atol: _float = 1e-08,
    equal_nan: _bool = False,
) -> Tensor: ...
def isfinite(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def isin(
    elements: Tensor | _float,
    test_elements: Tensor | _float,
    *,
    assume_unique: _bool = False,
    invert: _bool = False,
    out: Tensor | None = None,
) -> Tensor: ...
def isinf(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def isnan(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def isneginf(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def isposinf(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def isreal(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def istft(
    input: Tensor,
    n_fft: _int,
    hop_length: _int | None = None,
    win_length: _int | None = None,
    window: Tensor | None = None,
    center: _bool = True,
    normalized: _bool = False,
    onesided: _bool | None = None,
    length: _int | None = None,
    return_complex: _bool = False,
) -> Tensor: ...
def kaiser_window(
    window_length: _int,
    periodic: _bool = True,
    beta: _float = 12.0,
    *,
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def kl_div(
    input: Tensor,
    target: Tensor,
    size_average: _bool | None = None,
    reduce: _bool | None = None,
    reduction: str = "mean",
    log_target: _bool = False,
) -> Tensor: ...
def kron(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def kthvalue(
    input: Tensor,
    k: _int,
    dim: _int = -1,
    keepdim: _bool = False,
    *,
    out: Sequence[Tensor] | None = None,
) -> KthValue: ...
def l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: _bool | None = None,
    reduce: _bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor: ...
def laguerre_polynomial_l(x: _Operand, n: _Operand) -> Tensor: ...
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[_int] | _int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: _float = 1e-05,
) -> Tensor: ...
def lcm(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def ldexp(input: Tensor, other: _Operand) -> Tensor: ...
def le(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def leaky_relu(
    input: Tensor,
    negative_slope: _float = 0.01,
    inplace: _bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def leaky_relu_(input: Tensor, negative_slope: _float = 0.01) -> Tensor: ...
def legendre_polynomial_p(x: _Operand, n: _Operand) -> Tensor: ...
def lerp(input: Tensor, end: Tensor, weight: Tensor | _float) -> Tensor: ...
def less(input: _Operand, other: _Operand) -> Tensor: ...
def less_equal(input: _Operand, other: _Operand) -> Tensor: ...
def lgamma(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def linear(
    input: Tensor, weight: Tensor, bias: Tensor | None = None, *, out: Tensor | None = None
) -> Tensor: ...
def linear_cross_entropy(
    input: Tensor,
    linear_weight: Tensor,
    target: Tensor,
    *,
    linear_bias: Tensor | None = None,
    weight: Tensor | None = None,
    reduction: str = "mean",
    ignore_index: _int | None = None,
    label_smoothing: _float = 0.0,
    options: Any = None,
) -> Tensor: ...
def linspace(
    start: Tensor | _float,
    end: Tensor | _float,
    steps: _int,
    *,
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def lobpcg(
    A: Tensor,
    k: _int | None = None,
    B: Tensor | None = None,
    X: Tensor | None = None,
    n: _int | None = None,
    iK: Tensor | None = None,
    niter: _int | None = None,
    tol: _float | None = None,
    largest: _bool | None = None,
    method: str | None = None,
    tracker: Any = None,
    ortho_iparams: Any = None,
    ortho_fparams: Any = None,
    ortho_bparams: Any = None,
) -> Eigenpairs: ...
def local_response_norm(
    input: Tensor, size: _int, alpha: _float = 0.0001, beta: _float = 0.75, k: _float = 1.0
) -> Tensor: ...
def log(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def log10(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def log1p(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def log2(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def log_ndtr(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def log_softmax(
    input: Tensor, dim: _int | None = None, _stacklevel: _int = 3, dtype: _dtype | None = None
) -> Tensor: ...
def logaddexp(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def logaddexp2(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def logcumsumexp(input: Tensor, dim: _int, *, out: Tensor | None = None) -> Tensor: ...
def logdet(input: Tensor) -> Tensor: ...
def logical_and(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def logical_not(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def logical_or(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def logical_xor(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def logit(input: Tensor, eps: _float | None = None) -> Tensor: ...
def logsigmoid(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def logspace(
    start: Tensor | _float,
    end: Tensor | _float,
    steps: _int,
    base: _float = 10.0,
    *,
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def logsumexp(
    input: Tensor,
    dim: _int | Sequence[_int] | None,
    keepdim: _bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def lp_pool1d(
    input: Tensor,
    norm_type: _float,
    kernel_size: _int,
    stride: _int | Sequence[_int] | None = None,
    ceil_mode: _bool = False,
) -> Tensor: ...
def lp_pool2d(
    input: Tensor,
    norm_type: _float,
    kernel_size: _int | Sequence[_int],
    stride: _int | Sequence[_int] | None = None,
    ceil_mode: _bool = False,
) -> Tensor: ...
def lp_pool3d(
    input: Tensor,
    norm_type: _float,
    kernel_size: _int | Sequence[_int],
    stride: _int | Sequence[_int] | None = None,
    ceil_mode: _bool = False,
) -> Tensor: ...
def lstm_cell(
    input: Tensor,
    hx: Sequence[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]: ...
def lt(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
@overload
def lu(A: Tensor, pivot: _bool = True, get_infos: Literal[False] = False) -> LUFactor: ...
@overload
def lu(A: Tensor, pivot: _bool = True, *, get_infos: Literal[True]) -> LUFactorEx: ...
def lu_solve(input: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor: ...
def lu_unpack(
    LU_data: Tensor, LU_pivots: Tensor, unpack_data: _bool = True, unpack_pivots: _bool = True
) -> LU: ...
def margin_ranking_loss(
    input1: Tensor,
    input2: Tensor,
    target: Tensor,
    margin: _float = 0,
    size_average: _bool | None = None,
    reduce: _bool | None = None,
    reduction: str = "mean",
) -> Tensor: ...
def masked_fill(input: Tensor, mask: Tensor, value: _Operand) -> Tensor: ...
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor: ...
def masked_select(input: Tensor, mask: Tensor) -> Tensor: ...
def matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def matrix_exp(input: Tensor) -> Tensor: ...
def matrix_power(input: Tensor, n: _int, *, out: Tensor | None = None) -> Tensor: ...
@overload
def max(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
@overload
def max(
    input: Tensor, dim: _int, keepdim: _bool = False, *, out: Sequence[Tensor] | None = None
) -> Max: ...
@overload
def max(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
@overload
def max_pool1d(
    input: Tensor,
    kernel_size: _int | Sequence[_int],
    stride: _int | Sequence[_int] | None = None,
    padding: _int | Sequence[_int] = 0,
    dilation: _int | Sequence[_int] = 1,
    ceil_mode: _bool = False,
    return_indices: Literal[False] = False,
) -> Tensor: ...
@overload
def max_pool1d(
    input: Tensor,
    kernel_size: _int | Sequence[_int],
    stride: _int | Sequence[_int] | None = None,
    padding: _int | Sequence[_int] = 0,
    dilation: _int | Sequence[_int] = 1,
    ceil_mode: _bool = False,
    *,
    return_indices: Literal[True],
) -> tuple[Tensor, Tensor]: ...
def max_pool1d_with_indices(
    input: Tensor,
    kernel_size: _int | Sequence[_int],
    stride: _int | Sequence[_int] | None = None,
    padding: _int | Sequence[_int] = 0,
    dilation: _int | Sequence[_int] = 1,
    ceil_mode: _bool = False,
    return_indices: _bool = False,
) -> Tensor: ...
@overload
def max_pool2d(
    input: Tensor,
    kernel_size: _int | Sequence[_int],
    stride: _int | Sequence[_int] | None = None,
    padding: _int | Sequence[_int] = 0,
    dilation: _int | Sequence[_int] = 1,
    ceil_mode: _bool = False,
    return_indices: Literal[False] = False,
) -> Tensor: ...
@overload
def max_pool2d(
    input: Tensor,
    kernel_size: _int | Sequence[_int],
    stride: _int | Sequence[_int] | None = None,
    padding: _int | Sequence[_int] = 0,
    dilation: _int | Sequence[_int] = 1,
    ceil_mode: _bool = False,
    *,
    return_indices: Literal[True],
) -> tuple[Tensor, Tensor]: ...
def max_pool2d_with_indices(
    input: Tensor,
    kernel_size: _int | Sequence[_int],
    stride: _int | Sequence[_int] | None = None,
    padding: _int | Sequence[_int] = 0,
    dilation: _int | Sequence[_int] = 1,
    ceil_mode: _bool = False,
    return_indices: _bool = False,
) -> Tensor: ...
@overload
def max_pool3d(
    input: Tensor,
    kernel_size: _int | Sequence[_int],
    stride: _int | Sequence[_int] | None = None,
    padding: _int | Sequence[_int] = 0,
    dilation: _int | Sequence[_int] = 1,
    ceil_mode: _bool = False,
    return_indices: Literal[False] = False,
) -> Tensor: ...
@overload
def max_pool3d(
    input: Tensor,
    kernel_size: _int | Sequence[_int],
    stride: _int | Sequence[_int] | None = None,
    padding: _int | Sequence[_int] = 0,
    dilation: _int | Sequence[_int] = 1,
    ceil_mode: _bool = False,
    *,
    return_indices: Literal[True],
) -> tuple[Tensor, Tensor]: ...
def max_pool3d_with_indices(
    input: Tensor,
    kernel_size: _int | Sequence[_int],
    stride: _int | Sequence[_int] | None = None,
    padding: _int | Sequence[_int] = 0,
    dilation: _int | Sequence[_int] = 1,
    ceil_mode: _bool = False,
    return_indices: _bool = False,
) -> Tensor: ...
def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: _int | Sequence[_int],
    stride: _int | Sequence[_int] | None = None,
    padding: _int | Sequence[_int] = 0,
    output_size: Sequence[_int] | None = None,
) -> Tensor: ...
def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: _int | Sequence[_int],
    stride: _int | Sequence[_int] | None = None,
    padding: _int | Sequence[_int] = 0,
    output_size: Sequence[_int] | None = None,
) -> Tensor: ...
def max_unpool3d(
    input: Tensor,
    indices: Tensor,
    kernel_size: _int | Sequence[_int],
    stride: _int | Sequence[_int] | None = None,
    padding: _int | Sequence[_int] = 0,
    output_size: Sequence[_int] | None = None,
) -> Tensor: ...
def maximum(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def mean(
    input: Tensor,
    dim: _int | Sequence[_int] | None = None,
    keepdim: _bool = False,
    *,
    dtype: _dtype | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
@overload
def median(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
@overload
def median(
    input: Tensor, dim: _int, keepdim: _bool = False, *, out: Sequence[Tensor] | None = None
) -> Median: ...
def meshgrid(
    *tensors: Tensor | Sequence[Tensor], indexing: str | None = None
) -> tuple[Tensor, ...]: ...
@overload
def min(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
@overload
def min(
    input: Tensor, dim: _int, keepdim: _bool = False, *, out: Sequence[Tensor] | None = None
) -> Min: ...
@overload
def min(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def minimum(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def mish(input: Tensor, inplace: _bool = False) -> Tensor: ...
def mm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def mode(input: Tensor, dim: _int = -1, keepdim: _bool = False) -> Mode: ...
def modified_bessel_i0(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def modified_bessel_i1(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def modified_bessel_k0(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def modified_bessel_k1(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def moveaxis(
    input: Tensor, source: _int | Sequence[_int], destination: _int | Sequence[_int]
) -> Tensor: ...
def movedim(
    input: Tensor, source: _int | Sequence[_int], destination: _int | Sequence[_int]
) -> Tensor: ...
def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: _bool | None = None,
    reduce: _bool | None = None,
    reduction: str = "mean",
    weight: Tensor | None = None,
) -> Tensor: ...
def msort(input: Tensor) -> Tensor: ...
def mul(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: _int,
    num_heads: _int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: _bool,
    dropout_p: _float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: _bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: _bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: _bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: _bool = True,
    is_causal: _bool = False,
) -> tuple[Tensor, Tensor | None]: ...
def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: _int = 1,
    margin: _float = 1.0,
    weight: Tensor | None = None,
    size_average: _bool | None = None,
    reduce: _bool | None = None,
    reduction: str = "mean",
) -> Tensor: ...
def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: _bool | None = None,
    reduce: _bool | None = None,
    reduction: str = "mean",
) -> Tensor: ...
def multilabel_soft_margin_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: _bool | None = None,
    reduce: _bool | None = None,
    reduction: str = "mean",
) -> Tensor: ...
def multinomial(
    input: Tensor,
    num_samples: _int,
    replacement: _bool = False,
    *,
    generator: _Generator | None = None,
) -> Tensor: ...
def multiply(input: _Operand, other: _Operand) -> Tensor: ...
def mv(input: Tensor, vec: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def mvlgamma(input: Tensor, p: _int) -> Tensor: ...
def nan_to_num(
    input: Tensor,
    nan: _float | None = None,
    posinf: _float | None = None,
    neginf: _float | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def nanmean(
    input: Tensor,
    dim: _int | Sequence[_int] | None = None,
    keepdim: _bool = False,
    *,
    dtype: _dtype | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
@overload
def nanmedian(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
@overload
def nanmedian(
    input: Tensor, dim: _int, keepdim: _bool = False, *, out: Sequence[Tensor] | None = None
) -> NanMedian: ...
def nanquantile(
    input: Tensor,
    q: Tensor | _float,
    dim: _int | None = None,
    keepdim: _bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor: ...
def nansum(
    input: Tensor,
    dim: _int | Sequence[_int] | None = None,
    keepdim: _bool = False,
    *,
    dtype: _dtype | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
def narrow(input: Tensor, dim: _int, start: _int | Tensor, length: _int) -> Tensor: ...
def narrow_copy(input: Tensor, dim: _int, start: _int | Tensor, length: _int) -> Tensor: ...
def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: _bool,
    momentum: _float,
    eps: _float,
) -> tuple[Tensor, Tensor, Tensor]: ...
def native_channel_shuffle(input: Tensor, groups: _int) -> Tensor: ...
def native_group_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    N: _int,
    C: _int,
    HxW: _int,
    group: _int,
    eps: _float,
) -> tuple[Tensor, Tensor, Tensor]: ...
def native_layer_norm(
    input: Tensor,
    normalized_shape: Sequence[_int],
    weight: Tensor | None,
    bias: Tensor | None,
    eps: _float,
) -> tuple[Tensor, Tensor, Tensor]: ...
def ndtr(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def ndtri(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def ne(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def neg(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def negative(input: Tensor) -> Tensor: ...
def nextafter(input: Tensor, other: Tensor) -> Tensor: ...
def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: _bool | None = None,
    ignore_index: _int = -100,
    reduce: _bool | None = None,
    reduction: str = "mean",
) -> Tensor: ...
@overload
def nonzero(
    input: Tensor, *, as_tuple: Literal[False] = False, out: Tensor | None = None
) -> Tensor: ...
@overload
def nonzero(input: Tensor, *, as_tuple: Literal[True]) -> tuple[Tensor, ...]: ...
def nonzero_static(input: Tensor, *, size: _int, fill_value: _int = -1) -> Tensor: ...
def norm(
    input: Tensor,
    p: _float | str | Tensor = "fro",
    dim: _int | Sequence[_int] | None = None,
    keepdim: _bool = False,
    dtype: _dtype | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def normal(
    mean: Tensor | _float,
    std: Tensor | _float = 1.0,
    size: Sequence[_int] | None = None,
    *,
    generator: _Generator | None = None,
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def normalize(
    input: Tensor,
    p: _float = 2.0,
    dim: _int | Sequence[_int] | None = 1,
    eps: _float = 1e-12,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def not_equal(input: _Operand, other: _Operand) -> Tensor: ...
def nuclear_norm(
    input: Tensor, dim: _bool | Sequence[_int] = (-2, -1), keepdim: _bool = False
) -> Tensor: ...
def one_hot(tensor: Tensor, num_classes: _int = -1) -> Tensor: ...
def ones(
    *size: _int | Sequence[_int],
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    layout: _layout | None = None,
    pin_memory: _bool = False,
    out: Tensor | None = None,
) -> Tensor: ...
def ones_like(
    input: Tensor,
    *,
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def orgqr(input: Tensor, input2: Tensor) -> Tensor: ...
def ormqr(
    input: Tensor, tau: Tensor, other: Tensor, left: _bool = True, transpose: _bool = False
) -> Tensor: ...
def outer(input: Tensor, vec2: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def pad(
    input: Tensor, pad: Sequence[_int], mode: str = "constant", value: _float | None = None
) -> Tensor: ...
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: _float = 2.0, eps: _float = 1e-06, keepdim: _bool = False
) -> Tensor: ...
def pca_lowrank(A: Tensor, q: _int | None = None, center: _bool = True, niter: _int = 2) -> SVD: ...
def pdist(input: Tensor, p: _float = 2.0) -> Tensor: ...
def permute(input: Tensor, *dims: _int | Sequence[_int]) -> Tensor: ...
def permute_copy(input: Tensor, *dims: _int | Sequence[_int]) -> Tensor: ...
def pinverse(input: Tensor, rcond: _float = 1e-15) -> Tensor: ...
def pixel_shuffle(input: Tensor, upscale_factor: _int) -> Tensor: ...
def pixel_unshuffle(input: Tensor, downscale_factor: _int) -> Tensor: ...
def poisson(input: Tensor, generator: _Generator | None = None) -> Tensor: ...
def poisson_nll_loss(
    input: Tensor,
    target: Tensor,
    log_input: _bool = True,
    full: _bool = False,
    size_average: _bool | None = None,
    eps: _float = 1e-08,
    reduce: _bool | None = None,
    reduction: str = "mean",
) -> Tensor: ...
def polar(abs: Tensor, angle: Tensor) -> Tensor: ...
def polygamma(n: _Operand, input: Tensor) -> Tensor: ...
def positive(input: Tensor) -> Tensor: ...
def pow(input: _Operand, exponent: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def prelu(input: Tensor, weight: Tensor) -> Tensor: ...
def prod(
    input: Tensor,
    dim: _int | None = None,
    keepdim: _bool = False,
    *,
    dtype: _dtype | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: _bool = False) -> Tensor: ...
def qr(input: Tensor, some: _bool = True) -> QR: ...
def quantile(
    input: Tensor,
    q: Tensor | _float,
    dim: _int | None = None,
    keepdim: _bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor: ...
def rad2deg(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def rand(
    *size: _int | Sequence[_int],
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    generator: _Generator | None = None,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def rand_like(
    input: Tensor,
    *,
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    generator: _Generator | None = None,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
@overload
def randint(
    high: _int,
    size: Sequence[_int],
    *,
    generator: _Generator | None = None,
    dtype: _dtype | None = None,
    layout: _layout | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    pin_memory: _bool = False,
    out: Tensor | None = None,
) -> Tensor: ...
@overload
def randint(
    low: _int,
    high: _int,
    size: Sequence[_int],
    *,
    generator: _Generator | None = None,
    dtype: _dtype | None = None,
    layout: _layout | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    pin_memory: _bool = False,
    out: Tensor | None = None,
) -> Tensor: ...
def randint_like(
    input: Tensor,
    low: Tensor | _int = 0,
    high: Tensor | _int | None = None,
    *,
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    generator: _Generator | None = None,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def randn(
    *size: _int | Sequence[_int],
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    generator: _Generator | None = None,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def randn_like(
    input: Tensor,
    *,
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    generator: _Generator | None = None,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def randperm(
    n: _int,
    *,
    generator: _Generator | None = None,
    dtype: _dtype = ...,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def ravel(input: Tensor) -> Tensor: ...
def real(input: Tensor) -> Tensor: ...
def reciprocal(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def relu(input: Tensor, inplace: _bool = False) -> Tensor: ...
def relu6(input: Tensor, inplace: _bool = False) -> Tensor: ...
def relu_(input: Tensor) -> Tensor: ...
def remainder(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def renorm(input: Tensor, p: _float, dim: _int, maxnorm: _float) -> Tensor: ...
def repeat(
    input: Tensor, *times: _int | Sequence[_int], repeats: _int | Sequence[_int] | None = None
) -> Tensor: ...
def repeat_interleave(
    input: Tensor | None = None,
    repeats: Tensor | _int | None = None,
    dim: _int | None = None,
    *,
    output_size: _int | None = None,
) -> Tensor: ...
def reshape(input: Tensor, *shape: _int | Sequence[_int]) -> Tensor: ...
def reshape_as(input: Tensor, other: Tensor) -> Tensor: ...
def resolve_conj(input: Tensor) -> Tensor: ...
def resolve_neg(input: Tensor) -> Tensor: ...
def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[_int] | _int,
    weight: Tensor | None = None,
    eps: _float | None = None,
) -> Tensor: ...
def rnn_relu_cell(
    input: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor: ...
def rnn_tanh_cell(
    input: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor: ...
def roll(
    input: Tensor, shifts: _int | Sequence[_int], dims: _int | Sequence[_int] | None = None
) -> Tensor: ...
def rot90(input: Tensor, k: _int = 1, dims: Sequence[_int] = (0, 1)) -> Tensor: ...
def round(input: Tensor, *, decimals: _int = 0) -> Tensor: ...
def row_stack(tensors: Sequence[Tensor]) -> Tensor: ...
def rrelu(
    input: Tensor,
    lower: _float = 0.125,
    upper: _float = ...,
    training: _bool = False,
    inplace: _bool = False,
) -> Tensor: ...
def rrelu_(
    input: Tensor, lower: _float = 0.125, upper: _float = ..., training: _bool = False
) -> Tensor: ...
def rsqrt(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def rsub(input: Tensor, other: _Operand, *, alpha: _float = 1) -> Tensor: ...
def scalar_tensor(
    s: _float,
    *,
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: _float = 0.0,
    is_causal: _bool = False,
    scale: _float | None = None,
    enable_gqa: _bool = False,
) -> Tensor: ...
def scaled_modified_bessel_k0(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def scaled_modified_bessel_k1(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def scatter(
    input: Tensor,
    dim: _int,
    index: Tensor,
    src: _Operand | None = None,
    *,
    value: _Operand | None = None,
    reduce: str | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
def scatter_add(
    input: Tensor, dim: _int, index: Tensor, src: Tensor, *, out: Tensor | None = None
) -> Tensor: ...
def scatter_reduce(
    input: Tensor,
    dim: _int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    include_self: _bool = True,
    out: Tensor | None = None,
) -> Tensor: ...
def searchsorted(
    sorted_sequence: Tensor,
    input: Tensor,
    *,
    out_int32: _bool = False,
    right: _bool = False,
    side: str | None = None,
    sorter: Tensor | None = None,
) -> Tensor: ...
def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: _int = 0,
    unsafe: _bool = False,
    initial: _float | None = None,
) -> Tensor: ...
def select(input: Tensor, dim: _int, index: _int) -> Tensor: ...
def select_scatter(input: Tensor, src: Tensor, dim: _int, index: _int) -> Tensor: ...
def selu(input: Tensor, inplace: _bool = False) -> Tensor: ...
def selu_(input: Tensor) -> Tensor: ...
def sgn(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def shifted_chebyshev_polynomial_t(
    input: _Operand, other: _Operand, *, out: Tensor | None = None
) -> Tensor: ...
def shifted_chebyshev_polynomial_u(
    input: _Operand, other: _Operand, *, out: Tensor | None = None
) -> Tensor: ...
def shifted_chebyshev_polynomial_v(
    input: _Operand, other: _Operand, *, out: Tensor | None = None
) -> Tensor: ...
def shifted_chebyshev_polynomial_w(
    input: _Operand, other: _Operand, *, out: Tensor | None = None
) -> Tensor: ...
def sigmoid(input: Tensor) -> Tensor: ...
def sign(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def signbit(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def silu(input: Tensor, inplace: _bool = False) -> Tensor: ...
def sin(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def sinc(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def sinh(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def slice_scatter(
    input: Tensor,
    src: Tensor,
    dim: _int = 0,
    start: _int | None = None,
    end: _int | None = None,
    step: _int = 1,
) -> Tensor: ...
def slogdet(A: Tensor, *, out: Sequence[Tensor] | None = None) -> SLogDet: ...
def smooth_l1_loss(
    input: Tensor,
    target: Tensor,
    size_average: _bool | None = None,
    reduce: _bool | None = None,
    reduction: str = "mean",
    beta: _float = 1.0,
) -> Tensor: ...
def soft_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: _bool | None = None,
    reduce: _bool | None = None,
    reduction: str = "mean",
) -> Tensor: ...
def softmax(
    input: Tensor, dim: _int | None = None, _stacklevel: _int = 3, dtype: _dtype | None = None
) -> Tensor: ...
def softmin(
    input: Tensor, dim: _int | None = None, _stacklevel: _int = 3, dtype: _dtype | None = None
) -> Tensor: ...
def softplus(
    input: Tensor, beta: _float = 1, threshold: _float = 20, *, out: Tensor | None = None
) -> Tensor: ...
def softshrink(input: Tensor, lambd: _float = 0.5, *, out: Tensor | None = None) -> Tensor: ...
def softsign(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def sort(
    input: Tensor,
    dim: _int = -1,
    descending: _bool = False,
    stable: _bool | None = False,
    *,
    out: Sequence[Tensor] | None = None,
) -> Sorted: ...
def spherical_bessel_j0(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def split(
    tensor: Tensor, split_size_or_sections: _int | Sequence[_int], dim: _int = 0
) -> tuple[Tensor, ...]: ...
def split_with_sizes(
    input: Tensor, split_sizes: Sequence[_int], dim: _int = 0
) -> tuple[Tensor, ...]: ...
def split_with_sizes_copy(
    input: Tensor, split_sizes: Sequence[_int], dim: _int = 0
) -> tuple[Tensor, ...]: ...
def sqrt(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def square(input: Tensor) -> Tensor: ...
def squeeze(input: Tensor, dim: _int | Sequence[_int] | None = None) -> Tensor: ...
def squeeze_copy(input: Tensor, dim: _int | Sequence[_int] | None = None) -> Tensor: ...
def stack(tensors: Sequence[Tensor], dim: _int = 0, *, out: Tensor | None = None) -> Tensor: ...
def std(
    input: Tensor,
    dim: _int | Sequence[_int] | _bool | None = None,
    unbiased: _bool | None = None,
    keepdim: _bool = False,
    *,
    correction: _float | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
def std_mean(
    input: Tensor,
    dim: _int | Sequence[_int] | _bool | None = None,
    unbiased: _bool | None = None,
    keepdim: _bool = False,
    *,
    correction: _float | None = None,
) -> tuple[Tensor, Tensor]: ...
def stft(
    input: Tensor,
    n_fft: _int,
    hop_length: _int | None = None,
    win_length: _int | None = None,
    window: Tensor | None = None,
    center: _bool = True,
    pad_mode: str = "reflect",
    normalized: _bool = False,
    onesided: _bool | None = None,
    return_complex: _bool | None = None,
    align_to_window: _bool | None = None,
) -> Tensor: ...
def sub(
    input: Tensor, other: _Operand, *, alpha: _complex = 1, out: Tensor | None = None
) -> Tensor: ...
def subtract(input: Tensor, other: _Operand, *, alpha: _complex = 1) -> Tensor: ...
def sum(
    input: Tensor,
    dim: _int | Sequence[_int] | None = None,
    keepdim: _bool = False,
    *,
    dtype: _dtype | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
def sum_to_size(input: Tensor, *size: _int | Sequence[_int]) -> Tensor: ...
def svd(input: Tensor, some: _bool = True, compute_uv: _bool = True) -> SVD: ...
def svd_lowrank(
    A: Tensor, q: _int | None = 6, niter: _int | None = 2, M: Tensor | None = None
) -> SVD: ...
def swapaxes(input: Tensor, axis0: _int, axis1: _int) -> Tensor: ...
def swapdims(input: Tensor, dim0: _int, dim1: _int) -> Tensor: ...
def t(input: Tensor) -> Tensor: ...
def t_copy(input: Tensor) -> Tensor: ...
def take(input: Tensor, index: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def take_along_dim(
    input: Tensor, indices: Tensor, dim: _int | None = None, *, out: Tensor | None = None
) -> Tensor: ...
def tan(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def tanh(input: Tensor) -> Tensor: ...
def tanhshrink(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def tensor_split(
    input: Tensor, indices_or_sections: _int | Sequence[_int] | Tensor, dim: _int = 0
) -> tuple[Tensor, ...]: ...
def tensordot(
    a: Tensor,
    b: Tensor,
    dims: _int | Sequence[_int] | Sequence[Sequence[_int]] | Tensor = 2,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def threshold(
    input: Tensor,
    threshold: _float,
    value: _float,
    inplace: _bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def threshold_(input: Tensor, threshold: _float, value: _float) -> Tensor: ...
def tile(
    input: Tensor, *times: _int | Sequence[_int], dims: _int | Sequence[_int] | None = None
) -> Tensor: ...
def topk(
    input: Tensor,
    k: _int,
    dim: _int = -1,
    largest: _bool = True,
    sorted: _bool = True,
    *,
    out: Sequence[Tensor] | None = None,
) -> TopK: ...
def trace(input: Tensor) -> Tensor: ...
def transpose(input: Tensor, dim0: _int, dim1: _int) -> Tensor: ...
def transpose_copy(input: Tensor, dim0: _int, dim1: _int) -> Tensor: ...
def trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: _float | None = None, dim: _int = -1
) -> Tensor: ...
def trapz(
    y: Tensor, x: Tensor | None = None, *, dx: _float | None = None, dim: _int = -1
) -> Tensor: ...
def triangular_solve(
    input: Tensor,
    A: Tensor,
    upper: _bool = True,
    transpose: _bool = False,
    unitriangular: _bool = False,
) -> TriangularSolve: ...
def tril(input: Tensor, diagonal: _int = 0, *, out: Tensor | None = None) -> Tensor: ...
def tril_indices(
    row: _int,
    col: _int,
    offset: _int = 0,
    *,
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    layout: _layout | None = None,
) -> Tensor: ...
def triplet_margin_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    margin: _float = 1.0,
    p: _float = 2,
    eps: _float = 1e-06,
    swap: _bool = False,
    size_average: _bool | None = None,
    reduce: _bool | None = None,
    reduction: str = "mean",
) -> Tensor: ...
def triplet_margin_with_distance_loss(
    anchor: Tensor,
    positive: Tensor,
    negative: Tensor,
    *,
    distance_function: Callable[[Tensor, Tensor], Tensor] | None = None,
    margin: _float = 1.0,
    swap: _bool = False,
    reduction: str = "mean",
) -> Tensor: ...
def triu(input: Tensor, diagonal: _int = 0, *, out: Tensor | None = None) -> Tensor: ...
def triu_indices(
    row: _int,
    col: _int,
    offset: _int = 0,
    *,
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    layout: _layout | None = None,
) -> Tensor: ...
def true_divide(input: Tensor, other: _Operand, *, rounding_mode: str | None = None) -> Tensor: ...
def trunc(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def unbind(input: Tensor, dim: _int = 0) -> tuple[Tensor, ...]: ...
def unbind_copy(input: Tensor, dim: _int = 0) -> tuple[Tensor, ...]: ...
def unflatten(input: Tensor, dim: _int, sizes: Sequence[_int]) -> Tensor: ...
def unfold(
    input: Tensor,
    kernel_size: _int | Sequence[_int],
    dilation: _int | Sequence[_int] = 1,
    padding: _int | Sequence[_int] = 0,
    stride: _int | Sequence[_int] = 1,
) -> Tensor: ...
def unfold_copy(input: Tensor, dimension: _int, size: _int, step: _int) -> Tensor: ...
@overload
def unique(
    input: Tensor,
    sorted: _bool = True,
    return_inverse: Literal[False] = False,
    return_counts: Literal[False] = False,
    dim: _int | None = None,
) -> Tensor: ...
@overload
def unique(
    input: Tensor,
    sorted: _bool = True,
    return_inverse: _bool = False,
    return_counts: _bool = False,
    dim: _int | None = None,
) -> Any: ...
@overload
def unique_consecutive(
    input: Tensor,
    return_inverse: Literal[False] = False,
    return_counts: Literal[False] = False,
    dim: _int | None = None,
) -> Tensor: ...
@overload
def unique_consecutive(
    input: Tensor,
    return_inverse: _bool = False,
    return_counts: _bool = False,
    dim: _int | None = None,
) -> Any: ...
def unravel_index(indices: Tensor, shape: _int | Sequence[_int]) -> tuple[Tensor, ...]: ...
def unsafe_chunk(input: Tensor, chunks: _int, dim: _int = 0) -> tuple[Tensor, ...]: ...
def unsafe_split(input: Tensor, split_size: _int, dim: _int = 0) -> tuple[Tensor, ...]: ...
def unsqueeze(input: Tensor, dim: _int) -> Tensor: ...
def unsqueeze_copy(input: Tensor, dim: _int) -> Tensor: ...
def upsample(
    input: Tensor,
    size: _int | Sequence[_int] | None = None,
    scale_factor: _float | Sequence[_float] | None = None,
    mode: str = "nearest",
    align_corners: _bool | None = None,
) -> Tensor: ...
def upsample_bilinear(
    input: Tensor,
    size: _int | Sequence[_int] | None = None,
    scale_factor: _float | Sequence[_float] | None = None,
) -> Tensor: ...
def upsample_nearest(
    input: Tensor,
    size: _int | Sequence[_int] | None = None,
    scale_factor: _float | Sequence[_float] | None = None,
) -> Tensor: ...
def vander(x: Tensor, N: _int | None = None, increasing: _bool = False) -> Tensor: ...
def var(
    input: Tensor,
    dim: _int | Sequence[_int] | _bool | None = None,
    unbiased: _bool | None = None,
    keepdim: _bool = False,
    *,
    correction: _float | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
def var_mean(
    input: Tensor,
    dim: _int | Sequence[_int] | _bool | None = None,
    unbiased: _bool | None = None,
    keepdim: _bool = False,
    *,
    correction: _float | None = None,
) -> tuple[Tensor, Tensor]: ...
def vdot(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def view(
    input: Tensor, *size: _int | Sequence[_int] | _dtype, dtype: _dtype | None = None
) -> Tensor: ...
def view_as(input: Tensor, other: Tensor) -> Tensor: ...
def view_as_complex(input: Tensor) -> Tensor: ...
def view_as_real(input: Tensor) -> Tensor: ...
def view_copy(
    input: Tensor, *size: _int | Sequence[_int] | _dtype, dtype: _dtype | None = None
) -> Tensor: ...
def vsplit(
    input: Tensor, indices_or_sections: _int | Sequence[_int] | Tensor
) -> tuple[Tensor, ...]: ...
def vstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor: ...
@overload
def where(condition: Tensor) -> tuple[Tensor, ...]: ...
@overload
def where(
    condition: Tensor, input: _Operand, other: _Operand, *, out: Tensor | None = None
) -> Tensor: ...
def xlog1py(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def xlogy(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def zeros(
    *size: _int | Sequence[_int],
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    layout: _layout | None = None,
    pin_memory: _bool = False,
    out: Tensor | None = None,
) -> Tensor: ...
def zeros_like(
    input: Tensor,
    *,
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    layout: _layout | None = None,
    pin_memory: _bool = False,
) -> Tensor: ...
def zeta(input: Tensor, other: _Operand) -> Tensor: ...
