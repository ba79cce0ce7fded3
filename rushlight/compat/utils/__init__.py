"""What `torch.utils` has beside data and checkpoints."""
