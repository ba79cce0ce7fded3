"""What `torch.cuda.amp` has beside `rushlight.cuda.amp`."""
