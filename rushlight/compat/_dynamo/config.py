"""PyTorch's `torch._dynamo.config`: settings of its compiler, which have no effect."""

from __future__ import annotations

suppress_errors = False
verbose = False
cache_size_limit = recompile_limit = 8
accumulated_cache_size_limit = 256
capture_scalar_outputs = capture_dynamic_output_shape_ops = False
optimize_ddp: bool | str = True
disable = True
automatic_dynamic_shapes = assume_static_by_default = True
guard_nn_modules = inline_inbuilt_nn_modules = True
allow_unspec_int_on_nn_module = force_parameter_static_shapes = False
