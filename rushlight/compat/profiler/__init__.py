"""What `torch.profiler` has beside `rushlight.profiler`."""
