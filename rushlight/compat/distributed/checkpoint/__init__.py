"""What `torch.distributed.checkpoint` has beside `rushlight.distributed.checkpoint`."""
