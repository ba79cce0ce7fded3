"""Loop shapes around scalar bodies.

Owns: `Map`, `Rowwise`, `Scan`, `Contract`, `Attend`, `Gather`, `Scatter`; their verifier and
printer.
Takes: scalar expressions, dtypes, layout classes. Gives: immutable, hashable kernels that a device
can build.
Never: knows ops, gradients, tensors or devices.
"""
