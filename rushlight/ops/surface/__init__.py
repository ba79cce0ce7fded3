"""Public forms of ops: in-place methods, `out=`, operators, PyTorch's other names."""
