"""Rejection samplers: the results are random, and tested in test_samplers.py."""

from __future__ import annotations

from tests.catalog.rows.creation import random

ROWS = [random(name) for name in ("poisson", "binomial", "_standard_gamma", "_sample_dirichlet")]
