"""Sorting, ranks, binary search, unique values."""
