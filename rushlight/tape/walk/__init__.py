"""Backward passes: the order of nodes, sums of gradients, hooks, worker threads."""
