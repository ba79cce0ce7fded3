"""What `torch.autograd` has beside gradients."""
