"""What `torch.testing` has beside `rushlight.testing`."""
