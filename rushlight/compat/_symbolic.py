"""PyTorch's symbolic numbers, which its compiler traces with: sizes are ints here."""

from __future__ import annotations


class SymInt:
    """The class of symbolic ints in PyTorch; nothing here is an instance of it."""


class SymFloat:
    """The class of symbolic floats in PyTorch; nothing here is an instance of it."""


class SymBool:
    """The class of symbolic bools in PyTorch; nothing here is an instance of it."""


def sym_int(a: float) -> int:
    """The int of a number, towards zero.

    Args:
        a (float): A number.
    """
    return int(a)


def sym_float(a: float) -> float:
    """The float of a number.

    Args:
        a (float): A number.
    """
    return float(a)


def sym_max(a: float, b: float) -> float:
    """The larger of two numbers.

    Args:
        a (float): A number.
        b (float): Another.
    """
    return max(a, b)


def sym_min(a: float, b: float) -> float:
    """The smaller of two numbers.

    Args:
        a (float): A number.
        b (float): Another.
    """
    return min(a, b)


def sym_not(a: bool) -> bool:
    """The negation of a bool.

    Args:
        a (bool): A bool.
    """
    return not a
