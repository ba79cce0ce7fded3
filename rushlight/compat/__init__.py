"""PyTorch's older and native names.

Owns: names that PyTorch keeps for old programs, and functions beneath its public ones.
Takes: public ops. Gives: names of the package.
Never: holds behaviour that users of `rushlight` itself need.
"""
