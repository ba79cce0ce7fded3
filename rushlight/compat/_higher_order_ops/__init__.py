"""PyTorch's `torch._higher_order_ops`: ops that take a function. Here: scans."""
