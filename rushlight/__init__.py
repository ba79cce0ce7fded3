"""Rushlight: tensors and reverse-mode autograd with PyTorch's names, inside a byte budget.

It runs on any device.
"""

from __future__ import annotations

import importlib as _importlib
import math as _math
from typing import Any as _Any

from rushlight import tensor as _tensor_module, version as _version
from rushlight.core import config as _config
from rushlight.core.dtypes import (
    NAMED_ONLY as _NAMED_ONLY,
    DType as dtype,
    bfloat16,
    bool_ as bool,
    complex64,
    complex128,
    float8_e4m3fn,
    float8_e4m3fnuz,
    float8_e5m2,
    float8_e5m2fnuz,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
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
    ExactnessError,
    GraphFreedError,
    InplaceError,
    NotDifferentiable,
    OutOfMemoryError,
    RushlightError,
    RushlightWarning,
    ShapeError,
    WrongResult,
)
from rushlight.lazy import Names as _Names
from rushlight.naming import device, get_default_device
from rushlight.ops import declared as _declared
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
from rushlight.ops.surface import public as _public
from rushlight.tape.record.state import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)

Tensor = _tensor_module.Tensor
Size = _tensor_module.Size
tensor = _tensor_module.tensor
as_tensor = _tensor_module.as_tensor

pi = _math.pi
inf = _math.inf
nan = _math.nan
e = _math.e
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
__version__ = _version.__version__

# All other names load when first used. See Note [Lazy names].
_NAMES = _Names(__name__)
_NAMES.modules(
    """
    accelerator amp array_api autograd checks compat cpu cuda determinism distributed distributions
    dlpack explaining fft foreach func io linalg mapping masked memory nn optim random serialization
    profiler quasirandom settings sharing signal sparse special storage testing utils
    """
)
_NAMES.made(_NAMED_ONLY, _NAMED_ONLY.__getitem__)
_NAMES.made(["chalf"], lambda name: _NAMED_ONLY["complex32"])
_NAMES.defined(
    {
        "rushlight.compat": (
            "_C _dynamo _jit_internal _subclasses ao backends compiler export "
            "futures fx hub jit library mps multiprocessing onnx overrides package "
            "return_types torch_version types xpu __config__"
        ),
        "rushlight.compat.futures": "Future",
        "rushlight.cuda.streams": "Event Stream",
        "rushlight.compat.jit": "ScriptFunction ScriptModule",
        "rushlight.compat._symbolic": (
            "SymBool SymFloat SymInt sym_float sym_int sym_max sym_min sym_not"
        ),
        "rushlight.compat.compiler": "compile",
        "rushlight.compat._C": "DispatchKey DispatchKeySet PyTorchFileReader",
        "rushlight.compat.torch_function": "DisableTorchFunctionSubclass",
        "rushlight.utils.dlpack": "to_dlpack",
        "rushlight.settings": (
            "get_device_module is_warn_always_enabled set_flush_denormal set_warn_always"
        ),
    }
)
_NAMES.made(_declared.TOP, _public.op_of_package)
_NAMES.defined(
    {
        "rushlight.amp": (
            "GradScaler autocast autocast_decrement_nesting autocast_increment_nesting "
            "clear_autocast_cache get_autocast_cpu_dtype get_autocast_dtype "
            "get_autocast_gpu_dtype is_autocast_cache_enabled is_autocast_cpu_enabled "
            "is_autocast_enabled set_autocast_cache_enabled set_autocast_cpu_dtype "
            "set_autocast_cpu_enabled set_autocast_dtype set_autocast_enabled "
            "set_autocast_gpu_dtype"
        ),
        "rushlight.checks": (
            "assert_async=_assert_async assert_true=_assert check=_check check_index=_check_index "
            "check_is_size=_check_is_size check_not_implemented=_check_not_implemented "
            "check_tensor_all=_check_tensor_all check_tensor_all_with=_check_tensor_all_with "
            "check_type=_check_type check_value=_check_value check_with=_check_with"
        ),
        "rushlight.compat.legacy": (
            "BFloat16Tensor BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor "
            "IntTensor LongTensor ShortTensor eig int_mm=_int_mm lstsq matrix_rank range "
            "set_default_tensor_type solve symeig"
        ),
        "rushlight.cpu": (
            "get_num_interop_threads get_num_threads set_num_interop_threads set_num_threads"
        ),
        "rushlight.determinism": (
            "are_deterministic_algorithms_enabled get_deterministic_debug_mode "
            "is_deterministic_algorithms_warn_only_enabled set_deterministic_debug_mode "
            "use_deterministic_algorithms"
        ),
        "rushlight.compat.hook": "patch",
        "rushlight.dlpack": "take=from_dlpack",
        "rushlight.explaining": "explain",
        "rushlight.report.drawing": "graph",
        "rushlight.report.layers": "summary",
        "rushlight.func.vmap": "vmap",
        "rushlight.interop": "from_numpy",
        "rushlight.io": "load save",
        "rushlight.memory.budget": "get_budget set_budget",
        "rushlight.nn.functional": "celu_ rrelu_ selu_ threshold_",
        "rushlight.ops.create.dtype_limits": "finfo iinfo",
        "rushlight.ops.surface.metadata_functions": "is_tensor",
        "rushlight.printing": "set_printoptions",
        "rushlight.random": (
            "Generator default_generator get_rng_state initial_seed manual_seed seed set_rng_state"
        ),
        "rushlight.settings": (
            "foreach_copy_=_foreach_copy_ get_float32_matmul_precision is_storage "
            "set_float32_matmul_precision typename"
        ),
        "rushlight.storage": "TypedStorage UntypedStorage",
        "rushlight.tape.anomaly.mode": "is_anomaly_check_nan_enabled is_anomaly_enabled",
        "rushlight.tape.shadow.mode": "shadow",
    },
    _public.with_its_out,
)
_NAMES.defined(
    {
        "rushlight.compat.natives": (
            "_scaled_mm affine_grid_generator alpha_dropout_ batch_norm "
            "binary_cross_entropy_with_logits conv_tbc convolution cosine_embedding_loss dropout_ "
            "embedding feature_alpha_dropout_ feature_dropout_ grid_sampler group_norm gru "
            "hinge_embedding_loss instance_norm kl_div layer_norm lstm "
            "margin_ranking_loss max_pool1d_with_indices native_dropout norm_except_dim "
            "poisson_nll_loss rnn_relu rnn_tanh select_copy slice_copy split_copy "
            "triplet_margin_loss unsafe_split_with_sizes view_as_complex_copy view_as_real_copy"
        ),
        "rushlight.ops.surface.metadata_functions": "broadcast_shapes is_conj is_inference is_neg",
        "rushlight.settings": (
            "asarray can_cast detach detach_copy from_file frombuffer get_default_dtype get_device "
            "is_nonzero is_same_size is_signed promote_types result_type set_default_dtype"
        ),
        "rushlight.sparse.coo": "sparse_coo_tensor",
        "rushlight.sparse.csr": "sparse_compressed_tensor sparse_csr_tensor",
        "rushlight.sparse.compression": (
            "rows_to_bounds=_convert_indices_from_coo_to_csr "
            "bounds_to_coordinates=_convert_indices_from_csr_to_coo"
        ),
        "rushlight.sparse": "mm=spmm mm=dsmm",
    },
    _public.of_package,
)
_NAMES.defined(
    {
        "rushlight.ops.view.layouts": "clone_of=clone",
        "rushlight.ops.surface.metadata_functions": "is_complex is_floating_point numel",
    },
    _public.of_tensors,
)
_NAMES.made(
    [*_declared.TOP_IN_PLACE, "detach_", "fill_", "resize_as_", "zero_"],
    lambda name: _public.in_place_of_package(Tensor, name),
)
_WORDS = (
    *("BFloat16", "Bool", "Byte", "Char", "ComplexDouble", "ComplexFloat", "Double", "Float"),
    *("Half", "Int", "Long", "Short", "UInt16", "UInt32", "UInt64"),
)
_NAMES.made(
    [f"{word}Storage" for word in _WORDS],
    lambda name: _importlib.import_module("rushlight.storage").KINDS[name],
)
__all__ = sorted(
    name for name in {*globals(), *_NAMES.sources} if name[0] != "_" and name != "annotations"
)


def __getattr__(name: str) -> _Any:
    if name.startswith("_foreach_") and name not in _NAMES.sources:
        _NAMES.made(_functions_of_lists(), lambda name: _functions_of_lists()[name])
    return _NAMES.find(name)


def __dir__() -> list[str]:
    return sorted({*_NAMES.listed(), *_functions_of_lists()})


def _functions_of_lists() -> dict[str, _Any]:
    found: dict[str, _Any] = _importlib.import_module("rushlight.foreach").FUNCTIONS
    return found


_report = _config.take_report_path()
if _report:
    _importlib.import_module("rushlight.memory.recording").report_at_exit(_report)
_trace = _config.take_profile_path()
if _trace:
    _importlib.import_module("rushlight.profiler.profiling").profile_at_exit(_trace)
if _config.shadow_fraction():
    _importlib.import_module("rushlight.tape.shadow.mode").shadow_program(_config.shadow_fraction())
if _config.program_budget():
    _importlib.import_module("rushlight.memory.budget").set_budget_from_environment()
