"""Kernels as text.

Owns: the three printers, `llvm`, `cuda` and `wgsl`: `Kernel -> source`.
Takes: kernels. Gives: text that a driver or compiler accepts.
Never: touches a driver, a device or memory.
"""
