"""Layers as functions: convolution, pooling, norms, attention, embeddings, losses."""
