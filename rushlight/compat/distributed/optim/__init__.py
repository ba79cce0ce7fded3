"""What `torch.distributed.optim` has beside `rushlight.distributed.optim`."""
