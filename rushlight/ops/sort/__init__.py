"""Sorting, ranks, binary search, histograms, unique values."""
