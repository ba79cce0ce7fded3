"""Products, factorisations, solvers and functions of matrices."""
