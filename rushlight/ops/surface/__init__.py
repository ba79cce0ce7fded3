"""Public forms of ops: in-place methods, `out=`, operators, copies of views, other names."""
