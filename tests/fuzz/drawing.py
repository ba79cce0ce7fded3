"""Random arguments: tensors of every layout, numbers at the ends of their ranges, wrong kinds.

An `Operand` is a tensor before it is made: its stored array, its dtype, and the view of it as code,
so that any library with PyTorch's names can make it, and it can be printed. Shapes and dtypes are
few: every pair of them is a kernel.
"""

from __future__ import annotations

import copy
import math
import random
from dataclasses import dataclass, field
from functools import cache
from types import CodeType
from typing import Any

import numpy as np

SHAPES = (
    *((), (1,), (3,), (5,), (0,), (2, 3), (3, 4), (4, 4), (1, 4), (3, 1), (0, 3), (3, 0), (40,)),
    *(
        (2, 3, 4),
        (2, 0, 3),
        (1, 1, 1),
        (2, 3, 4, 4),
        (1, 2, 5, 5),
        (2, 1, 3, 1, 2),
        (1, 2, 1, 3, 1, 2),
        (300,),
    ),
)
DTYPES = (
    "float32",
    "int64",
    "float64",
    "bool",
    "uint8",
    "int32",
    "float16",
    "bfloat16",
    "complex64",
    "int8",
    "int16",
)
RARE = ("complex128", "uint16", "uint32", "uint64")
INTEGERS = (0, 1, 2, 3, -1, -2, -3, 5, 7, 16)
EDGES = (
    *(-1, 0, 1, 2**31 - 1, 2**31, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64, 10**30),
    *(-(2**31), -(2**32), -(2**40), -(2**62), -(2**63), -(2**63) - 1, -100, 100),
)
FLOATS = (0.5, 1.0, -1.5, 0.0, -0.0, 2.0, 1e-8, 3.7, 100.0)
FLOAT_EDGES = (
    math.nan,
    math.inf,
    -math.inf,
    1e308,
    -1e308,
    5e-324,
    1e-308,
    2.0**63,
    1e20,
    -0.0,
    0.0,
)
WORDS = (
    *(
        "mean",
        "sum",
        "none",
        "reflect",
        "constant",
        "replicate",
        "circular",
        "bilinear",
        "nearest",
        "bicubic",
        "fro",
    ),
    *(
        "trunc",
        "floor",
        "prod",
        "amax",
        "amin",
        "linear",
        "lower",
        "higher",
        "midpoint",
        "same",
        "valid",
        "tanh",
        "ij",
    ),
    *(
        "left",
        "right",
        "reduced",
        "complete",
        "r",
        "ortho",
        "backward",
        "forward",
        "cpu",
        "L",
        "U",
        "area",
        "",
        "nuc",
    ),
)
THINGS = (
    *(
        None,
        True,
        False,
        [],
        (),
        [1.5],
        [None],
        (1, None),
        {},
        {"a": 1},
        b"ab",
        1 + 2j,
        slice(None),
        Ellipsis,
    ),
    *(
        object(),
        range(3),
        int,
        np.array(2),
        np.array([1, 2]),
        np.float32(1.5),
        np.float64("nan"),
        set(),
    ),
    *([[1, 2], [3]], "0", np.bool_(True)),
)
_POOL = np.random.default_rng(7)
_COMMON = np.round(_POOL.normal(0, 1.5, 4096), 2)
_COUNTS = _POOL.integers(-3, 4, 4096)
_ROUGH_FLOATS = np.array(
    [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 1e30, -1e30, 1e-40, 2.5, 65504.0]
)
_ROUGH_COUNTS = np.array(
    [-1, 0, 1, 5, 100, -100, 2**31 - 1, -(2**31), 2**31, 2**62, 2**63 - 1, -(2**63)]
)


@dataclass
class Operand:
    """A tensor to be made: `array` is stored as `dtype`.

    `view` is code that is applied to `stored`.
    """

    array: np.ndarray
    dtype: str
    view: str = ""
    grad: bool = False
    base: Any = field(default=None, repr=False, compare=False)  # the stored tensor, once it is made

    def build(self, library: Any) -> Any:
        base = library.tensor(self.array)
        wanted = getattr(library, self.dtype)
        self.base = base if base.dtype == wanted else base.to(wanted)
        made = eval(compiled(self.view), {"stored": self.base}) if self.view else self.base
        return made.detach().requires_grad_() if self.grad else made

    def text(self, name: str = "rushlight") -> str:
        if self.array.size <= 40:
            stored = f"{name}.tensor({listed(self.array)}, dtype={name}.{self.dtype})"
        else:
            first = listed(self.array.reshape(-1)[0])
            stored = f"{name}.full({tuple(self.array.shape)}, {first}, dtype={name}.{self.dtype})"
        return f"{stored}{self.view}{'.requires_grad_()' if self.grad else ''}"


@cache
def compiled(view: str) -> CodeType:
    return compile(f"stored{view}", "<view>", "eval")


def listed(array: np.ndarray) -> str:
    text = str(array.tolist())
    if array.size == 0 and array.ndim > 1:
        text = f"numpy.empty({tuple(array.shape)})"
    return text.replace("nan", "float('nan')").replace("inf", "float('inf')")


def text_of(value: Any) -> str:
    """An argument as Python."""
    if isinstance(value, Operand):
        return value.text()
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        inside = ", ".join(map(text_of, value))
        if isinstance(value, list):
            return f"[{inside}]"
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float('{value}')"
    if type(value) is object:
        return "object()"
    shown = repr(value)
    if type(value).__module__.startswith("rushlight") and not shown.startswith("rushlight"):
        return f"rushlight.{shown}"
    return shown.replace("array(", "numpy.array(").replace("np.", "numpy.")


class Draw:
    """Arguments drawn from one generator."""

    def __init__(self, source: random.Random, library: Any, own: tuple[str, ...]) -> None:
        self.random = source
        self.library = library
        self.own = own  # the types this function is called with most

    def odds(self, chance: float) -> bool:
        return self.random.random() < chance

    def one(self, values: Any) -> Any:
        return values[int(self.random.random() * len(values))]

    # ---- tensors ----

    def dtype(self) -> str:
        return self.one(self.own) if self.odds(0.97) else self.one(DTYPES + RARE)

    def elements(self, shape: tuple[int, ...], dtype: str, rough: float = 0.1) -> np.ndarray:
        """Common numbers, small ones for integers; sometimes the ends of the range."""
        count = math.prod(shape)
        start = self.random.randrange(2048)
        exact = "int" in dtype
        if self.odds(rough):
            pool = _ROUGH_COUNTS if exact else _ROUGH_FLOATS
            flat = np.resize(np.roll(pool, start), count)
        else:
            flat = np.resize((_COUNTS if exact else _COMMON)[start : start + 2048], count)
        with np.errstate(all="ignore"):
            if dtype == "bool":
                return (flat > 0).reshape(shape)
            if dtype.startswith("complex"):
                return (flat + 1j * flat[::-1]).astype(dtype).reshape(shape)
            if exact:
                return flat.astype(dtype).reshape(shape)
            return flat.astype("float64" if dtype == "float64" else "float32").reshape(shape)

    def tensor(self, shape: tuple[int, ...] | None = None, dtype: str | None = None) -> Operand:
        shape = self.one(SHAPES) if shape is None else shape
        dtype = dtype or self.dtype()
        operand = Operand(self.elements(shape, dtype), dtype)
        return self.laid_out(operand) if self.odds(0.3) else operand

    def laid_out(self, operand: Operand) -> Operand:
        """The same shape (mostly the same elements) in another layout; gaps must not be read."""
        if operand.view:
            return operand
        array = operand.array
        way = self.one(
            ("transposed", "strided", "offset", "expanded", "rolled", "apart", "overlapping")
        )
        if array.ndim and self.odds(0.04):
            return self._viewed(operand, array, ".to_sparse()")
        if way == "transposed" and array.ndim > 1:
            order = tuple(reversed(range(array.ndim)))
            return self._viewed(
                operand, np.ascontiguousarray(array.transpose(order)), f".permute({order})"
            )
        if way == "rolled" and array.ndim > 1:
            turned = np.ascontiguousarray(np.moveaxis(array, -1, 0))
            return self._viewed(operand, turned, ".movedim(0, -1)")
        if way == "strided" and array.ndim:
            room = self.elements(tuple(2 * n + 1 for n in array.shape), operand.dtype, 0.5).astype(
                array.dtype
            )
            room[tuple(slice(1, 2 * n, 2) for n in array.shape)] = array
            inside = ", ".join(f"1:{2 * n}:2" for n in array.shape)
            return self._viewed(operand, room, f"[{inside}]")
        if way == "offset":
            room = np.concatenate(
                [array.reshape(-1)[:0], self.elements((3,), operand.dtype, 1).astype(array.dtype)]
            )
            room = np.concatenate([room, array.reshape(-1), room])
            return self._viewed(operand, room, f"[3:{3 + array.size}].view({tuple(array.shape)})")
        if way == "expanded" and array.ndim and 0 not in array.shape:
            axis = self.random.randrange(array.ndim)
            narrow = array.take([0], axis=axis)
            return self._viewed(operand, narrow, f".expand({tuple(array.shape)})")
        if way == "apart" and array.ndim:
            room = np.repeat(array[..., None], 3, -1)
            return self._viewed(operand, room, "[..., 1]")
        if way == "overlapping" and array.ndim == 2 and 0 not in array.shape:
            rows, columns = array.shape
            room = array.reshape(-1)[: rows + columns - 1]
            if room.size == rows + columns - 1:
                return self._viewed(operand, room, f".unfold(0, {columns}, 1)")
        return operand

    def _viewed(self, operand: Operand, stored: np.ndarray, view: str) -> Operand:
        return Operand(np.ascontiguousarray(stored), operand.dtype, view, operand.grad)

    # ---- numbers and other things ----

    def integer(self) -> Any:
        if self.odds(0.7):
            return self.one(INTEGERS)
        if self.odds(0.6):
            return self.one(EDGES)
        return self.one(
            (
                True,
                False,
                1.0,
                2.5,
                np.int64(2),
                np.int32(1),
                self.scalar("int64"),
                self.scalar("float32"),
            )
        )

    def scalar(self, dtype: str) -> Operand:
        value = (
            self.one(INTEGERS) if self.odds(0.7) else self.one([e for e in EDGES if abs(e) < 2**63])
        )
        return Operand(np.array(value, "int64" if dtype == "int64" else "float32"), dtype)

    def number(self) -> Any:
        if self.odds(0.5):
            return self.one(FLOATS)
        if self.odds(0.5):
            return self.one(FLOAT_EDGES)
        return self.integer()

    def sizes(self) -> Any:
        """Several ints, as a tuple or a list; sometimes one of them is strange."""
        made = [self.one(INTEGERS[:6]) for _ in range(self.random.randrange(4))]
        if made and self.odds(0.3):
            made[self.random.randrange(len(made))] = self.integer()
        return made if self.odds(0.3) else tuple(made)

    def index(self, rank: int) -> Any:
        """A subscript's key."""
        parts: list[Any] = []
        for _ in range(self.random.randrange(rank + 2)):
            draw = self.random.random()
            if draw < 0.25:
                parts.append(self.integer())
            elif draw < 0.55:
                parts.append(
                    slice(
                        *(
                            self.one((None, None, self.one(INTEGERS), self.one(EDGES)))
                            for _ in range(3)
                        )
                    )
                )
            elif draw < 0.7:
                parts.append(
                    self.one(
                        (
                            None,
                            Ellipsis,
                            True,
                            False,
                            slice(None),
                            [0],
                            [0, 1],
                            [-1, 2],
                            [True, False],
                        )
                    )
                )
            elif draw < 0.85:
                parts.append(self.tensor(self.one(((), (1,), (3,), (2, 3), (0,))), "int64"))
            elif draw < 0.95:
                parts.append(self.tensor(None, "bool"))
            else:
                parts.append(self.anything())
        return parts[0] if len(parts) == 1 and self.odds(0.7) else tuple(parts)

    def anything(self) -> Any:
        """An object of any kind."""
        draw = self.random.random()
        if draw < 0.2:
            return self.integer()
        if draw < 0.35:
            return self.number()
        if draw < 0.5:
            return self.tensor()
        if draw < 0.6:
            return self.sizes()
        if draw < 0.65:
            return self.one(WORDS)
        if draw < 0.7:
            return getattr(self.library, self.one(DTYPES))
        if draw < 0.75:
            return self.one(([self.tensor()], [self.tensor(), self.tensor()], (self.tensor(), 1)))
        return copy.copy(self.one(THINGS))  # a call may write into it

    # ---- by name and annotation ----

    def for_parameter(self, name: str, annotation: str) -> Any:
        """A likely argument for a parameter; its name says most."""
        if self.odds(0.08):
            return self.anything()
        if name in ("dtype",) or "DType" in annotation:
            return None if self.odds(0.3) else getattr(self.library, self.one(DTYPES))
        if name in ("device", "generator", "layout", "memory_format", "out"):
            return None
        if name in (
            "index",
            "indices",
            "target",
            "offsets",
            "pivots",
            "repeats",
            "batch_sizes",
        ) and self.odds(0.7):
            return self.tensor(None, "int64")
        if name in ("mask", "condition", "attn_mask") and self.odds(0.7):
            return self.tensor(None, "bool")
        if annotation in ("Sequence[Value]", "Iterable[Value]") or name == "tensors":
            return [self.tensor() for _ in range(self.random.randrange(4))]
        if "Value" in annotation or "Tensor" in annotation:
            return None if "None" in annotation and self.odds(0.3) else self.tensor()
        if annotation in ("bool", "bool | None", "Flag") or name in (
            "keepdim",
            "inplace",
            "training",
        ):
            return self.one((True, False, True, False, None, 1, 0))
        if annotation.startswith(("Given", "Dims", "Sequence[int]", "int | Sequence")) or name in (
            "size",
            "dims",
            "shape",
        ):
            return self.integer() if self.odds(0.5) else self.sizes()
        if annotation.startswith("int") or name in ("dim", "n", "k", "diagonal"):
            return self.integer()
        if annotation.startswith("float") or name in (
            "p",
            "eps",
            "alpha",
            "beta",
            "value",
            "number",
        ):
            return self.number()
        if annotation.startswith("str") or name in ("reduction", "mode", "reduce"):
            return self.one(WORDS)
        if name in (
            "input",
            "other",
            "A",
            "B",
            "x",
            "y",
            "self",
            "weight",
            "bias",
            "source",
            "src",
            "tensor",
        ):
            return self.tensor()
        return self.anything()

    # ---- changes ----

    def changed(self, value: Any) -> Any:
        """Something else in the place of an argument that was right."""
        if isinstance(value, Operand):
            return self._changed_tensor(value)
        if isinstance(value, (bool, str)) or value is None:
            return self.anything()
        if isinstance(value, (int, np.integer)):
            return self.integer() if self.odds(0.85) else self.anything()
        if isinstance(value, (float, complex)):
            return self.number() if self.odds(0.85) else self.anything()
        if isinstance(value, (list, tuple)) and value and self.odds(0.85):
            items = list(value)
            at = self.random.randrange(len(items))
            way = self.random.random()
            if way < 0.7:
                items[at] = self.changed(items[at])
            elif way < 0.85:
                del items[at]
            else:
                items.insert(at, items[at])
            return type(value)(items) if type(value) in (list, tuple) else tuple(items)
        return self.anything()

    def _changed_tensor(self, value: Operand) -> Any:
        way = self.random.random()
        if way < 0.4:
            return self.laid_out(value)
        shape = tuple(value.array.shape)
        if way < 0.6:
            if value.view or self.odds(0.4):
                return self.tensor(None, value.dtype)
            sizes = list(shape)
            if sizes and self.odds(0.7):
                sizes[self.random.randrange(len(sizes))] = self.one((0, 1, 2, 3))
            else:
                sizes.insert(0, self.one((0, 1, 2)))
            return self.tensor(tuple(sizes), value.dtype)
        if way < 0.75 and not value.view:
            return Operand(self.elements(shape, value.dtype, 0.6), value.dtype, grad=value.grad)
        if way < 0.87:
            dtype = self.dtype() if self.odds(0.7) else self.one(DTYPES)
            if value.view or dtype.startswith("complex") or value.array.dtype.kind == "c":
                return self.tensor(None, dtype)
            return Operand(self.elements(shape, dtype), dtype)
        return self.anything()
