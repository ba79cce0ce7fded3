"""What `torch.distributed.tensor.experimental` has beside `implicit_replication`."""
