"""Optimisers' formulas as kernels, and steps that write all of a model or nothing."""
