"""Kernels as LLVM IR. `kernels.py` is the way in."""
