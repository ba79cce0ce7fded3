"""Facts shared by every room.

Owns: dtypes and promotion, shapes and strides, the errors, every environment variable,
bounded caches.
Takes: plain Python values. Gives: small immutable nouns (`DType`, `Spec`) and the functions over
them.
Never: imports NumPy, knows a device's driver, computes on elements.
"""
