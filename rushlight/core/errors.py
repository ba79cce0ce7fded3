"""The errors a program can catch. Each message names the op, the operands and the fix."""

from __future__ import annotations

from typing import Any


class RushlightError(RuntimeError):
    """Base of the engine's own errors; a RuntimeError, as in PyTorch."""


class ShapeError(RushlightError, ValueError):
    """Operands whose shapes do not fit the op."""


class BoundsError(RushlightError, IndexError):
    """An index or a dimension without elements; some of PyTorch's functions raise RuntimeError, some IndexError."""


class RowError(ShapeError, AssertionError):
    """A row that a table does not have; some of PyTorch's functions raise RuntimeError, some AssertionError."""


class DTypeError(RushlightError, TypeError):
    """An element type the op or the device does not take."""


class KindError(RushlightError, TypeError):
    """Something that is no tensor, or no number, where one is needed; PyTorch raises either of the two."""


class OperandError(DTypeError):
    """An operand that is neither a tensor nor a number; an operator leaves it to the operand's own class."""


class NestingError(ShapeError, TypeError):
    """Nested lists that are no tensor: of unequal lengths, or without end; PyTorch raises ValueError or TypeError."""


class UnsupportedDType(DTypeError, NotImplementedError):
    """An op that is not there for an element type; PyTorch raises NotImplementedError for many of those."""


class LayoutError(RushlightError, NotImplementedError):
    """A sparse tensor where a dense one is needed, or the other way round."""


class SparseOperandError(LayoutError, AttributeError):
    """An op that knows dense tensors was given a sparse one: raised by asking it for its `spec`."""

    obj: Any  # the sparse tensor

    def __init__(self, message: str, obj: Any) -> None:
        super().__init__(message)
        self.name = "spec"
        self.obj = obj


class DeviceError(RushlightError):
    """Operands on different devices, or work a device cannot do."""


class DeviceUnavailable(DeviceError):
    """A device that is not there: which one, why, and what to install."""

    def __init__(self, name: str, reason: str, fix: str) -> None:
        super().__init__(f"device {name!r} is not available: {reason}. {fix}")
        self.name = name
        self.reason = reason
        self.fix = fix


class OutOfMemoryError(RushlightError, MemoryError):
    """The device itself has no room for a request."""


class BudgetError(OutOfMemoryError):
    """A request that no dropping of rebuildable values can bring under the budget."""

    def __init__(self, message: str, least: int) -> None:
        super().__init__(message)
        self.least = least


class ForeignAccess(RushlightError):
    """A launch or a copy whose operands reach outside of live memory; found by `RUSHLIGHT_CHECK=1` before it runs."""


class LinAlgError(RushlightError):
    """A matrix that a factorisation cannot handle: singular, not positive definite, not converging."""


class DivisionByZero(RushlightError, ZeroDivisionError):
    """Integers divided by zero, where the device can tell."""


class RushlightWarning(UserWarning):
    """Something works, but not as a reader of the program would expect: an op left its device, for one."""


class NotDifferentiable(RushlightError, NotImplementedError):
    """A gradient reached an op that has no derivative."""


class GradcheckError(RushlightError):
    """A derivative that differences of the function do not agree with: which input, which output, by how much."""


class InplaceError(RushlightError):
    """A value that is still needed was overwritten."""


class AnomalyError(RushlightError):
    """A NaN or an infinity that no operand had; raised while anomalies are detected.

    `what` says what was met, `op` is the op that was called, in backward that whose derivative it was; `place` says where
    in the program.
    """

    def __init__(
        self, message: str, what: str, op: str, place: str, in_backward: bool = False
    ) -> None:
        super().__init__(message)
        self.what = what
        self.op = op
        self.place = place
        self.in_backward = in_backward


class GraphFreedError(RushlightError):
    """Backward over a graph whose saved values were given back."""
