"""Which of PyTorch's names come in which forms: facts read off PyTorch 2.13's own signatures.

A name may stand here before its op exists: what is not declared is passed over.
"""

from __future__ import annotations


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Tensor.<name>_ writes into the tensor.
IN_PLACE = _words(
    """
    abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr arccos arccosh arcsin arcsinh arctan
    arctan2 arctanh as_strided asin asinh atan atan2 atanh baddbmm bernoulli bitwise_and bitwise_left_shift
    bitwise_not bitwise_or bitwise_right_shift bitwise_xor cauchy ceil clamp clamp_max clamp_min clip
    conj_physical copy copysign cos cosh cumprod cumsum deg2rad detach digamma div divide eq erf erfc erfinv exp
    exp2 expm1 exponential fill fill_diagonal fix float_power floor floor_divide fmod frac gcd ge geometric
    greater greater_equal gt heaviside hypot i0 igamma igammac index_add index_copy index_fill index_put
    index_reduce lcm ldexp le lerp less less_equal lgamma log log10 log1p log2 log_normal logical_and
    logical_not logical_or logical_xor logit lt masked_fill masked_scatter mul multiply mvlgamma nan_to_num ne
    neg negative nextafter normal not_equal polygamma pow put rad2deg random reciprocal relu remainder renorm
    requires_grad resize resize_as round rsqrt scatter scatter_add scatter_reduce set sgn sigmoid sign sin sinc
    sinh sqrt square squeeze sub subtract swapaxes swapdims t tan tanh transpose tril triu true_divide trunc
    uniform unsqueeze xlogy zero
    """
)

# <name>_ is also a function of the package.
TOP_IN_PLACE = _words(
    """
    abs acos acosh addmv alpha_dropout arccos arccosh arcsin arcsinh arctan arctanh as_strided asin asinh atan
    atanh ceil celu clamp clamp_max clamp_min clip conj_physical cos cosh deg2rad detach dropout
    embedding_renorm erf erfc exp exp2 expm1 feature_alpha_dropout feature_dropout fill fix floor frac gcd i0
    index_put lcm ldexp log log10 log1p log2 logit nan_to_num neg negative rad2deg reciprocal relu resize_as
    round rrelu rsqrt selu sigmoid sin sinc sinh sqrt square tan tanh threshold trunc xlogy zero
    """
)

# <name>(..., out=) stores its result, by module.
# The package itself.
OUT_TOP = _words(
    """
    abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr alias_copy all amax amin aminmax angle
    any arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort as_strided_copy asin
    asinh atan atan2 atanh baddbmm batch_norm_elemt bernoulli bitwise_and bitwise_left_shift bitwise_not
    bitwise_or bitwise_right_shift bitwise_xor bmm bucketize cat ceil cholesky cholesky_inverse cholesky_solve
    clamp clamp_max clamp_min clip column_stack complex concat concatenate conj_physical copysign cos cosh cross
    cummax cummin cumprod cumsum deg2rad detach_copy diag diagonal_copy diff digamma div divide dot dstack empty
    eq erf erfc erfinv exp exp2 expand_copy expm1 eye fix float_power floor floor_divide fmax fmin fmod frac
    frexp frobenius_norm full gather gcd ge geqrf ger greater greater_equal gt hardshrink heaviside histc
    histogram hstack hypot i0 igamma igammac index_add index_copy index_reduce index_select inner inverse isin
    isneginf isposinf kron kthvalue lcm ldexp le lerp less less_equal lgamma linspace log log10 log1p log2
    log_softmax logaddexp logaddexp2 logcumsumexp logical_and logical_not logical_or logical_xor logit logspace
    logsumexp lt lu_solve lu_unpack masked_select matmul matrix_power max maximum mean median min minimum mm
    mode msort mul multinomial multiply mv mvlgamma nan_to_num nanmean nanmedian nanquantile nansum narrow_copy
    native_batch_norm ne neg negative nextafter nonzero nonzero_static norm normal not_equal nuclear_norm ones
    orgqr ormqr outer permute_copy polar polygamma pow prod qr quantile rad2deg rand randint randn randperm
    range reciprocal remainder renorm round row_stack rsqrt scatter scatter_add scatter_reduce searchsorted
    select_copy sgn sigmoid sign signbit sin sinc sinh slice_copy slice_scatter slogdet softmax sort split_copy
    split_with_sizes_copy sqrt square squeeze_copy stack std sub subtract sum svd t_copy take take_along_dim tan
    tanh tensordot threshold topk transpose_copy triangular_solve tril triu true_divide trunc unbind_copy unfold_copy
    unsqueeze_copy var vdot view_as_complex_copy view_as_real_copy view_copy vstack where xlogy zeros
    """
)

# linalg.
OUT_LINALG = _words(
    """
    cholesky cholesky_ex cond cross det eig eigh eigvals eigvalsh householder_product inv inv_ex ldl_factor
    ldl_factor_ex ldl_solve lstsq lu lu_factor lu_factor_ex lu_solve matmul matrix_exp matrix_norm matrix_power
    matrix_rank multi_dot norm pinv qr slogdet solve solve_ex solve_triangular svd svdvals tensorinv tensorsolve
    vecdot vector_norm
    """
)

# special.
OUT_SPECIAL = _words(
    """
    airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 chebyshev_polynomial_t chebyshev_polynomial_u
    chebyshev_polynomial_v chebyshev_polynomial_w digamma entr erf erfc erfcx erfinv exp2 expit expm1 gammainc
    gammaincc gammaln hermite_polynomial_h hermite_polynomial_he i0 i0e i1 i1e laguerre_polynomial_l
    legendre_polynomial_p log1p log_ndtr logit logsumexp modified_bessel_i0 modified_bessel_i1
    modified_bessel_k0 modified_bessel_k1 multigammaln ndtr ndtri polygamma psi round scaled_modified_bessel_k0
    scaled_modified_bessel_k1 shifted_chebyshev_polynomial_t shifted_chebyshev_polynomial_u
    shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w sinc spherical_bessel_j0 xlog1py xlogy zeta
    """
)

# fft.
OUT_FFT = _words(
    """
    fft fft2 fftfreq fftn hfft hfft2 hfftn ifft ifft2 ifftn ihfft ihfft2 ihfftn irfft irfft2 irfftn rfft rfft2
    rfftfreq rfftn
    """
)

# nn.functional.
OUT_FUNCTIONAL = _words(
    """
    avg_pool2d avg_pool3d gelu hardshrink hardsigmoid hardtanh leaky_relu linear logsigmoid softplus softshrink
    """
)

# Functions whose `out` must have exactly the result's type; into that of all others a result is cast. `all` and `any` also
# take uint8, and what makes new tensors goes by the type of `out`.
OUT_EXACT = _words(
    """
    addbmm addmm addmv alias_copy all amax amin aminmax any argmax argmin as_strided_copy avg_pool2d avg_pool3d baddbmm
    bitwise_not bmm bucketize ceil cholesky cholesky_ex complex conj_physical cross cummax
    cummin det diag diagonal_copy dot eigh eigvalsh expand_copy float_power floor frac frexp gather gelu hardshrink heaviside histc
    histogram ifft ihfft index_add index_copy index_reduce index_select inner inv inv_ex isin isneginf isposinf kthvalue
    ldl_factor ldl_factor_ex ldl_solve linear log_softmax logcumsumexp logsigmoid lu lu_factor lu_factor_ex lu_solve lu_unpack
    masked_select matmul matrix_norm mm mode msort multi_dot multinomial mv nan_to_num nanquantile narrow_copy
    native_batch_norm neg negative nonzero nonzero_static norm ormqr permute_copy polar qr quantile renorm round scatter scatter_add
    scatter_reduce searchsorted sgn sign signbit slice_scatter slogdet softmax softplus softshrink solve solve_ex
    solve_triangular sort split_with_sizes_copy squeeze_copy svd svdvals t_copy take take_along_dim tensordot topk
    transpose_copy triangular_solve tril triu trunc unbind_copy unfold_copy unsqueeze_copy vdot vecdot vector_norm view_copy
    where
    """
)

# Questions about tensors and types, and copies of data, which are no ops.
QUESTIONS = _words(
    """
    asarray broadcast_shapes can_cast detach detach_copy frombuffer from_file get_device is_complex is_conj
    is_floating_point is_inference is_neg is_nonzero is_same_size is_signed numel promote_types result_type
    """
)
