"""Rushlight: tensors and reverse-mode autograd with PyTorch's names, on any device, inside a byte budget."""

from __future__ import annotations

import math

from rushlight import (
    accelerator,
    amp,
    array_api,
    autograd,
    cpu,
    cuda,
    distributions,
    fft,
    foreach as _foreach,
    func,
    linalg,
    mapping as _mapping,
    masked,
    memory,
    nn,
    optim,
    random,
    serialization,
    settings as _settings,
    signal,
    sparse,
    special,
    storage,
    tensor as _tensor_module,
    testing,
    utils,
    version,
)
from rushlight.amp import GradScaler, autocast
from rushlight.checks import (
    assert_async as _assert_async,
    assert_true as _assert,
    check as _check,
    check_index as _check_index,
    check_is_size as _check_is_size,
    check_not_implemented as _check_not_implemented,
    check_tensor_all as _check_tensor_all,
    check_tensor_all_with as _check_tensor_all_with,
    check_type as _check_type,
    check_value as _check_value,
    check_with as _check_with,
)
from rushlight.compat import natives as _natives
from rushlight.compat.legacy import (
    BFloat16Tensor,
    BoolTensor,
    ByteTensor,
    CharTensor,
    DoubleTensor,
    FloatTensor,
    HalfTensor,
    IntTensor,
    LongTensor,
    ShortTensor,
    eig,
    int_mm as _int_mm,
    lstsq,
    matrix_rank,
    range,
    set_default_tensor_type,
    solve,
    symeig,
)
from rushlight.core import dtypes as _dtypes
from rushlight.core.dtypes import (
    DType as dtype,
    bfloat16,
    bool_ as bool,
    complex64,
    complex128,
    float16,
    float32,
    float64,
    get_default as get_default_dtype,
    int8,
    int16,
    int32,
    int64,
    set_default as set_default_dtype,
    uint8,
    uint16,
    uint32,
    uint64,
)
from rushlight.core.errors import (
    AnomalyError,
    BoundsError,
    BudgetError,
    DeviceError,
    DeviceUnavailable,
    DivisionByZero,
    DTypeError,
    GraphFreedError,
    InplaceError,
    NotDifferentiable,
    OutOfMemoryError,
    RushlightError,
    RushlightWarning,
    ShapeError,
)
from rushlight.cpu import (
    get_num_interop_threads,
    get_num_threads,
    set_num_interop_threads,
    set_num_threads,
)
from rushlight.determinism import (
    are_deterministic_algorithms_enabled,
    get_deterministic_debug_mode,
    is_deterministic_algorithms_warn_only_enabled,
    set_deterministic_debug_mode,
    use_deterministic_algorithms,
)
from rushlight.dlpack import take as from_dlpack
from rushlight.explaining import explain
from rushlight.func.vmap import vmap
from rushlight.interop import from_numpy
from rushlight.io import load, save
from rushlight.ops.create.creation import (
    channels_last,
    channels_last_3d,
    contiguous_format,
    preserve_format,
    set_default_device,
    sparse_coo,
    sparse_csr,
    strided,
)
from rushlight.ops.registry import REGISTRY as _REGISTRY
from rushlight.ops.surface import (
    inplace_views as _inplace_views,
    keywords as _keywords,
    layouts as _layouts,
    out as _out,
    queries as _queries,
)
from rushlight.ops.surface.queries import (
    broadcast_shapes,
    default_device_name as _default_device_name,
    finfo,
    iinfo,
    is_complex,
    is_conj,
    is_floating_point,
    is_inference,
    is_neg,
    is_tensor,
    numel,
)
from rushlight.printing import set_printoptions
from rushlight.random import (
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)
from rushlight.settings import (
    asarray,
    can_cast,
    detach,
    detach_copy,
    foreach_copy_ as _foreach_copy_,
    from_file,
    frombuffer,
    get_autocast_cpu_dtype,
    get_autocast_dtype,
    get_autocast_gpu_dtype,
    get_device,
    get_float32_matmul_precision,
    is_autocast_cpu_enabled,
    is_autocast_enabled,
    is_nonzero,
    is_same_size,
    is_signed,
    is_storage,
    promote_types,
    result_type,
    set_float32_matmul_precision,
    typename,
)
from rushlight.sparse import (
    mm as spmm,
    sparse_compressed_tensor,
    sparse_coo_tensor,
    sparse_csr_tensor,
)
from rushlight.storage import TypedStorage, UntypedStorage
from rushlight.tape.anomaly.mode import is_anomaly_check_nan_enabled, is_anomaly_enabled
from rushlight.tape.record.state import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)

Tensor = _tensor_module.Tensor
device = _tensor_module.device
Size = _tensor_module.Size
tensor = _tensor_module.tensor
as_tensor = _tensor_module.as_tensor

pi = math.pi
inf = math.inf
nan = math.nan
e = math.e
newaxis = None
memory_format = type(contiguous_format)
layout = type(strided)

float = float32
double = float64
half = float16
short = int16
int = int32
long = int64
cfloat = complex64
cdouble = complex128


def get_default_device() -> device:
    """The device on which new tensors are made."""
    return device(_default_device_name())


globals().update({name: entry.function for name, entry in _REGISTRY.items() if entry.top})
globals().update(storage.KINDS)
globals().update({each.__name__: each for each in _natives.PUBLIC})
clone = _layouts.clone_of
for _module in (linalg, masked, nn.init, signal.windows):
    _out.check_kinds(vars(_module))
_out.check_kinds(vars(special), ["softmax", "log_softmax"])
_out.check_kinds(vars(nn.functional), nn.functional.CHECKED)
_out.check_kinds(vars(sparse), sparse.FUNCTIONS)
_out.check_kinds(globals(), [each.__name__ for each in _natives.PUBLIC])
_out.check_kinds(
    globals(), ["spmm", *(name for name in sparse.FUNCTIONS if name.startswith("sparse_"))]
)
_out.check_kinds(globals(), [each.__name__ for each in (*_queries.QUESTIONS, *_settings.QUESTIONS)])
_out.accept(globals(), lambda entry: entry.out_top)
_out.check_tensors(globals(), [name for name, entry in _REGISTRY.items() if entry.top])
_out.check_tensors(globals(), ["is_complex", "is_floating_point", "numel"])
_out.accept(vars(linalg))
_out.accept(vars(fft))
_out.accept(vars(special), lambda entry: entry.special != "")
_out.accept(
    vars(nn.functional),
    lambda entry: not entry.top and not entry.special and not entry.name.startswith("fft_"),
)
_out.check_tensors(
    vars(nn.functional), [name for name, entry in _REGISTRY.items() if not entry.top]
)
_in_place = [f"{name}_" for name, entry in _REGISTRY.items() if entry.inplace_top]
_in_place += [method.__name__ for method in _inplace_views.TOP]
globals().update({name: _keywords.of_input(Tensor, name) for name in _in_place})
_out.check_kinds(globals(), _in_place)
del _in_place
globals().update(
    {f"{name}_": vars(nn.functional)[f"{name}_"] for name in ("celu", "rrelu", "selu", "threshold")}
)
globals().update(_foreach.functions())
_out.settle_names(globals())
for _module in (nn.functional, linalg, fft, special, sparse):
    _out.settle_names(vars(_module))
__version__ = version.__version__
