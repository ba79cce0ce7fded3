"""Kernels as WGSL. `kernels.py` is the way in."""
