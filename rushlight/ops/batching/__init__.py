"""Batching rules: how a call under `vmap` runs on the whole batch, one rule per kernel family.

Owns: the rules, and the lookup of an op's rule (`rules.py`). See Note [Batching].
Takes: a `BatchPlan`, operands of which some are batched, the call's numbers.
Gives: physical results, whose leading dimensions are the batch's levels.
Never: a loop over the batch; a kernel of its own.
"""
