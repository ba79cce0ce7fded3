"""Batched values: `vmap` runs a call on the whole batch."""
