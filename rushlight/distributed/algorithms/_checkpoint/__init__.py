"""Checkpointed modules, under PyTorch's names."""
