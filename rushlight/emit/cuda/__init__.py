"""Kernels as CUDA C. `kernels.py` is the way in."""
