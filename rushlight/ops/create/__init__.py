"""New tensors: constants, ranges, host data, shapes of other tensors."""
