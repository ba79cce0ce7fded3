# Written by tools/stubs.py: `make stubs`.
from builtins import bool as _bool, complex as _complex, float as _float, int as _int, type as _type
from collections.abc import Callable, Sequence
from typing import Any, Literal, TextIO, overload

from rushlight import (
    accelerator as accelerator,
    amp as amp,
    array_api as array_api,
    autograd as autograd,
    cpu as cpu,
    cuda as cuda,
    distributions as distributions,
    fft as fft,
    func as func,
    io as io,
    linalg as linalg,
    masked as masked,
    memory as memory,
    nn as nn,
    optim as optim,
    random as random,
    serialization as serialization,
    signal as signal,
    sparse as sparse,
    special as special,
    storage as storage,
    testing as testing,
    utils as utils,
    version as version,
)
from rushlight.amp import (
    GradScaler as GradScaler,
    autocast as autocast,
    autocast_decrement_nesting as autocast_decrement_nesting,
    autocast_increment_nesting as autocast_increment_nesting,
    clear_autocast_cache as clear_autocast_cache,
    get_autocast_cpu_dtype as get_autocast_cpu_dtype,
    get_autocast_dtype as get_autocast_dtype,
    get_autocast_gpu_dtype as get_autocast_gpu_dtype,
    is_autocast_cache_enabled as is_autocast_cache_enabled,
    is_autocast_cpu_enabled as is_autocast_cpu_enabled,
    is_autocast_enabled as is_autocast_enabled,
    set_autocast_cache_enabled as set_autocast_cache_enabled,
    set_autocast_cpu_dtype as set_autocast_cpu_dtype,
    set_autocast_cpu_enabled as set_autocast_cpu_enabled,
    set_autocast_dtype as set_autocast_dtype,
    set_autocast_enabled as set_autocast_enabled,
    set_autocast_gpu_dtype as set_autocast_gpu_dtype,
)
from rushlight.compat._C import (
    DispatchKey as DispatchKey,
    DispatchKeySet as DispatchKeySet,
    PyTorchFileReader as PyTorchFileReader,
)
from rushlight.compat._symbolic import (
    SymBool as SymBool,
    SymFloat as SymFloat,
    SymInt as SymInt,
    sym_float as sym_float,
    sym_int as sym_int,
    sym_max as sym_max,
    sym_min as sym_min,
    sym_not as sym_not,
)
from rushlight.compat.compiler import compile as compile
from rushlight.compat.futures import Future as Future
from rushlight.compat.hook import patch as patch
from rushlight.compat.jit import ScriptFunction as ScriptFunction, ScriptModule as ScriptModule
from rushlight.compat.legacy import (
    BFloat16Tensor as BFloat16Tensor,
    BoolTensor as BoolTensor,
    ByteTensor as ByteTensor,
    CharTensor as CharTensor,
    DoubleTensor as DoubleTensor,
    FloatTensor as FloatTensor,
    HalfTensor as HalfTensor,
    IntTensor as IntTensor,
    LongTensor as LongTensor,
    ShortTensor as ShortTensor,
)
from rushlight.compat.torch_function import (
    DisableTorchFunctionSubclass as DisableTorchFunctionSubclass,
)
from rushlight.core.dtypes import DType as _dtype, DType as dtype
from rushlight.core.errors import (
    AnomalyError as AnomalyError,
    BoundsError as BoundsError,
    BudgetError as BudgetError,
    DeviceError as DeviceError,
    DeviceUnavailable as DeviceUnavailable,
    DivisionByZero as DivisionByZero,
    DTypeError as DTypeError,
    ExactnessError as ExactnessError,
    GraphFreedError as GraphFreedError,
    InplaceError as InplaceError,
    NotDifferentiable as NotDifferentiable,
    OutOfMemoryError as OutOfMemoryError,
    RushlightError as RushlightError,
    RushlightWarning as RushlightWarning,
    ShapeError as ShapeError,
    WrongResult as WrongResult,
)
from rushlight.core.shapes import Size as Size, Size as _Size
from rushlight.cpu import (
    get_num_interop_threads as get_num_interop_threads,
    get_num_threads as get_num_threads,
    set_num_interop_threads as set_num_interop_threads,
    set_num_threads as set_num_threads,
)
from rushlight.cuda.streams import Event as Event, Stream as Stream
from rushlight.determinism import (
    are_deterministic_algorithms_enabled as are_deterministic_algorithms_enabled,
    get_deterministic_debug_mode as get_deterministic_debug_mode,
    is_deterministic_algorithms_warn_only_enabled as is_deterministic_algorithms_warn_only_enabled,
    set_deterministic_debug_mode as set_deterministic_debug_mode,
    use_deterministic_algorithms as use_deterministic_algorithms,
)
from rushlight.explaining import Explanation
from rushlight.func.vmap import vmap as vmap
from rushlight.io.pickled import load as load
from rushlight.io.writing import save as save
from rushlight.memory.budget import get_budget as get_budget, set_budget as set_budget
from rushlight.naming import device as device, get_default_device as get_default_device
from rushlight.ops.create.creation import MemoryFormat as _layout
from rushlight.ops.create.dtype_limits import finfo as finfo, iinfo as iinfo
from rushlight.ops.random.random import Generator as Generator, Generator as _Generator
from rushlight.printing import set_printoptions as set_printoptions
from rushlight.random import initial_seed as initial_seed, seed as seed
from rushlight.report.drawing import Drawing
from rushlight.report.layers import summary as summary
from rushlight.settings import (
    get_device_module as get_device_module,
    get_float32_matmul_precision as get_float32_matmul_precision,
    is_storage as is_storage,
    is_warn_always_enabled as is_warn_always_enabled,
    set_float32_matmul_precision as set_float32_matmul_precision,
    set_flush_denormal as set_flush_denormal,
    set_warn_always as set_warn_always,
    typename as typename,
)
from rushlight.sparse.coo import SparseTensor
from rushlight.sparse.csr import CsrTensor
from rushlight.storage import TypedStorage as TypedStorage, UntypedStorage as UntypedStorage
from rushlight.tape.record.state import (
    enable_grad as enable_grad,
    inference_mode as inference_mode,
    is_grad_enabled as is_grad_enabled,
    is_inference_mode_enabled as is_inference_mode_enabled,
    no_grad as no_grad,
    set_grad_enabled as set_grad_enabled,
)
from rushlight.tape.shadow.mode import shadow as shadow
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
    Tensor as Tensor,
    TopK,
    TriangularSolve,
    _DeviceLike,
    _Operand,
)
from rushlight.utils.dlpack import to_dlpack as to_dlpack

BFloat16Storage: _type[Any]
BoolStorage: _type[Any]
ByteStorage: _type[Any]
CharStorage: _type[Any]
ComplexDoubleStorage: _type[Any]
ComplexFloatStorage: _type[Any]
DoubleStorage: _type[Any]
FloatStorage: _type[Any]
HalfStorage: _type[Any]
IntStorage: _type[Any]
LongStorage: _type[Any]
ShortStorage: _type[Any]
UInt16Storage: _type[Any]
UInt32Storage: _type[Any]
UInt64Storage: _type[Any]
__version__: str

def _assert(condition: Any, message: str) -> None: ...
def _assert_async(input: Tensor, assert_msg: str = "") -> None: ...
def _check(cond: _bool, message: Callable[[], Any] | None = None) -> None: ...
def _check_index(cond: _bool, message: Callable[[], Any] | None = None) -> None: ...
def _check_is_size(
    i: _int, message: Callable[[], Any] | None = None, *, max: _int | None = None
) -> None: ...
def _check_not_implemented(cond: _bool, message: Callable[[], Any] | None = None) -> None: ...
def _check_tensor_all(cond: Tensor, message: Callable[[], Any] | None = None) -> None: ...
def _check_tensor_all_with(
    error_type: _type[Any], cond: Tensor, message: Callable[[], Any] | None = None
) -> None: ...
def _check_type(cond: _bool, message: Callable[[], Any] | None = None) -> None: ...
def _check_value(cond: _bool, message: Callable[[], Any] | None = None) -> None: ...
def _check_with(
    error_type: _type[Any], cond: _bool, message: Callable[[], Any] | None = None
) -> None: ...
def _convert_indices_from_coo_to_csr(
    input: Tensor, size: _int, *, out_int32: _bool = False
) -> Tensor: ...
def _convert_indices_from_csr_to_coo(
    crow_indices: Any, col_indices: Any, *, out_int32: _bool = False, transpose: _bool = False
) -> Any: ...
def _foreach_abs(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_abs_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_acos(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_acos_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_add(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_add_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_addcdiv(
    self: Sequence[Tensor],
    tensor1: Any,
    tensor2: Any,
    value: _Operand | None = None,
    *,
    scalars: Any = None,
) -> Any: ...
def _foreach_addcdiv_(
    self: Sequence[Tensor],
    tensor1: Any,
    tensor2: Any,
    value: _Operand | None = None,
    *,
    scalars: Any = None,
) -> Any: ...
def _foreach_addcmul(
    self: Sequence[Tensor],
    tensor1: Any,
    tensor2: Any,
    value: _Operand | None = None,
    *,
    scalars: Any = None,
) -> Any: ...
def _foreach_addcmul_(
    self: Sequence[Tensor],
    tensor1: Any,
    tensor2: Any,
    value: _Operand | None = None,
    *,
    scalars: Any = None,
) -> Any: ...
def _foreach_asin(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_asin_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_atan(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_atan_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_ceil(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_ceil_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_clamp_max(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_clamp_max_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_clamp_min(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_clamp_min_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_clone(
    self: Sequence[Tensor], *, memory_format: _layout | None = None
) -> tuple[Any, ...]: ...
def _foreach_copy_(
    self: Sequence[Tensor], src: Sequence[Tensor], non_blocking: _bool = False
) -> None: ...
def _foreach_cos(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_cos_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_cosh(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_cosh_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_div(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_div_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_erf(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_erf_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_erfc(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_erfc_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_exp(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_exp_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_expm1(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_expm1_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_floor(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_floor_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_frac(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_frac_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_lerp(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_lerp_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_lgamma(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_lgamma_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_log(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_log10(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_log10_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_log1p(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_log1p_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_log2(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_log2_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_log_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_max(self: Sequence[Tensor]) -> tuple[Any, ...]: ...
def _foreach_maximum(self: Sequence[Tensor], other: _Operand) -> Any: ...
def _foreach_maximum_(self: Sequence[Tensor], other: _Operand) -> Any: ...
def _foreach_minimum(self: Sequence[Tensor], other: _Operand) -> Any: ...
def _foreach_minimum_(self: Sequence[Tensor], other: _Operand) -> Any: ...
def _foreach_mul(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_mul_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_neg(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_neg_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_norm(
    self: Sequence[Tensor], ord: _float | str = 2, dtype: Any = None
) -> tuple[Any, ...]: ...
def _foreach_pow(self: Sequence[Tensor], exponent: _Operand) -> tuple[Any, ...]: ...
def _foreach_pow_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_reciprocal(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_reciprocal_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_round(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_round_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_rsqrt(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_rsqrt_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_sigmoid(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_sigmoid_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_sign(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_sign_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_sin(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_sin_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_sinh(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_sinh_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_sqrt(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_sqrt_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_sub(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_sub_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_tan(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_tan_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_tanh(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_tanh_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_trunc(self: Sequence[Tensor], *others: Any, **named: Any) -> tuple[Any, ...]: ...
def _foreach_trunc_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _foreach_zero_(self: Sequence[Tensor], *others: Any, **named: Any) -> Any: ...
def _functions_of_lists() -> dict[str, Any]: ...
def _int_mm(self: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor: ...

_report: str

def _sample_dirichlet(input: Tensor, generator: _Generator | None = None) -> Tensor: ...
def _scaled_mm(
    input: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: _dtype | None = None,
    use_fast_accum: _bool = False,
) -> Tensor: ...
def _standard_gamma(input: Tensor, generator: _Generator | None = None) -> Tensor: ...

_trace: str

def abs(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def abs_(input: Tensor) -> Tensor: ...
def absolute(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def acos(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def acos_(input: Tensor) -> Tensor: ...
def acosh(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def acosh_(input: Tensor) -> Tensor: ...
def adaptive_avg_pool1d(
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
def addcdiv(
    input: Tensor,
    tensor1: Tensor,
    tensor2: Tensor,
    *,
    value: _Operand = 1,
    out: Tensor | None = None,
) -> Tensor: ...
def addcmul(
    input: Tensor,
    tensor1: Tensor,
    tensor2: Tensor,
    *,
    value: _Operand = 1,
    out: Tensor | None = None,
) -> Tensor: ...
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
def addmv_(
    input: Tensor, mat: Any, vec: Any, *, beta: _complex = 1, alpha: _complex = 1
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
def affine_grid_generator(theta: Tensor, size: Sequence[_int], align_corners: _bool) -> Tensor: ...
def alias_copy(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
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
def alpha_dropout_(input: Tensor, p: _float, train: _bool) -> Tensor: ...
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
def arccos(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def arccos_(input: Tensor) -> Tensor: ...
def arccosh(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def arccosh_(input: Tensor) -> Tensor: ...
def arcsin(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def arcsin_(input: Tensor) -> Tensor: ...
def arcsinh(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def arcsinh_(input: Tensor) -> Tensor: ...
def arctan(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def arctan2(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def arctan_(input: Tensor) -> Tensor: ...
def arctanh(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def arctanh_(input: Tensor) -> Tensor: ...
def argmax(
    input: Tensor, dim: _int | None = None, keepdim: _bool = False, *, out: Tensor | None = None
) -> Tensor: ...
def argmin(
    input: Tensor, dim: _int | None = None, keepdim: _bool = False, *, out: Tensor | None = None
) -> Tensor: ...
def argsort(
    input: Tensor,
    dim: _int = -1,
    descending: _bool = False,
    stable: _bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def argwhere(input: Tensor) -> Tensor: ...
def as_strided(
    input: Tensor, size: Sequence[_int], stride: Sequence[_int], storage_offset: _int | None = None
) -> Tensor: ...
def as_strided_(
    input: Tensor, size: _int | Sequence[_int], stride: Any, storage_offset: Any = None
) -> Tensor: ...
def as_strided_copy(
    input: Tensor,
    size: Sequence[_int],
    stride: Sequence[_int],
    storage_offset: _int | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def as_strided_scatter(
    input: Tensor,
    src: Tensor,
    size: Sequence[_int],
    stride: Sequence[_int],
    storage_offset: _int | None = None,
) -> Tensor: ...
def as_tensor(data: Any, dtype: _dtype | None = None, device: _DeviceLike = None) -> Tensor: ...
def asarray(
    obj: Any,
    *,
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    copy: _bool | None = None,
    requires_grad: _bool | None = None,
) -> Tensor: ...
def asin(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def asin_(input: Tensor) -> Tensor: ...
def asinh(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def asinh_(input: Tensor) -> Tensor: ...
def atan(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def atan2(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def atan_(input: Tensor) -> Tensor: ...
def atanh(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def atanh_(input: Tensor) -> Tensor: ...
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
    weight: Tensor | _float,
    bias: Tensor,
    running_mean: Any,
    running_var: Any,
    training: _bool,
    momentum: _float,
    eps: _float,
    cudnn_enabled: _bool,
) -> Tensor: ...
def bernoulli(
    input: Tensor,
    p: _float | str | Tensor | None = None,
    *,
    generator: _Generator | None = None,
    out: Tensor | None = None,
) -> Tensor: ...

bfloat16: _dtype

def bilinear(
    input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor: ...
def binary_cross_entropy_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: _int = 0,
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

bool: _dtype

def broadcast_shapes(*shapes: Any) -> _Size: ...
def broadcast_tensors(*tensors: Tensor | Sequence[Tensor]) -> tuple[Tensor, ...]: ...
def broadcast_to(input: Tensor, *size: _int | Sequence[_int]) -> Tensor: ...
def bucketize(
    input: Tensor | _float,
    boundaries: Tensor,
    *,
    out_int32: _bool = False,
    right: _bool = False,
    out: Tensor | None = None,
) -> Tensor: ...
def can_cast(from_: _dtype, to: _dtype) -> _bool: ...
def cartesian_prod(*tensors: Tensor) -> Tensor: ...
def cat(tensors: Sequence[Tensor], dim: _int = 0, *, out: Tensor | None = None) -> Tensor: ...
def cdist(
    x1: Tensor,
    x2: Tensor,
    p: _float = 2.0,
    compute_mode: str | None = "use_mm_for_euclid_dist_if_necessary",
) -> Tensor: ...

cdouble: _dtype

def ceil(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def ceil_(input: Tensor) -> Tensor: ...
def celu(input: Tensor, alpha: _float = 1.0, inplace: _bool = False) -> Tensor: ...
def celu_(input: Tensor, alpha: _float = 1.0) -> Tensor: ...

cfloat: _dtype

def chain_matmul(*matrices: Tensor) -> Tensor: ...

chalf: _dtype

def channel_shuffle(input: Tensor, groups: _int) -> Tensor: ...

channels_last: _layout
channels_last_3d: _layout

def cholesky(input: Tensor, upper: _bool = False, *, out: Tensor | None = None) -> Tensor: ...
def cholesky_inverse(
    input: Tensor, upper: _bool = False, *, out: Tensor | None = None
) -> Tensor: ...
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
def clamp_(input: Tensor, min: _Operand | None = None, max: _Operand | None = None) -> Tensor: ...
def clamp_max(input: Tensor, max: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def clamp_max_(input: Tensor, max: _Operand) -> Tensor: ...
def clamp_min(input: Tensor, min: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def clamp_min_(input: Tensor, min: _Operand) -> Tensor: ...
def clip(
    input: Tensor,
    min: _Operand | None = None,
    max: _Operand | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def clip_(input: Tensor, min: _Operand | None = None, max: _Operand | None = None) -> Tensor: ...
def clone(input: Tensor, *, memory_format: _layout | None = None) -> Tensor: ...
def column_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor: ...
def combinations(input: Tensor, r: _int = 2, with_replacement: _bool = False) -> Tensor: ...
def complex(real: Tensor, imag: Tensor, *, out: Tensor | None = None) -> Tensor: ...

complex128: _dtype
complex32: _dtype
complex64: _dtype

def concat(tensors: Sequence[Tensor], dim: _int = 0, *, out: Tensor | None = None) -> Tensor: ...
def concatenate(
    tensors: Sequence[Tensor], dim: _int = 0, *, out: Tensor | None = None
) -> Tensor: ...
def conj(input: Tensor) -> Tensor: ...
def conj_physical(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def conj_physical_(input: Tensor) -> Tensor: ...
def constant_pad_nd(input: Tensor, pad: Sequence[_int], value: _float = 0) -> Tensor: ...

contiguous_format: _layout

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
def conv_tbc(input: Tensor, weight: Tensor | _float, bias: Tensor, pad: _int = 0) -> Tensor: ...
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
def convolution(
    input: Tensor,
    weight: Tensor | _float,
    bias: Tensor,
    stride: Sequence[_int],
    padding: Sequence[_int],
    dilation: Sequence[_int],
    transposed: _bool,
    output_padding: Sequence[_int],
    groups: _int,
) -> Tensor: ...
def copysign(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def corrcoef(input: Tensor) -> Tensor: ...
def cos(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def cos_(input: Tensor) -> Tensor: ...
def cosh(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def cosh_(input: Tensor) -> Tensor: ...
def cosine_embedding_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: _float = 0.0, reduction: _int = 0
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
def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[_int],
    target_lengths: Tensor | Sequence[_int],
    blank: _int = 0,
    reduction: str = "mean",
    zero_infinity: _bool = False,
) -> Tensor: ...
def cummax(input: Tensor, dim: _int, *, out: Sequence[Tensor] | None = None) -> CumMax: ...
def cummin(input: Tensor, dim: _int, *, out: Sequence[Tensor] | None = None) -> CumMin: ...
def cumprod(
    input: Tensor, dim: _int, *, dtype: _dtype | None = None, out: Tensor | None = None
) -> Tensor: ...
def cumsum(
    input: Tensor, dim: _int, *, dtype: _dtype | None = None, out: Tensor | None = None
) -> Tensor: ...
def cumulative_trapezoid(
    y: Tensor, x: Tensor | None = None, *, dx: _float | None = None, dim: _int = -1
) -> Tensor: ...

default_generator: _Generator

def deg2rad(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def deg2rad_(input: Tensor) -> Tensor: ...
def det(A: Tensor) -> Tensor: ...
def detach(input: Tensor) -> Tensor: ...
def detach_(input: Tensor) -> Tensor: ...
def detach_copy(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def diag(input: Tensor, diagonal: _int = 0, *, out: Tensor | None = None) -> Tensor: ...
def diag_embed(input: Tensor, offset: _int = 0, dim1: _int = -2, dim2: _int = -1) -> Tensor: ...
def diagflat(input: Tensor, offset: _int = 0) -> Tensor: ...
def diagonal(input: Tensor, offset: _int = 0, dim1: _int = 0, dim2: _int = 1) -> Tensor: ...
def diagonal_copy(
    input: Tensor, offset: _int = 0, dim1: _int = 0, dim2: _int = 1, *, out: Tensor | None = None
) -> Tensor: ...
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
def divide(
    input: Tensor, other: _Operand, *, rounding_mode: str | None = None, out: Tensor | None = None
) -> Tensor: ...
def dot(input: Tensor, tensor: Tensor, *, out: Tensor | None = None) -> Tensor: ...

double: _dtype

def dropout(
    input: Tensor, p: _float = 0.5, training: _bool = True, inplace: _bool = False
) -> Tensor: ...
def dropout_(input: Tensor, p: _float, train: _bool) -> Tensor: ...
def dsmm(input: Tensor, mat2: Tensor) -> Tensor: ...
def dsplit(
    input: Tensor, indices_or_sections: _int | Sequence[_int] | Tensor
) -> tuple[Tensor, ...]: ...
def dstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor: ...

e: _float

def eig(*args: Any, **named: Any) -> Any: ...
def einsum(equation: str, *operands: Tensor | Sequence[Tensor]) -> Tensor: ...
def embedding(
    weight: Tensor | _float,
    indices: Any,
    padding_idx: _int = -1,
    scale_grad_by_freq: _bool = False,
    sparse: _bool = False,
) -> Tensor: ...
def empty(
    *size: _int | Sequence[_int],
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    layout: _layout | None = None,
    pin_memory: _bool = False,
    out: Tensor | None = None,
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
def eq(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def equal(input: Tensor, other: Tensor) -> _bool: ...
def erf(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def erf_(input: Tensor) -> Tensor: ...
def erfc(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def erfc_(input: Tensor) -> Tensor: ...
def erfinv(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def exp(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def exp2(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def exp2_(input: Tensor) -> Tensor: ...
def exp_(input: Tensor) -> Tensor: ...
def expand(input: Tensor, *size: _int | Sequence[_int]) -> Tensor: ...
def expand_copy(
    input: Tensor, *size: _int | Sequence[_int], out: Tensor | None = None
) -> Tensor: ...
def explain(
    tensor: Tensor,
    *,
    most: _int = 40,
    backward: _bool = True,
    source: _bool = False,
    file: TextIO | None = None,
) -> Explanation: ...
def expm1(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def expm1_(input: Tensor) -> Tensor: ...
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
def feature_alpha_dropout_(input: Tensor, p: _float, train: _bool) -> Tensor: ...
def feature_dropout(input: Tensor, p: _float, train: _bool) -> Tensor: ...
def feature_dropout_(input: Tensor, p: _float, train: _bool) -> Tensor: ...
def fill(input: Tensor, value: _complex | Tensor) -> Tensor: ...
def fill_(input: Tensor, value: _Operand) -> Tensor: ...
def fix(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def fix_(input: Tensor) -> Tensor: ...
def flatten(input: Tensor, start_dim: _int = 0, end_dim: _int = -1) -> Tensor: ...
def flip(
    input: Tensor, *axes: _int | Sequence[_int], dims: _int | Sequence[_int] | None = None
) -> Tensor: ...
def fliplr(input: Tensor) -> Tensor: ...
def flipud(input: Tensor) -> Tensor: ...

float: _dtype
float16: _dtype
float32: _dtype
float4_e2m1fn_x2: _dtype
float64: _dtype
float8_e4m3fn: _dtype
float8_e4m3fnuz: _dtype
float8_e5m2: _dtype
float8_e5m2fnuz: _dtype
float8_e8m0fnu: _dtype

def float_power(
    input: Tensor | _complex, exponent: Tensor | _complex, *, out: Tensor | None = None
) -> Tensor: ...
def floor(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def floor_(input: Tensor) -> Tensor: ...
def floor_divide(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def fmax(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def fmin(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def fmod(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def frac(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def frac_(input: Tensor) -> Tensor: ...
def frexp(input: Tensor, *, out: Sequence[Tensor] | None = None) -> Frexp: ...
def frobenius_norm(
    input: Tensor, dim: _int | Sequence[_int], keepdim: _bool = False, *, out: Tensor | None = None
) -> Tensor: ...
def from_dlpack(
    ext_tensor: Any, *, device: _DeviceLike = None, copy: _bool | None = None
) -> Tensor: ...
def from_file(
    filename: str,
    shared: _bool | None = None,
    size: _int | None = 0,
    *,
    dtype: _dtype | None = None,
    requires_grad: _bool = False,
    **named: Any,
) -> Tensor: ...
def from_numpy(array: Any) -> Tensor: ...
def frombuffer(
    buffer: Any, *, dtype: _dtype, count: _int = -1, offset: _int = 0, requires_grad: _bool = False
) -> Tensor: ...
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
def gcd(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def gcd_(input: Tensor, other: _Operand) -> Tensor: ...
def ge(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def geqrf(input: Tensor, *, out: Sequence[Tensor] | None = None) -> Geqrf: ...
def ger(input: Tensor, vec2: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def get_default_dtype() -> _dtype: ...
def get_device(input: Tensor) -> _int: ...
def get_rng_state() -> Tensor: ...
def gradient(
    input: Tensor,
    *,
    spacing: _float | Sequence[_float] | Sequence[Tensor] = 1,
    dim: _int | Sequence[_int] | None = None,
    edge_order: _int = 1,
) -> tuple[Tensor, ...]: ...
def graph(
    tensor: Tensor, path: Any = None, *, params: Any = None, most: _int = 1000
) -> Drawing: ...
def greater(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def greater_equal(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def grid_sampler(
    input: Tensor, grid: Tensor, interpolation_mode: _int, padding_mode: _int, align_corners: _bool
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
    weight: Tensor | _float | None = None,
    bias: Tensor | None = None,
    eps: _float = 1e-05,
    cudnn_enabled: _bool = True,
) -> Tensor: ...
def gru(
    input: Tensor,
    hx: Any,
    params: Sequence[Any],
    has_biases: _bool,
    num_layers: _int,
    dropout: _float,
    train: _bool,
    bidirectional: _bool,
    batch_first: _bool,
) -> tuple[Tensor, ...]: ...
def gru_cell(
    input: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor: ...
def gt(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...

half: _dtype

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
def heaviside(input: Tensor, values: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def hinge_embedding_loss(
    input: Tensor, target: Tensor, margin: _float = 1.0, reduction: _int = 0
) -> Tensor: ...
def histc(
    input: Tensor, bins: _int = 100, min: _float = 0, max: _float = 0, *, out: Tensor | None = None
) -> Tensor: ...
def histogram(
    input: Tensor,
    bins: Tensor | _int | Sequence[_int] | Sequence[Tensor],
    *,
    range: Sequence[_float] | None = None,
    weight: Tensor | None = None,
    density: _bool = False,
    out: Sequence[Tensor] | None = None,
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
def hypot(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def i0(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def i0_(input: Tensor) -> Tensor: ...
def igamma(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def igammac(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
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
def index_put_(input: Tensor, indices: Any, values: Tensor, accumulate: Any = False) -> Tensor: ...
def index_reduce(
    input: Tensor,
    dim: _int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: _bool = True,
    out: Tensor | None = None,
) -> Tensor: ...
def index_select(
    input: Tensor, dim: _int, index: Tensor, *, out: Tensor | None = None
) -> Tensor: ...

inf: _float

def inner(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def instance_norm(
    input: Tensor,
    weight: Tensor | _float,
    bias: Tensor,
    running_mean: Any,
    running_var: Any,
    use_input_stats: _bool,
    momentum: _float,
    eps: _float,
    cudnn_enabled: _bool,
) -> Tensor: ...

int: _dtype
int1: _dtype
int16: _dtype
int2: _dtype
int3: _dtype
int32: _dtype
int4: _dtype
int5: _dtype
int6: _dtype
int64: _dtype
int7: _dtype
int8: _dtype

def inverse(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def is_anomaly_check_nan_enabled() -> _bool: ...
def is_anomaly_enabled() -> _bool: ...
def is_complex(input: Tensor) -> _bool: ...
def is_conj(input: Tensor) -> _bool: ...
def is_floating_point(input: Tensor) -> _bool: ...
def is_inference(input: Tensor) -> _bool: ...
def is_neg(input: Tensor) -> _bool: ...
def is_nonzero(input: Tensor) -> _bool: ...
def is_same_size(input: Tensor, other: Tensor) -> _bool: ...
def is_signed(input: Tensor) -> _bool: ...
def is_tensor(obj: Any) -> _bool: ...
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
    input: Tensor, target: Tensor, reduction: _int = 0, *, log_target: _bool = False
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
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[_int],
    weight: Tensor | _float | None = None,
    bias: Tensor | None = None,
    eps: _float = 1e-05,
    cudnn_enable: _bool = True,
) -> Tensor: ...

layout = _layout

def lcm(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def lcm_(input: Tensor, other: _Operand) -> Tensor: ...
def ldexp(input: Tensor, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def ldexp_(input: Tensor, other: _Operand) -> Tensor: ...
def le(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def lerp(
    input: Tensor, end: Tensor, weight: Tensor | _float, *, out: Tensor | None = None
) -> Tensor: ...
def less(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def less_equal(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def lgamma(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
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
    out: Tensor | None = None,
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
def log(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def log10(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def log10_(input: Tensor) -> Tensor: ...
def log1p(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def log1p_(input: Tensor) -> Tensor: ...
def log2(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def log2_(input: Tensor) -> Tensor: ...
def log_(input: Tensor) -> Tensor: ...
def log_softmax(
    input: Tensor,
    dim: _int | None = None,
    dtype: _dtype | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def logaddexp(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def logaddexp2(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def logcumsumexp(input: Tensor, dim: _int, *, out: Tensor | None = None) -> Tensor: ...
def logdet(input: Tensor) -> Tensor: ...
def logical_and(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def logical_not(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def logical_or(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def logical_xor(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def logit(input: Tensor, eps: _float | None = None, *, out: Tensor | None = None) -> Tensor: ...
def logit_(input: Tensor, eps: Any = None) -> Tensor: ...
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
    out: Tensor | None = None,
) -> Tensor: ...
def logsumexp(
    input: Tensor,
    dim: _int | Sequence[_int] | None,
    keepdim: _bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor: ...

long: _dtype

def lstm(
    input: Tensor,
    hx: Any,
    params: Sequence[Any],
    has_biases: _bool,
    num_layers: _int,
    dropout: _float,
    train: _bool,
    bidirectional: _bool,
    batch_first: _bool,
) -> tuple[Tensor, ...]: ...
def lstm_cell(
    input: Tensor,
    hx: Sequence[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> tuple[Tensor, Tensor]: ...
def lstsq(*args: Any, **named: Any) -> Any: ...
def lt(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
@overload
def lu(A: Tensor, pivot: _bool = True, get_infos: Literal[False] = False) -> LUFactor: ...
@overload
def lu(A: Tensor, pivot: _bool = True, *, get_infos: Literal[True]) -> LUFactorEx: ...
def lu_solve(
    input: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out: Tensor | None = None
) -> Tensor: ...
def lu_unpack(
    LU_data: Tensor,
    LU_pivots: Tensor,
    unpack_data: _bool = True,
    unpack_pivots: _bool = True,
    *,
    out: Sequence[Tensor] | None = None,
) -> LU: ...
def manual_seed(seed: _int) -> _Generator: ...
def margin_ranking_loss(
    input1: Tensor, input2: Tensor, target: Tensor, margin: _float = 0.0, reduction: _int = 0
) -> Tensor: ...
def masked_fill(input: Tensor, mask: Tensor, value: _Operand) -> Tensor: ...
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor: ...
def masked_select(input: Tensor, mask: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def matrix_exp(input: Tensor) -> Tensor: ...
def matrix_power(input: Tensor, n: _int, *, out: Tensor | None = None) -> Tensor: ...
def matrix_rank(*args: Any, **named: Any) -> Any: ...
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
    stride: Any = (),
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: _bool = False,
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

memory_format = _layout

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
def mm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def mode(
    input: Tensor, dim: _int = -1, keepdim: _bool = False, *, out: Sequence[Tensor] | None = None
) -> Mode: ...
def moveaxis(
    input: Tensor, source: _int | Sequence[_int], destination: _int | Sequence[_int]
) -> Tensor: ...
def movedim(
    input: Tensor, source: _int | Sequence[_int], destination: _int | Sequence[_int]
) -> Tensor: ...
def msort(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def mul(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def multinomial(
    input: Tensor,
    num_samples: _int,
    replacement: _bool = False,
    *,
    generator: _Generator | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
def multiply(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def mv(input: Tensor, vec: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def mvlgamma(input: Tensor, p: _int, *, out: Tensor | None = None) -> Tensor: ...

nan: _float

def nan_to_num(
    input: Tensor,
    nan: _float | None = None,
    posinf: _float | None = None,
    neginf: _float | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def nan_to_num_(
    input: Tensor, nan: Any = None, posinf: Any = None, neginf: Any = None
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
    out: Tensor | None = None,
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
def narrow_copy(
    input: Tensor, dim: _int, start: _int | Tensor, length: _int, *, out: Tensor | None = None
) -> Tensor: ...
def native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: _bool,
    momentum: _float,
    eps: _float,
    *,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, Tensor, Tensor]: ...
def native_dropout(input: Tensor, p: _float, train: _bool | None) -> tuple[Tensor, Tensor]: ...
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
def ne(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def neg(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def neg_(input: Tensor) -> Tensor: ...
def negative(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def negative_(input: Tensor) -> Tensor: ...

newaxis: None

def nextafter(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor: ...
@overload
def nonzero(
    input: Tensor, *, as_tuple: Literal[False] = False, out: Tensor | None = None
) -> Tensor: ...
@overload
def nonzero(input: Tensor, *, as_tuple: Literal[True]) -> tuple[Tensor, ...]: ...
def nonzero_static(
    input: Tensor, *, size: _int, fill_value: _int = -1, out: Tensor | None = None
) -> Tensor: ...
def norm(
    input: Tensor,
    p: _float | str | Tensor = "fro",
    dim: _int | Sequence[_int] | None = None,
    keepdim: _bool = False,
    dtype: _dtype | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def norm_except_dim(v: Any, pow: _int = 2, dim: _int = 0) -> Tensor: ...
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
    out: Tensor | None = None,
) -> Tensor: ...
def not_equal(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def nuclear_norm(
    input: Tensor,
    dim: _bool | Sequence[_int] = (-2, -1),
    keepdim: _bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def numel(input: Tensor) -> _int: ...
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
def orgqr(input: Tensor, input2: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def ormqr(
    input: Tensor,
    tau: Tensor,
    other: Tensor,
    left: _bool = True,
    transpose: _bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def outer(input: Tensor, vec2: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def pairwise_distance(
    x1: Tensor, x2: Tensor, p: _float = 2.0, eps: _float = 1e-06, keepdim: _bool = False
) -> Tensor: ...
def pca_lowrank(A: Tensor, q: _int | None = None, center: _bool = True, niter: _int = 2) -> SVD: ...
def pdist(input: Tensor, p: _float = 2.0) -> Tensor: ...
def permute(input: Tensor, *dims: _int | Sequence[_int]) -> Tensor: ...
def permute_copy(
    input: Tensor, *dims: _int | Sequence[_int], out: Tensor | None = None
) -> Tensor: ...

pi: _float

def pinverse(input: Tensor, rcond: _float = 1e-15) -> Tensor: ...
def pixel_shuffle(input: Tensor, upscale_factor: _int) -> Tensor: ...
def pixel_unshuffle(input: Tensor, downscale_factor: _int) -> Tensor: ...
def poisson(input: Tensor, generator: _Generator | None = None) -> Tensor: ...
def poisson_nll_loss(
    input: Tensor, target: Tensor, log_input: _bool, full: _bool, eps: _float, reduction: _int
) -> Tensor: ...
def polar(abs: Tensor, angle: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def polygamma(n: _Operand, input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def positive(input: Tensor) -> Tensor: ...
def pow(input: _Operand, exponent: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def prelu(input: Tensor, weight: Tensor) -> Tensor: ...

preserve_format: _layout

def prod(
    input: Tensor,
    dim: _int | None = None,
    keepdim: _bool = False,
    *,
    dtype: _dtype | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
def promote_types(type1: _dtype, type2: _dtype) -> _dtype: ...
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: _bool = False) -> Tensor: ...

qint32: _dtype
qint8: _dtype

def qr(input: Tensor, some: _bool = True, *, out: Sequence[Tensor] | None = None) -> QR: ...
def quantile(
    input: Tensor,
    q: Tensor | _float,
    dim: _int | None = None,
    keepdim: _bool = False,
    *,
    interpolation: str = "linear",
    out: Tensor | None = None,
) -> Tensor: ...

quint2x4: _dtype
quint4x2: _dtype
quint8: _dtype

def rad2deg(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def rad2deg_(input: Tensor) -> Tensor: ...
def rand(
    *size: _int | Sequence[_int],
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    generator: _Generator | None = None,
    layout: _layout | None = None,
    pin_memory: _bool = False,
    out: Tensor | None = None,
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
    out: Tensor | None = None,
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
    out: Tensor | None = None,
) -> Tensor: ...
def range(
    start: _float = 0,
    end: Tensor | _float | None = None,
    step: _float = 1,
    *,
    out: Tensor | None = None,
    **named: Any,
) -> Tensor: ...
def ravel(input: Tensor) -> Tensor: ...
def real(input: Tensor) -> Tensor: ...
def reciprocal(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def reciprocal_(input: Tensor) -> Tensor: ...
def relu(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def relu_(input: Tensor) -> Tensor: ...
def remainder(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def renorm(
    input: Tensor, p: _float, dim: _int, maxnorm: _float, *, out: Tensor | None = None
) -> Tensor: ...
def repeat_interleave(
    input: Tensor | None = None,
    repeats: Tensor | _int | None = None,
    dim: _int | None = None,
    *,
    output_size: _int | None = None,
) -> Tensor: ...
def reshape(input: Tensor, *shape: _int | Sequence[_int]) -> Tensor: ...
def resize_as_(
    input: Tensor, the_template: Tensor, memory_format: _layout | None = None
) -> Tensor: ...
def resolve_conj(input: Tensor) -> Tensor: ...
def resolve_neg(input: Tensor) -> Tensor: ...
def result_type(*operands: Any, **named: Any) -> _dtype: ...
def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[_int] | _int,
    weight: Tensor | None = None,
    eps: _float | None = None,
) -> Tensor: ...
def rnn_relu(
    input: Tensor,
    hx: Any,
    params: Sequence[Any],
    has_biases: _bool,
    num_layers: _int,
    dropout: _float,
    train: _bool,
    bidirectional: _bool,
    batch_first: _bool,
) -> tuple[Tensor, ...]: ...
def rnn_relu_cell(
    input: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None = None,
    b_hh: Tensor | None = None,
) -> Tensor: ...
def rnn_tanh(
    input: Tensor,
    hx: Any,
    params: Sequence[Any],
    has_biases: _bool,
    num_layers: _int,
    dropout: _float,
    train: _bool,
    bidirectional: _bool,
    batch_first: _bool,
) -> tuple[Tensor, ...]: ...
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
def round(input: Tensor, *, decimals: _int = 0, out: Tensor | None = None) -> Tensor: ...
def round_(input: Tensor, *, decimals: Any = 0) -> Tensor: ...
def row_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor: ...
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
def rsqrt_(input: Tensor) -> Tensor: ...
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
    out: Tensor | None = None,
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
def select_copy(input: Tensor, dim: _int, index: _int, *, out: Tensor | None = None) -> Tensor: ...
def select_scatter(input: Tensor, src: Tensor, dim: _int, index: _int) -> Tensor: ...
def selu(input: Tensor, inplace: _bool = False) -> Tensor: ...
def selu_(input: Tensor) -> Tensor: ...
def set_default_device(device: _DeviceLike) -> None: ...
def set_default_dtype(d: _dtype) -> None: ...
def set_default_tensor_type(t: Any) -> None: ...
def set_rng_state(new_state: Tensor) -> None: ...
def sgn(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...

short: _dtype

def sigmoid(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def sigmoid_(input: Tensor) -> Tensor: ...
def sign(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def signbit(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def sin(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def sin_(input: Tensor) -> Tensor: ...
def sinc(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def sinc_(input: Tensor) -> Tensor: ...
def sinh(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def sinh_(input: Tensor) -> Tensor: ...
def slice_copy(
    input: Tensor,
    dim: _int = 0,
    start: _int | None = None,
    end: _int | None = None,
    step: _int = 1,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def slice_scatter(
    input: Tensor,
    src: Tensor,
    dim: _int = 0,
    start: _int | None = None,
    end: _int | None = None,
    step: _int = 1,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def slogdet(A: Tensor, *, out: Sequence[Tensor] | None = None) -> SLogDet: ...
def softmax(
    input: Tensor,
    dim: _int | None = None,
    dtype: _dtype | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor: ...
def solve(*args: Any, **named: Any) -> Any: ...
def sort(
    input: Tensor,
    dim: _int = -1,
    descending: _bool = False,
    stable: _bool | None = False,
    *,
    out: Sequence[Tensor] | None = None,
) -> Sorted: ...
def sparse_compressed_tensor(
    compressed_indices: Any,
    plain_indices: Any,
    values: Tensor,
    size: _int | Sequence[_int] | None = None,
    *,
    layout: _layout | None = None,
    **named: Any,
) -> CsrTensor: ...

sparse_coo: _layout

def sparse_coo_tensor(
    indices: Any = None,
    values: Tensor | None = None,
    size: _int | Sequence[_int] | None = None,
    *,
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    pin_memory: _bool = False,
    requires_grad: _bool = False,
    check_invariants: _bool | None = None,
    is_coalesced: _bool | None = None,
) -> SparseTensor: ...

sparse_csr: _layout

def sparse_csr_tensor(
    crow_indices: Any,
    col_indices: Any,
    values: Tensor,
    size: _int | Sequence[_int] | None = None,
    *,
    dtype: _dtype | None = None,
    device: _DeviceLike = None,
    pin_memory: _bool = False,
    requires_grad: _bool = False,
    check_invariants: _bool | None = None,
) -> CsrTensor: ...
def split(
    tensor: Tensor, split_size_or_sections: _int | Sequence[_int], dim: _int = 0
) -> tuple[Tensor, ...]: ...
def split_copy(
    input: Tensor, split_size: Any, dim: _int = 0, *, out: Sequence[Tensor] | None = None
) -> tuple[Tensor, ...]: ...
def split_with_sizes(
    input: Tensor, split_sizes: Sequence[_int], dim: _int = 0
) -> tuple[Tensor, ...]: ...
def split_with_sizes_copy(
    input: Tensor,
    split_sizes: Sequence[_int],
    dim: _int = 0,
    *,
    out: Sequence[Tensor] | None = None,
) -> tuple[Tensor, ...]: ...
def spmm(input: Tensor, mat2: Tensor) -> Tensor: ...
def sqrt(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def sqrt_(input: Tensor) -> Tensor: ...
def square(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def square_(input: Tensor) -> Tensor: ...
def squeeze(input: Tensor, dim: _int | Sequence[_int] | None = None) -> Tensor: ...
def squeeze_copy(
    input: Tensor, dim: _int | Sequence[_int] | None = None, *, out: Tensor | None = None
) -> Tensor: ...
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

strided: _layout

def sub(
    input: Tensor, other: _Operand, *, alpha: _complex = 1, out: Tensor | None = None
) -> Tensor: ...
def subtract(
    input: Tensor, other: _Operand, *, alpha: _complex = 1, out: Tensor | None = None
) -> Tensor: ...
def sum(
    input: Tensor,
    dim: _int | Sequence[_int] | None = None,
    keepdim: _bool = False,
    *,
    dtype: _dtype | None = None,
    out: Tensor | None = None,
) -> Tensor: ...
def svd(
    input: Tensor,
    some: _bool = True,
    compute_uv: _bool = True,
    *,
    out: Sequence[Tensor] | None = None,
) -> SVD: ...
def svd_lowrank(
    A: Tensor, q: _int | None = 6, niter: _int | None = 2, M: Tensor | None = None
) -> SVD: ...
def swapaxes(input: Tensor, axis0: _int, axis1: _int) -> Tensor: ...
def swapdims(input: Tensor, dim0: _int, dim1: _int) -> Tensor: ...
def symeig(*args: Any, **named: Any) -> Any: ...
def t(input: Tensor) -> Tensor: ...
def t_copy(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def take(input: Tensor, index: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def take_along_dim(
    input: Tensor, indices: Tensor, dim: _int | None = None, *, out: Tensor | None = None
) -> Tensor: ...
def tan(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def tan_(input: Tensor) -> Tensor: ...
def tanh(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def tanh_(input: Tensor) -> Tensor: ...
def tensor(
    data: Any,
    *,
    dtype: _dtype | _type[_complex] | None = None,
    device: _DeviceLike = None,
    requires_grad: _bool = False,
    pin_memory: _bool = False,
) -> Tensor: ...
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
def transpose_copy(
    input: Tensor, dim0: _int, dim1: _int, *, out: Tensor | None = None
) -> Tensor: ...
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
    *,
    out: Sequence[Tensor] | None = None,
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
    p: _float = 2.0,
    eps: _float = 1e-06,
    swap: _bool = False,
    reduction: _int = 0,
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
def true_divide(
    input: Tensor, other: _Operand, *, rounding_mode: str | None = None, out: Tensor | None = None
) -> Tensor: ...
def trunc(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def trunc_(input: Tensor) -> Tensor: ...

uint1: _dtype
uint16: _dtype
uint2: _dtype
uint3: _dtype
uint32: _dtype
uint4: _dtype
uint5: _dtype
uint6: _dtype
uint64: _dtype
uint7: _dtype
uint8: _dtype

def unbind(input: Tensor, dim: _int = 0) -> tuple[Tensor, ...]: ...
def unbind_copy(
    input: Tensor, dim: _int = 0, *, out: Sequence[Tensor] | None = None
) -> tuple[Tensor, ...]: ...
def unflatten(input: Tensor, dim: _int, sizes: Sequence[_int]) -> Tensor: ...
def unfold_copy(
    input: Tensor, dimension: _int, size: _int, step: _int, *, out: Tensor | None = None
) -> Tensor: ...
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
def unsafe_split_with_sizes(
    input: Tensor, split_sizes: Sequence[_int], dim: _int = 0
) -> tuple[Tensor, ...]: ...
def unsqueeze(input: Tensor, dim: _int) -> Tensor: ...
def unsqueeze_copy(input: Tensor, dim: _int, *, out: Tensor | None = None) -> Tensor: ...
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
def view_as_complex(input: Tensor) -> Tensor: ...
def view_as_complex_copy(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def view_as_real(input: Tensor) -> Tensor: ...
def view_as_real_copy(input: Tensor, *, out: Tensor | None = None) -> Tensor: ...
def view_copy(
    input: Tensor,
    *size: _int | Sequence[_int] | _dtype,
    dtype: _dtype | None = None,
    out: Tensor | None = None,
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
def xlogy(input: _Operand, other: _Operand, *, out: Tensor | None = None) -> Tensor: ...
def xlogy_(input: Tensor, other: _Operand) -> Tensor: ...
def zero_(input: Tensor) -> Tensor: ...
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
