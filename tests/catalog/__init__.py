"""One row per public op, and what runs a row: forward, gradients, `vmap`."""
