"""Reductions along dimensions, running reductions, statistics, softmax."""
