"""The families of ops: dtype and shape rules, loops, derivatives.

Owns: the families map, rowwise, contract, view, indexed and composite.
Takes: formulas. Gives: ops whose plans are built kernels.
Never: names a particular op.
"""
