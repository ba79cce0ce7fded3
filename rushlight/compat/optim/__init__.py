"""What `torch.optim` has beside `rushlight.optim`."""
