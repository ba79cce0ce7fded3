"""Reading and writing at computed positions: gather, scatter, masks, brackets, flips, strides."""
