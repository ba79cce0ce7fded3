"""What `torch.distributed.tensor` has beside DTensor."""
