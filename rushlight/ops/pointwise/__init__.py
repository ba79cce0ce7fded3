"""Elementwise ops: one scalar formula each."""
