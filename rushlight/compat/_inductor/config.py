"""PyTorch's `torch._inductor.config`: settings of its compiler, which have no effect."""

from __future__ import annotations

from types import SimpleNamespace

coordinate_descent_tuning = coordinate_descent_check_all_directions = False
epilogue_fusion = True
fx_graph_cache = fx_graph_remote_cache = False
max_autotune = max_autotune_gemm = False
force_fuse_int_mm_with_mul = use_mixed_mm = False
conv_1x1_as_mm = False
freezing = False
compile_threads = 1
triton = SimpleNamespace(unique_kernel_names=False, cudagraphs=False, cudagraph_trees=False)
cpp = SimpleNamespace(threads=-1, simdlen=None)
