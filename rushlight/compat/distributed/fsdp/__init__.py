"""What `torch.distributed.fsdp` has beside `rushlight.distributed.fsdp`."""
