"""PyTorch's files beneath `torch.utils.benchmark`."""
