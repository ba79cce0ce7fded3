"""What `torch.utils.data` has beside datasets and loaders."""
