"""Rushlight."""
