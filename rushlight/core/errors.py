"""The errors a program can catch. Each message names the op, the operands and the fix."""

from __future__ import annotations

from typing import Any


class RushlightError(RuntimeError):
    """Base of the engine's own errors; a RuntimeError, as in PyTorch."""


class ShapeError(RushlightError, ValueError):
    """Operands whose shapes do not fit the op."""


class BoundsError(RushlightError, IndexError):
    """An index or a dimension out of range; PyTorch raises RuntimeError or IndexError."""


class RowError(ShapeError, AssertionError):
    """A row that a table does not have; PyTorch raises RuntimeError or AssertionError."""


class DTypeError(RushlightError, TypeError):
    """An element type the op or the device does not take."""


class KindError(RushlightError, TypeError):
    """An argument that is no tensor or no number; PyTorch raises RuntimeError or TypeError."""


class OperandError(DTypeError):
    """An operand that is neither a tensor nor a number; an operator then returns NotImplemented."""


class NestingError(ShapeError, TypeError):
    """Nested lists of unequal lengths or without end; PyTorch: ValueError or TypeError."""


class UnsupportedDType(DTypeError, NotImplementedError):
    """An op that does not exist for a dtype.

    PyTorch raises NotImplementedError for many of those.
    """


class LayoutError(RushlightError, NotImplementedError):
    """A sparse tensor where a dense one is needed, or the other way round."""


class SparseOperandError(LayoutError, AttributeError):
    """A sparse tensor was given to an op of dense tensors: raised when the op reads its `_spec`."""

    obj: Any  # the sparse tensor

    def __init__(self, message: str, obj: Any) -> None:
        super().__init__(message)
        self.name = "_spec"
        self.obj = obj


class DeviceError(RushlightError):
    """Operands on different devices, or work a device cannot do."""


class DeviceUnavailable(DeviceError):
    """A device that is not available: its name, the reason, and what to install."""

    def __init__(self, name: str, reason: str, fix: str) -> None:
        super().__init__(f"device {name!r} is not available: {reason}. {fix}")
        self.name = name
        self.reason = reason
        self.fix = fix


class NoElements(DeviceError, NotImplementedError):
    """The elements of a tensor on a device without memory are asked for."""


class OutOfMemoryError(RushlightError, MemoryError):
    """The device has no memory left for a request."""


class BudgetError(OutOfMemoryError):
    """A request that exceeds the budget even after every rebuildable value was dropped.

    `required_bytes`, also named `least`, is the limit for the whole step, as far as the step was
    recorded when it failed: Note [Requirement]. `op` is the call that failed, `place` the user's
    line, `module` the path of the module being called. `holders` has the bytes in use by kind.
    """

    def __init__(
        self,
        message: str,
        required_bytes: int,
        *,
        op: str = "",
        place: str = "",
        module: str = "",
        holders: dict[str, int] | None = None,
    ) -> None:
        super().__init__(message)
        self.required_bytes = self.least = required_bytes
        self.op = op
        self.place = place
        self.module = module
        self.holders = holders or {}


class ForeignAccess(RushlightError):
    """A launch or a copy beyond live memory; `RUSHLIGHT_CHECK=1` finds it before it runs."""


class LinAlgError(RushlightError):
    """A matrix that a factorisation refuses: singular, not positive definite, not converging."""


class DivisionByZero(RushlightError, ZeroDivisionError):
    """Integer division by zero, on devices that detect it."""


class RushlightWarning(UserWarning):
    """The result is right, but was not made as one may expect: an op left its device, say."""


class NotDifferentiable(RushlightError, NotImplementedError):
    """A gradient reached an op that has no derivative."""


class GradcheckError(RushlightError):
    """A derivative that finite differences contradict: which input and output, by how much."""


class InplaceError(RushlightError):
    """A value that is still needed was overwritten in place."""


class AnomalyError(RushlightError):
    """A NaN or an infinity that no operand had; raised while anomalies are detected.

    `what` says what was found; `op` is the op that was called (in backward, the op whose derivative
    ran); `place` is the user's line.
    """

    def __init__(
        self, message: str, what: str, op: str, place: str, in_backward: bool = False
    ) -> None:
        super().__init__(message)
        self.what = what
        self.op = op
        self.place = place
        self.in_backward = in_backward


class ExactnessError(RushlightError):
    """Bits that differ where they must be equal: between a run and its repetition or replay.

    `op`, `module` and `place` (the user's line) name the first call that differs, `shapes` are its
    operands'. `count` elements differ, by at most `largest`; both are None where only a digest of
    the first bits was kept. `call` is the call's number in its region.
    """

    def __init__(
        self,
        message: str,
        *,
        op: str = "",
        module: str = "",
        place: str = "",
        shapes: tuple[tuple[int, ...], ...] = (),
        count: int | None = None,
        largest: float | None = None,
        call: int | None = None,
    ) -> None:
        super().__init__(message)
        self.op = op
        self.module = module
        self.place = place
        self.shapes = shapes
        self.count = count
        self.largest = largest
        self.call = call


class WrongResult(RushlightError):
    """A result that another device does not confirm; raised while `shadow` is on.

    `op` was called at `place` with operands of `shapes` on `device`.
    """

    def __init__(
        self,
        message: str,
        *,
        op: str = "",
        device: str = "",
        shapes: tuple[tuple[int, ...], ...] = (),
        place: str = "",
    ) -> None:
        super().__init__(message)
        self.op = op
        self.device = device
        self.shapes = shapes
        self.place = place


class GraphFreedError(RushlightError):
    """Backward over a graph whose saved values were freed."""
