"""What `torch.cuda` has beside `rushlight.cuda`."""
