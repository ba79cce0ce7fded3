"""What `torch.distributed.pipelining` has beside `rushlight.distributed.pipelining`."""
