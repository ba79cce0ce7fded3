"""Every op, one declaration each.

Owns: names, accepted dtypes, shape rules, formulas, derivatives, docs; the families that turn them
into kernels.
Takes: values, Python numbers, static parameters. Gives: values, recorded on the tape.
Never: imports a particular device, accesses memory other than through the allocator.
"""
