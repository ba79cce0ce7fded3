"""PyTorch's `torch.compiler.config`: settings of its compiler, which have no effect."""

from __future__ import annotations

recompile_limit = 8
accumulated_recompile_limit = 256
job_id: str | None = None
verbose = fail_on_recompile_limit_hit = force_disable_caches = False
assume_static_by_default = automatic_dynamic_shapes = dynamic_shapes = True
allow_unspec_int_on_nn_module = wrap_top_frame = skip_tensor_guards_with_matching_dict_tags = False
capture_scalar_outputs = capture_dynamic_output_shape_ops = False
cpp_symbolic_shape_guards = enable_cpp_symbolic_shape_guards = False
reorderable_logging_functions: set[object] = set()
