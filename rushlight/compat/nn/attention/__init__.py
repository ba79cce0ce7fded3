"""What `torch.nn.attention` has beside `sdpa_kernel`."""
