"""Discrete and short-time Fourier transforms."""
