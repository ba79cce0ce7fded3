"""What ops of one kind share: dtype and shape rules, loops, derivatives.

Owns: the families map, rowwise, contract, view, indexed and composed.
Takes: formulas. Gives: ops whose plans are built kernels.
Never: names a particular op.
"""
