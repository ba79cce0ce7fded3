"""Which file of `ops/` declares each op, and which namespaces have it. Written by `make stubs`.

A name loads its file when it is first used (Note [Lazy names]), so these are known without it.
"""

from __future__ import annotations


def _by_name(places: dict[str, str]) -> dict[str, str]:
    return {name: file for file, names in places.items() for name in names.split()}


# All ops.
MODULES = _by_name(
    {
        "create.creation": "arange empty eye full ones ones_like zeros zeros_like",
        "create.kaiser_window": "kaiser_window",
        "create.like": (
            "bartlett_window blackman_window empty_like empty_permuted empty_strided fill "
            "full_like hamming_window hann_window linspace logspace rand_like randint_like "
            "randn_like scalar_tensor vander"
        ),
        "fft.stft": "istft stft",
        "fft.transforms": (
            "fft_fft fft_fft2 fft_fftfreq fft_fftn fft_fftshift fft_hfft fft_hfft2 fft_hfftn "
            "fft_ifft fft_ifft2 fft_ifftn fft_ifftshift fft_ihfft fft_ihfft2 fft_ihfftn fft_irfft "
            "fft_irfft2 fft_irfftn fft_rfft fft_rfft2 fft_rfftfreq fft_rfftn"
        ),
        "index.combinations": "combinations tril_indices triu_indices",
        "index.flip": "flip fliplr flipud roll rot90",
        "index.gather": "gather index_select scatter_add",
        "index.repeat_interleave": "repeat_interleave",
        "index.select": (
            "allclose argwhere equal index_add index_copy index_fill index_reduce isin "
            "masked_scatter masked_select nonzero nonzero_static put scatter scatter_reduce take "
            "take_along_dim"
        ),
        "index.strided_views": "as_strided as_strided_scatter unfold",
        "index.subscript": "index_put",
        "index.unravel_index": "unravel_index",
        "linalg.covariance": "corrcoef cov cumulative_trapezoid diff trapezoid trapz",
        "linalg.decompositions": (
            "cholesky cholesky_inverse cholesky_solve geqrf linalg_cholesky linalg_cholesky_ex "
            "linalg_householder_product linalg_qr linalg_svd linalg_svdvals orgqr ormqr qr svd"
        ),
        "linalg.distances": "cdist dist pdist renorm",
        "linalg.eigenvalues": "linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh",
        "linalg.einsum": "einsum",
        "linalg.low_rank": "lobpcg pca_lowrank svd_lowrank",
        "linalg.matmul": "linear matmul",
        "linalg.matrix_functions": (
            "frobenius_norm linalg_cond linalg_ldl_factor linalg_ldl_factor_ex linalg_ldl_solve "
            "linalg_lstsq linalg_matrix_norm linalg_matrix_rank linalg_norm linalg_pinv "
            "linalg_tensorinv linalg_tensorsolve matrix_exp matrix_power norm nuclear_norm "
            "pinverse"
        ),
        "linalg.products": (
            "addbmm addmm addmv addr baddbmm bilinear bmm chain_matmul cross dot ger inner kron mm "
            "mv outer tensordot vdot"
        ),
        "linalg.solve": (
            "det inverse linalg_inv linalg_inv_ex linalg_lu linalg_lu_factor linalg_lu_factor_ex "
            "linalg_lu_solve linalg_solve linalg_solve_ex linalg_solve_triangular logdet lu "
            "lu_solve lu_unpack slogdet triangular_solve"
        ),
        "nn.activations": (
            "celu cosine_similarity elu glu gumbel_softmax hardshrink hardsigmoid hardswish "
            "hardtanh logsigmoid mish normalize pairwise_distance prelu relu6 rrelu selu softmin "
            "softplus softshrink tanhshrink threshold"
        ),
        "nn.adaptive_pooling": (
            "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d "
            "adaptive_max_pool2d adaptive_max_pool3d"
        ),
        "nn.attention": "scaled_dot_product_attention",
        "nn.convolution": "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
        "nn.cross_entropy": "cross_entropy linear_cross_entropy nll_loss",
        "nn.ctc": "ctc_loss",
        "nn.dropout": (
            "alpha_dropout dropout1d dropout2d dropout3d feature_alpha_dropout feature_dropout"
        ),
        "nn.embedding": "embedding embedding_bag",
        "nn.fractional_pooling": "fractional_max_pool2d fractional_max_pool3d",
        "nn.grid_sample": "affine_grid grid_sample grid_sampler_2d grid_sampler_3d",
        "nn.group_norm": (
            "group_norm instance_norm local_response_norm native_batch_norm native_group_norm "
            "native_layer_norm rms_norm"
        ),
        "nn.interpolate": "interpolate upsample upsample_bilinear upsample_nearest",
        "nn.losses": (
            "binary_cross_entropy binary_cross_entropy_with_logits cosine_embedding_loss "
            "gaussian_nll_loss hinge_embedding_loss huber_loss kl_div l1_loss margin_ranking_loss "
            "mse_loss multi_margin_loss multilabel_margin_loss multilabel_soft_margin_loss "
            "poisson_nll_loss smooth_l1_loss soft_margin_loss triplet_margin_loss "
            "triplet_margin_with_distance_loss"
        ),
        "nn.multi_head": "multi_head_attention_forward",
        "nn.norms": "batch_norm layer_norm",
        "nn.padding": "constant_pad_nd pad",
        "nn.pixel_shuffle": "channel_shuffle fold im2col pixel_shuffle pixel_unshuffle",
        "nn.pooling": (
            "avg_pool1d avg_pool2d avg_pool3d lp_pool1d lp_pool2d lp_pool3d max_pool1d max_pool2d "
            "max_pool3d"
        ),
        "nn.recurrent": "gru_cell lstm_cell rnn_relu_cell rnn_tanh_cell",
        "nn.unpooling": "max_unpool1d max_unpool2d max_unpool3d",
        "pointwise.arithmetic": (
            "abs absolute bitwise_and bitwise_not bitwise_or bitwise_xor ceil clone cos eq erf exp "
            "fix floor ge gelu_exact gelu_tanh greater greater_equal gt isfinite isinf isnan le "
            "less less_equal log log2 logical_and logical_not logical_or logical_xor lt maximum "
            "minimum mul multiply ne neg negative not_equal pow reciprocal relu rsqrt sigmoid sign "
            "silu sin softsign sqrt tanh to_bfloat16 to_bool to_complex128 to_complex64 to_float16 "
            "to_float32 to_float64 to_float8_e4m3fn to_float8_e4m3fnuz to_float8_e5m2 "
            "to_float8_e5m2fnuz to_float8_e8m0fnu to_int16 to_int32 to_int64 to_int8 to_uint16 "
            "to_uint32 to_uint64 to_uint8 trunc"
        ),
        "pointwise.bessel": (
            "airy_ai bessel_j0 bessel_j1 bessel_y0 bessel_y1 i0 i0e i1 i1e modified_bessel_i0 "
            "modified_bessel_i1 modified_bessel_k0 modified_bessel_k1 scaled_modified_bessel_k0 "
            "scaled_modified_bessel_k1 spherical_bessel_j0"
        ),
        "pointwise.complex_numbers": (
            "adjoint angle complex conj conj_physical imag isreal polar real resolve_conj "
            "resolve_neg sgn"
        ),
        "pointwise.division": "floor_divide fmod remainder",
        "pointwise.gamma": "digamma entr lgamma mvlgamma ndtr polygamma",
        "pointwise.numbers": (
            "addcdiv addcmul bitwise_left_shift bitwise_right_shift clamp_max clamp_min copysign "
            "float_power fmax fmin frac gcd heaviside isclose isneginf isposinf lcm ldexp lerp "
            "nan_to_num nextafter positive rsub signbit"
        ),
        "pointwise.polynomials": (
            "chebyshev_polynomial_t chebyshev_polynomial_u chebyshev_polynomial_v "
            "chebyshev_polynomial_w hermite_polynomial_h hermite_polynomial_he "
            "laguerre_polynomial_l legendre_polynomial_p shifted_chebyshev_polynomial_t "
            "shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v "
            "shifted_chebyshev_polynomial_w"
        ),
        "pointwise.scaled": (
            "add clamp clip div divide gelu leaky_relu masked_fill one_hot round square sub "
            "subtract tril triu true_divide where"
        ),
        "pointwise.special": "erfcx frexp igamma igammac log_ndtr ndtri zeta",
        "pointwise.transcendental": (
            "acos acosh arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 "
            "atanh cosh deg2rad erfc erfinv exp2 expm1 hypot log10 log1p logaddexp logaddexp2 "
            "logit rad2deg sinc sinh tan xlog1py xlogy"
        ),
        "random.distributions": "multinomial normal",
        "random.permutation": "randperm",
        "random.random": "bernoulli dropout rand randint randn",
        "random.rejection": "_sample_dirichlet _standard_gamma binomial poisson",
        "reduce.cumulative": "cummax cummin cumprod cumsum logcumsumexp",
        "reduce.gradient": "gradient",
        "reduce.reductions": "all amax amin any argmax argmin logsumexp mean prod sum var",
        "reduce.softmax": "log_softmax softmax",
        "reduce.statistics": (
            "aminmax count_nonzero max min nanmean nansum std std_mean sum_to_size trace var_mean"
        ),
        "sort.histogram": "bincount histc histogram histogramdd",
        "sort.ranking": "kthvalue median mode nanmedian nanquantile quantile",
        "sort.searchsorted": "bucketize searchsorted",
        "sort.segment_reduce": "segment_reduce",
        "sort.sort": "argsort msort sort topk",
        "sort.unique": "unique unique_consecutive",
        "surface.view_copies": (
            "alias_copy as_strided_copy diagonal_copy expand_copy narrow_copy permute_copy "
            "split_with_sizes_copy squeeze_copy t_copy transpose_copy unbind_copy unfold_copy "
            "unsqueeze_copy view_copy"
        ),
        "view.complex_parts": "view_as_complex view_as_real",
        "view.joining": (
            "block_diag cartesian_prod column_stack concat concatenate diagonal_scatter dsplit "
            "dstack hsplit hstack meshgrid row_stack select_scatter slice_scatter split_with_sizes "
            "tensor_split unsafe_chunk unsafe_split vsplit vstack"
        ),
        "view.reshaping": (
            "atleast_1d atleast_2d atleast_3d broadcast_tensors broadcast_to diag diag_embed "
            "diagflat diagonal expand_as moveaxis movedim ravel repeat reshape_as swapaxes "
            "swapdims t tile unflatten view_as"
        ),
        "view.views": (
            "cat chunk contiguous expand flatten narrow permute reshape select split squeeze stack "
            "transpose unbind unsqueeze view"
        ),
    }
)

# Ops that are names of the package.
TOP = _by_name(
    {
        "create.creation": "arange empty eye full ones ones_like zeros zeros_like",
        "create.kaiser_window": "kaiser_window",
        "create.like": (
            "bartlett_window blackman_window empty_like empty_permuted empty_strided fill "
            "full_like hamming_window hann_window linspace logspace rand_like randint_like "
            "randn_like scalar_tensor vander"
        ),
        "fft.stft": "istft stft",
        "index.combinations": "combinations tril_indices triu_indices",
        "index.flip": "flip fliplr flipud roll rot90",
        "index.gather": "gather index_select scatter_add",
        "index.repeat_interleave": "repeat_interleave",
        "index.select": (
            "allclose argwhere equal index_add index_copy index_fill index_reduce isin "
            "masked_scatter masked_select nonzero nonzero_static put scatter scatter_reduce take "
            "take_along_dim"
        ),
        "index.strided_views": "as_strided as_strided_scatter",
        "index.subscript": "index_put",
        "index.unravel_index": "unravel_index",
        "linalg.covariance": "corrcoef cov cumulative_trapezoid diff trapezoid trapz",
        "linalg.decompositions": (
            "cholesky cholesky_inverse cholesky_solve geqrf orgqr ormqr qr svd"
        ),
        "linalg.distances": "cdist dist pdist renorm",
        "linalg.einsum": "einsum",
        "linalg.low_rank": "lobpcg pca_lowrank svd_lowrank",
        "linalg.matmul": "matmul",
        "linalg.matrix_functions": (
            "frobenius_norm matrix_exp matrix_power norm nuclear_norm pinverse"
        ),
        "linalg.products": (
            "addbmm addmm addmv addr baddbmm bilinear bmm chain_matmul cross dot ger inner kron mm "
            "mv outer tensordot vdot"
        ),
        "linalg.solve": "det inverse logdet lu lu_solve lu_unpack slogdet triangular_solve",
        "nn.activations": (
            "celu cosine_similarity hardshrink pairwise_distance prelu rrelu selu threshold"
        ),
        "nn.adaptive_pooling": "adaptive_avg_pool1d adaptive_max_pool1d",
        "nn.convolution": "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d",
        "nn.ctc": "ctc_loss",
        "nn.dropout": "alpha_dropout feature_alpha_dropout feature_dropout",
        "nn.grid_sample": "grid_sampler_2d grid_sampler_3d",
        "nn.group_norm": "native_batch_norm native_group_norm native_layer_norm rms_norm",
        "nn.padding": "constant_pad_nd",
        "nn.pixel_shuffle": "channel_shuffle pixel_shuffle pixel_unshuffle",
        "nn.pooling": "avg_pool1d max_pool1d max_pool2d max_pool3d",
        "nn.recurrent": "gru_cell lstm_cell rnn_relu_cell rnn_tanh_cell",
        "pointwise.arithmetic": (
            "abs absolute bitwise_and bitwise_not bitwise_or bitwise_xor ceil clone cos eq erf exp "
            "fix floor ge greater greater_equal gt isfinite isinf isnan le less less_equal log "
            "log2 logical_and logical_not logical_or logical_xor lt maximum minimum mul multiply "
            "ne neg negative not_equal pow reciprocal relu rsqrt sigmoid sign sin sqrt tanh trunc"
        ),
        "pointwise.bessel": "i0",
        "pointwise.complex_numbers": (
            "adjoint angle complex conj conj_physical imag isreal polar real resolve_conj "
            "resolve_neg sgn"
        ),
        "pointwise.division": "floor_divide fmod remainder",
        "pointwise.gamma": "digamma lgamma mvlgamma polygamma",
        "pointwise.numbers": (
            "addcdiv addcmul bitwise_left_shift bitwise_right_shift clamp_max clamp_min copysign "
            "float_power fmax fmin frac gcd heaviside isclose isneginf isposinf lcm ldexp lerp "
            "nan_to_num nextafter positive rsub signbit"
        ),
        "pointwise.scaled": (
            "add clamp clip div divide masked_fill round square sub subtract tril triu true_divide "
            "where"
        ),
        "pointwise.special": "frexp igamma igammac",
        "pointwise.transcendental": (
            "acos acosh arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 "
            "atanh cosh deg2rad erfc erfinv exp2 expm1 hypot log10 log1p logaddexp logaddexp2 "
            "logit rad2deg sinc sinh tan xlogy"
        ),
        "random.distributions": "multinomial normal",
        "random.permutation": "randperm",
        "random.random": "bernoulli dropout rand randint randn",
        "random.rejection": "_sample_dirichlet _standard_gamma binomial poisson",
        "reduce.cumulative": "cummax cummin cumprod cumsum logcumsumexp",
        "reduce.gradient": "gradient",
        "reduce.reductions": "all amax amin any argmax argmin logsumexp mean prod sum var",
        "reduce.softmax": "log_softmax softmax",
        "reduce.statistics": (
            "aminmax count_nonzero max min nanmean nansum std std_mean trace var_mean"
        ),
        "sort.histogram": "bincount histc histogram histogramdd",
        "sort.ranking": "kthvalue median mode nanmedian nanquantile quantile",
        "sort.searchsorted": "bucketize searchsorted",
        "sort.segment_reduce": "segment_reduce",
        "sort.sort": "argsort msort sort topk",
        "sort.unique": "unique unique_consecutive",
        "surface.view_copies": (
            "alias_copy as_strided_copy diagonal_copy expand_copy narrow_copy permute_copy "
            "split_with_sizes_copy squeeze_copy t_copy transpose_copy unbind_copy unfold_copy "
            "unsqueeze_copy view_copy"
        ),
        "view.complex_parts": "view_as_complex view_as_real",
        "view.joining": (
            "block_diag cartesian_prod column_stack concat concatenate diagonal_scatter dsplit "
            "dstack hsplit hstack meshgrid row_stack select_scatter slice_scatter split_with_sizes "
            "tensor_split unsafe_chunk unsafe_split vsplit vstack"
        ),
        "view.reshaping": (
            "atleast_1d atleast_2d atleast_3d broadcast_tensors broadcast_to diag diag_embed "
            "diagflat diagonal moveaxis movedim ravel swapaxes swapdims t tile unflatten"
        ),
        "view.views": (
            "cat chunk expand flatten narrow permute reshape select split squeeze stack transpose "
            "unbind unsqueeze"
        ),
    }
)

# Ops that are methods of Tensor.
METHODS = _by_name(
    {
        "fft.stft": "istft stft",
        "index.combinations": "combinations",
        "index.flip": "flip fliplr flipud roll rot90",
        "index.gather": "gather index_select scatter_add",
        "index.repeat_interleave": "repeat_interleave",
        "index.select": (
            "allclose argwhere equal index_add index_copy index_fill index_reduce masked_scatter "
            "masked_select nonzero nonzero_static put scatter scatter_reduce take take_along_dim"
        ),
        "index.strided_views": "as_strided as_strided_scatter unfold",
        "index.subscript": "index_put",
        "linalg.covariance": "corrcoef cov diff",
        "linalg.decompositions": (
            "cholesky cholesky_inverse cholesky_solve geqrf orgqr ormqr qr svd"
        ),
        "linalg.distances": "dist renorm",
        "linalg.matmul": "matmul",
        "linalg.matrix_functions": "matrix_exp matrix_power norm pinverse",
        "linalg.products": (
            "addbmm addmm addmv addr baddbmm bmm cross dot ger inner kron mm mv outer vdot"
        ),
        "linalg.solve": "det inverse logdet lu lu_solve slogdet triangular_solve",
        "nn.activations": "hardshrink prelu",
        "pointwise.arithmetic": (
            "abs absolute bitwise_and bitwise_not bitwise_or bitwise_xor ceil clone cos eq erf exp "
            "fix floor ge greater greater_equal gt isfinite isinf isnan le less less_equal log "
            "log2 logical_and logical_not logical_or logical_xor lt maximum minimum mul multiply "
            "ne neg negative not_equal pow reciprocal relu rsqrt sigmoid sign sin sqrt tanh trunc"
        ),
        "pointwise.bessel": "i0",
        "pointwise.complex_numbers": (
            "adjoint angle conj conj_physical isreal resolve_conj resolve_neg sgn"
        ),
        "pointwise.division": "floor_divide fmod remainder",
        "pointwise.gamma": "digamma lgamma mvlgamma",
        "pointwise.numbers": (
            "addcdiv addcmul bitwise_left_shift bitwise_right_shift clamp_max clamp_min copysign "
            "float_power fmax fmin frac gcd heaviside isclose isneginf isposinf lcm ldexp lerp "
            "nan_to_num nextafter positive signbit"
        ),
        "pointwise.scaled": (
            "add clamp clip div divide masked_fill round square sub subtract tril triu true_divide"
        ),
        "pointwise.special": "frexp igamma igammac",
        "pointwise.transcendental": (
            "acos acosh arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 "
            "atanh cosh deg2rad erfc erfinv exp2 expm1 hypot log10 log1p logaddexp logaddexp2 "
            "logit rad2deg sinc sinh tan xlogy"
        ),
        "random.distributions": "multinomial",
        "random.random": "bernoulli",
        "reduce.cumulative": "cummax cummin cumprod cumsum logcumsumexp",
        "reduce.reductions": "all amax amin any argmax argmin logsumexp mean prod sum var",
        "reduce.softmax": "log_softmax softmax",
        "reduce.statistics": "aminmax count_nonzero max min nanmean nansum std sum_to_size trace",
        "sort.histogram": "bincount histc histogram",
        "sort.ranking": "kthvalue median mode nanmedian nanquantile quantile",
        "sort.sort": "argsort msort sort topk",
        "sort.unique": "unique unique_consecutive",
        "surface.view_copies": "narrow_copy",
        "view.complex_parts": "view_as_complex view_as_real",
        "view.joining": (
            "diagonal_scatter dsplit hsplit select_scatter slice_scatter split_with_sizes "
            "tensor_split unsafe_chunk unsafe_split vsplit"
        ),
        "view.reshaping": (
            "broadcast_to diag diag_embed diagflat diagonal expand_as moveaxis movedim ravel "
            "repeat reshape_as swapaxes swapdims t tile unflatten view_as"
        ),
        "view.views": (
            "chunk contiguous expand flatten narrow permute reshape select split squeeze transpose "
            "unbind unsqueeze view"
        ),
    }
)

# Methods of Tensor that are in-place forms of ops.
IN_PLACE = _by_name(
    {
        "index.gather": "scatter_add_",
        "index.select": (
            "index_add_ index_copy_ index_fill_ index_reduce_ masked_scatter_ put_ scatter_ "
            "scatter_reduce_"
        ),
        "index.strided_views": "as_strided_",
        "index.subscript": "index_put_",
        "linalg.distances": "renorm_",
        "linalg.products": "addbmm_ addmm_ addmv_ addr_ baddbmm_",
        "pointwise.arithmetic": (
            "abs_ absolute_ bitwise_and_ bitwise_not_ bitwise_or_ bitwise_xor_ ceil_ cos_ eq_ erf_ "
            "exp_ fix_ floor_ ge_ greater_ greater_equal_ gt_ le_ less_ less_equal_ log2_ log_ "
            "logical_and_ logical_not_ logical_or_ logical_xor_ lt_ mul_ multiply_ ne_ neg_ "
            "negative_ not_equal_ pow_ reciprocal_ relu_ rsqrt_ sigmoid_ sign_ sin_ sqrt_ tanh_ "
            "trunc_"
        ),
        "pointwise.bessel": "i0_",
        "pointwise.complex_numbers": "conj_physical_ sgn_",
        "pointwise.division": "floor_divide_ fmod_ remainder_",
        "pointwise.gamma": "digamma_ lgamma_ mvlgamma_ polygamma_",
        "pointwise.numbers": (
            "addcdiv_ addcmul_ bitwise_left_shift_ bitwise_right_shift_ clamp_max_ clamp_min_ "
            "copysign_ float_power_ frac_ gcd_ heaviside_ lcm_ ldexp_ lerp_ nan_to_num_ nextafter_"
        ),
        "pointwise.scaled": (
            "add_ clamp_ clip_ div_ divide_ masked_fill_ round_ square_ sub_ subtract_ tril_ triu_ "
            "true_divide_"
        ),
        "pointwise.special": "igamma_ igammac_",
        "pointwise.transcendental": (
            "acos_ acosh_ arccos_ arccosh_ arcsin_ arcsinh_ arctan2_ arctan_ arctanh_ asin_ asinh_ "
            "atan2_ atan_ atanh_ cosh_ deg2rad_ erfc_ erfinv_ exp2_ expm1_ hypot_ log10_ log1p_ "
            "logit_ rad2deg_ sinc_ sinh_ tan_ xlogy_"
        ),
        "reduce.cumulative": "cumprod_ cumsum_",
        "view.reshaping": "swapaxes_ swapdims_ t_",
        "view.views": "squeeze_ transpose_ unsqueeze_",
    }
)

# In-place forms that are names of the package.
TOP_IN_PLACE = _by_name(
    {
        "index.strided_views": "as_strided_",
        "index.subscript": "index_put_",
        "linalg.products": "addmv_",
        "pointwise.arithmetic": (
            "abs_ ceil_ cos_ erf_ exp_ fix_ floor_ log2_ log_ neg_ negative_ reciprocal_ relu_ "
            "rsqrt_ sigmoid_ sin_ sqrt_ tanh_ trunc_"
        ),
        "pointwise.bessel": "i0_",
        "pointwise.complex_numbers": "conj_physical_",
        "pointwise.numbers": "clamp_max_ clamp_min_ frac_ gcd_ lcm_ ldexp_ nan_to_num_",
        "pointwise.scaled": "clamp_ clip_ round_ square_",
        "pointwise.transcendental": (
            "acos_ acosh_ arccos_ arccosh_ arcsin_ arcsinh_ arctan_ arctanh_ asin_ asinh_ atan_ "
            "atanh_ cosh_ deg2rad_ erfc_ exp2_ expm1_ log10_ log1p_ logit_ rad2deg_ sinc_ sinh_ "
            "tan_ xlogy_"
        ),
    }
)

# Methods of Tensor that are no ops: the files' own `METHODS`.
OTHER_METHODS = _by_name(
    {
        "create.like": "new_empty new_empty_strided new_full type_as",
        "pointwise.gamma": "polygamma",
        "random.distributions": (
            "bernoulli_ cauchy_ exponential_ geometric_ log_normal_ normal_ random_ uniform_"
        ),
        "surface.inplace_views": "detach_ fill_ fill_diagonal_ resize_ resize_as_ set_ zero_",
        "surface.metadata_methods": (
            "_is_view get_device is_complex is_conj is_floating_point is_inference is_neg "
            "is_nonzero is_same_size is_set_to is_signed ndimension nelement numel record_stream"
        ),
        "view.layouts": (
            "clone contiguous data_ptr dim_order element_size is_contiguous storage_offset stride"
        ),
    }
)

# Ops by their names in `rushlight.special`.
SPECIAL = {
    "airy_ai": "airy_ai",
    "bessel_j0": "bessel_j0",
    "bessel_j1": "bessel_j1",
    "bessel_y0": "bessel_y0",
    "bessel_y1": "bessel_y1",
    "chebyshev_polynomial_t": "chebyshev_polynomial_t",
    "chebyshev_polynomial_u": "chebyshev_polynomial_u",
    "chebyshev_polynomial_v": "chebyshev_polynomial_v",
    "chebyshev_polynomial_w": "chebyshev_polynomial_w",
    "digamma": "digamma",
    "entr": "entr",
    "erf": "erf",
    "erfc": "erfc",
    "erfcx": "erfcx",
    "erfinv": "erfinv",
    "exp2": "exp2",
    "expit": "sigmoid",
    "expm1": "expm1",
    "gammainc": "igamma",
    "gammaincc": "igammac",
    "gammaln": "lgamma",
    "hermite_polynomial_h": "hermite_polynomial_h",
    "hermite_polynomial_he": "hermite_polynomial_he",
    "i0": "i0",
    "i0e": "i0e",
    "i1": "i1",
    "i1e": "i1e",
    "laguerre_polynomial_l": "laguerre_polynomial_l",
    "legendre_polynomial_p": "legendre_polynomial_p",
    "log1p": "log1p",
    "log_ndtr": "log_ndtr",
    "logit": "logit",
    "logsumexp": "logsumexp",
    "modified_bessel_i0": "modified_bessel_i0",
    "modified_bessel_i1": "modified_bessel_i1",
    "modified_bessel_k0": "modified_bessel_k0",
    "modified_bessel_k1": "modified_bessel_k1",
    "multigammaln": "mvlgamma",
    "ndtr": "ndtr",
    "ndtri": "ndtri",
    "polygamma": "polygamma",
    "psi": "digamma",
    "round": "round",
    "scaled_modified_bessel_k0": "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1": "scaled_modified_bessel_k1",
    "shifted_chebyshev_polynomial_t": "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u": "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v": "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w": "shifted_chebyshev_polynomial_w",
    "sinc": "sinc",
    "spherical_bessel_j0": "spherical_bessel_j0",
    "xlog1py": "xlog1py",
    "xlogy": "xlogy",
    "zeta": "zeta",
}

# Ops by their names in `rushlight.linalg`.
LINALG = {
    "cholesky": "linalg_cholesky",
    "cholesky_ex": "linalg_cholesky_ex",
    "cond": "linalg_cond",
    "det": "det",
    "eig": "linalg_eig",
    "eigh": "linalg_eigh",
    "eigvals": "linalg_eigvals",
    "eigvalsh": "linalg_eigvalsh",
    "householder_product": "linalg_householder_product",
    "inv": "linalg_inv",
    "inv_ex": "linalg_inv_ex",
    "ldl_factor": "linalg_ldl_factor",
    "ldl_factor_ex": "linalg_ldl_factor_ex",
    "ldl_solve": "linalg_ldl_solve",
    "lstsq": "linalg_lstsq",
    "lu": "linalg_lu",
    "lu_factor": "linalg_lu_factor",
    "lu_factor_ex": "linalg_lu_factor_ex",
    "lu_solve": "linalg_lu_solve",
    "matmul": "matmul",
    "matrix_exp": "matrix_exp",
    "matrix_norm": "linalg_matrix_norm",
    "matrix_power": "matrix_power",
    "matrix_rank": "linalg_matrix_rank",
    "norm": "linalg_norm",
    "pinv": "linalg_pinv",
    "qr": "linalg_qr",
    "slogdet": "slogdet",
    "solve": "linalg_solve",
    "solve_ex": "linalg_solve_ex",
    "solve_triangular": "linalg_solve_triangular",
    "svd": "linalg_svd",
    "svdvals": "linalg_svdvals",
    "tensorinv": "linalg_tensorinv",
    "tensorsolve": "linalg_tensorsolve",
}

# Ops by the operators that call them.
OPERATORS = {
    "add": "add",
    "and": "bitwise_and",
    "eq": "eq",
    "floordiv": "floor_divide",
    "ge": "ge",
    "gt": "gt",
    "le": "le",
    "lshift": "bitwise_left_shift",
    "lt": "lt",
    "mod": "remainder",
    "mul": "mul",
    "ne": "ne",
    "or": "bitwise_or",
    "pow": "pow",
    "rshift": "bitwise_right_shift",
    "sub": "sub",
    "truediv": "div",
    "xor": "bitwise_xor",
}
