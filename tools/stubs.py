"""Writes the package's type stubs.

    python -m tools.stubs            writes them
    python -m tools.stubs --check    says which are not current

The names, parameters and types are those of the functions that `import rushlight` gives. Where a
result's type depends on the arguments, `overloads.txt` beside this file has the text; `ANY` below
has the type of each parameter that a declaration annotates with `Any`.
"""

from __future__ import annotations

import ast
import collections.abc
import importlib
import inspect
import re
import subprocess
import sys
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import rushlight
from rushlight.core.dtypes import DType
from rushlight.core.shapes import Size
from rushlight.naming import device
from rushlight.ops.create.creation import MemoryFormat
from rushlight.ops.pointwise import special
from rushlight.ops.random.random import Generator
from rushlight.ops.reduce import statistics
from rushlight.ops.registry import REGISTRY
from rushlight.ops.sort import ranking
from rushlight.ops.surface.signatures import method_signature, operands_of, public_signature
from rushlight.tape.record.value import Value
from rushlight.tensor import Tensor

ROOT = Path(__file__).parents[1]
MODULES = {
    "rushlight": "rushlight/__init__.pyi",
    "rushlight.tensor": "rushlight/tensor.pyi",
    "rushlight.nn": "rushlight/nn/__init__.pyi",
    "rushlight.nn.functional": "rushlight/nn/functional.pyi",
    "rushlight.nn.utils": "rushlight/nn/utils/__init__.pyi",
    "rushlight.optim": "rushlight/optim/__init__.pyi",
    "rushlight.linalg": "rushlight/linalg.pyi",
    "rushlight.fft": "rushlight/fft.pyi",
    "rushlight.special": "rushlight/special.pyi",
}
TENSOR = sys.modules["rushlight.tensor"]
NAMESPACES = (
    *("accelerator", "amp", "array_api", "autograd", "cpu", "cuda", "distributions", "fft"),
    *("func", "io", "linalg", "masked", "memory", "nn", "optim", "random", "serialization"),
    *("signal", "sparse", "special", "storage", "testing", "utils", "version"),
)
GENERAL = ("rushlight", "rushlight.tensor", "rushlight.nn.functional")  # where `max` is the op

# The types of parameters that declarations leave open.
ANY = {
    "alpha": "_complex",
    "atol": "Tensor | _float",
    "beta": "_complex",
    "bias": "Tensor",
    "bins": "Tensor | _int | Sequence[_int] | Sequence[Tensor]",
    "device": "_DeviceLike",
    "dims": "_int | Sequence[_int] | Sequence[Sequence[_int]] | Tensor",
    "dx": "_float",
    "elements": "_Operand",
    "end": "Tensor | _float",
    "exponent": "_Operand",
    "grid": "Tensor",
    "high": "Tensor | _int",
    "index": "Tensor",
    "initial": "_float",
    "input": "Tensor",
    "input_lengths": "Tensor | Sequence[_int]",
    "kernel_size": "_int | Sequence[_int]",
    "layout": "_layout",
    "low": "Tensor | _int",
    "mat1": "Tensor",
    "mat2": "Tensor",
    "max": "_Operand",
    "mean": "Tensor | _float",
    "memory_format": "_layout",
    "min": "_Operand",
    "n": "_Operand",
    "non_blocking": "_bool",
    "ord": "_float | str",
    "other": "_Operand",
    "output_ratio": "_float | Sequence[_float]",
    "p": "_float | str | Tensor",
    "pin_memory": "_bool",
    "q": "Tensor | _float",
    "rcond": "Tensor | _float",
    "rtol": "Tensor | _float",
    "self": "Sequence[Tensor]",
    "size": "_int | Sequence[_int]",
    "source": "_Operand",
    "spacing": "_float | Sequence[_float] | Sequence[Tensor]",
    "src": "_Operand",
    "start": "Tensor | _float",
    "std": "Tensor | _float",
    "step": "_float",
    "target_lengths": "Tensor | Sequence[_int]",
    "tensors": "Tensor",
    "test_elements": "_Operand",
    "theta": "Tensor",
    "tol": "Tensor | _float",
    "value": "_Operand",
    "values": "Tensor",
    "var": "Tensor | _float",
    "weight": "Tensor | _float",
    "x": "_Operand",
}

# Types by the names they have in stubs, where `int`, `float` and others name dtypes or methods.
NAMES: dict[Any, str] = {
    Any: "Any",
    type(None): "None",
    Ellipsis: "...",
    Value: "Tensor",
    Tensor: "Tensor",
    DType: "_dtype",
    Size: "_Size",
    device: "_device",
    Generator: "_Generator",
    MemoryFormat: "_layout",
    int: "_int",
    float: "_float",
    bool: "_bool",
    complex: "_complex",
}
IMPORTS: dict[str, dict[str, str | None]] = {
    "builtins": {f"_{name}": name for name in ("bool", "complex", "float", "int", "type")},
    "collections.abc": dict.fromkeys(["Callable", "Iterable", "Iterator", "Sequence"]),
    "typing": dict.fromkeys(
        ["Any", "Literal", "NamedTuple", "Self", "TextIO", "TypeAlias", "overload"]
    ),
    "types": {"_EllipsisType": "EllipsisType"},
    "numpy": {"_ndarray": "ndarray"},
    "rushlight.core.dtypes": {"_dtype": "DType"},
    "rushlight.core.shapes": {"_Size": "Size"},
    "rushlight.naming": {"_device": "device"},
    "rushlight.ops.create.creation": {"_layout": "MemoryFormat"},
    "rushlight.ops.random.random": {"_Generator": "Generator"},
    "rushlight.tape.record.value": {"Node": None, "Value": None},
}
HEADER = "# Written by tools/stubs.py: `make stubs`.\n"
TENSORS = frozenset(["input", "theta", "v", "weight", "x", "y"])  # first parameters of ops
ARITHMETIC = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lshift", "rshift"]
ARITHMETIC += ["and", "or", "xor"]
COMPARISONS = ["eq", "ne", "lt", "le", "gt", "ge"]


class Types:
    """The text of resolved annotations, and the classes that it names."""

    def __init__(self) -> None:
        self.homes: dict[str, str] = {}  # of the package's own classes
        self.results: dict[str, type] = {}  # named tuples

    def of(self, hint: Any) -> str:
        if isinstance(hint, collections.abc.Hashable) and hint in NAMES:
            return NAMES[hint]
        origin, args = typing.get_origin(hint), typing.get_args(hint)
        if origin in (typing.Union, types.UnionType):
            found = dict.fromkeys(part for a in args for part in self.of(a).split(" | "))
            return " | ".join(sorted(found, key=lambda part: part == "None"))
        if origin is collections.abc.Callable:
            inner = "..." if args[0] is Ellipsis else f"[{', '.join(map(self.of, args[0]))}]"
            return f"Callable[{inner}, {self.of(args[1])}]"
        if origin is type:
            return "_type[Any]"
        if origin is not None:
            return f"{origin.__name__}[{', '.join(map(self.of, args))}]"
        if not isinstance(hint, type):
            return "Any"
        if issubclass(hint, tuple) and hasattr(hint, "_fields"):
            name = hint.__name__.lstrip("_")
            self.results[name] = hint
            return name
        if hint.__module__.startswith("rushlight"):
            self.homes[hint.__name__] = hint.__module__
        return hint.__name__

    def of_parameter(self, p: inspect.Parameter, hint: Any, result: str) -> str:
        if p.name == "out":
            return "Tensor | None" if result == "Tensor" else "Sequence[Tensor] | None"
        found = ANY.get(p.name, "Any") if hint is Any else self.of(hint)
        if p.default is None and not re.search(r"\b(None|Any|_DeviceLike)$", found):
            found += " | None"
        return found


TYPES = Types()


def hints_of(function: Callable[..., Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(inspect.unwrap(function))
    except (NameError, TypeError):
        return {}


def default_of(p: inspect.Parameter) -> str:
    shown = repr(p.default)
    return (
        shown
        if isinstance(p.default, (int, str, tuple, type(None)))
        or (isinstance(p.default, float) and len(shown) < 8)
        else "..."
    )


def written(name: str, function: Callable[..., Any], method: bool = False) -> str:
    """The definition of a function, or of the method that it is, from its signature."""
    hints = hints_of(function)
    signature = method_signature(function) if method else public_signature(function)
    result = TYPES.of(hints.get("return", Any))
    if "Any" in result and next(iter(signature.parameters), "") in TENSORS:
        result = result.replace("Any", "Tensor")
    shown: list[str] = []
    starred = False
    for place, p in enumerate(signature.parameters.values()):
        if method and place == 0:
            shown.append("self")
            continue
        if p.kind is p.KEYWORD_ONLY and not starred:
            shown.append("*")
        starred = starred or p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        kind = TYPES.of_parameter(p, hints.get(p.name, Any), result)
        if place == 0 and operands_of(function) == 2:
            kind = "_Operand"
        star = "*" if p.kind is p.VAR_POSITIONAL else "**" if p.kind is p.VAR_KEYWORD else ""
        equals = "" if p.default is p.empty else f" = {default_of(p)}"
        shown.append(f"{star}{p.name}: {kind}{equals}")
    if method and name.endswith("_"):
        result = "Self"
    if "return_indices" in signature.parameters and not name.endswith("_with_indices"):
        return _with_indices(name, shown)
    return f"def {name}({', '.join(shown)}) -> {result}: ..."


def _with_indices(name: str, shown: list[str]) -> str:
    """A pooling, whose result depends on one of its parameters."""
    others = [p for p in shown if not p.startswith("return_indices")]
    without = [*others, "return_indices: Literal[False] = False"]
    places = [*others, "*", "return_indices: Literal[True]"]
    return (
        f"@overload\ndef {name}({', '.join(without)}) -> Tensor: ...\n"
        f"@overload\ndef {name}({', '.join(places)}) -> tuple[Tensor, Tensor]: ..."
    )


class Overloads:
    """The definitions written by hand: functions by name, and methods and properties of Tensor."""

    def __init__(self, text: str) -> None:
        self.functions: dict[str, list[ast.FunctionDef]] = {}
        self.methods: dict[str, list[ast.FunctionDef]] = {}
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef):
                self.functions.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.ClassDef):
                for inner in node.body:
                    assert isinstance(inner, ast.FunctionDef)
                    self.methods.setdefault(inner.name, []).append(inner)

    def function(self, name: str) -> list[str]:
        return [ast.unparse(node) for node in self.functions.get(name, ())]

    def method(self, name: str) -> list[str]:
        if name in self.methods:
            return [ast.unparse(node) for node in self.methods[name]]
        return [_as_method(text) for text in self.function(name)]


def _as_method(text: str) -> str:
    """A function of a tensor as a method: `self` for the first parameter, and no `out`."""
    node = ast.parse(text).body[0]
    assert isinstance(node, ast.FunctionDef)
    node.args.args[0] = ast.arg("self")
    kept = [
        (arg, default)
        for arg, default in zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
        if arg.arg != "out"
    ]
    node.args.kwonlyargs = [arg for arg, _ in kept]
    node.args.kw_defaults = [default for _, default in kept]
    return ast.unparse(node)


OVERLOADS = Overloads(Path(__file__).with_name("overloads.txt").read_text())


def members_of(module: types.ModuleType) -> Iterator[tuple[str, Any]]:
    """The names that a module shows users: what `dir` lists but its own helpers."""
    if module is TENSOR:
        listed = [name for name in module.__all__ if name != "Tensor"] + ["as_tensor"]
    else:
        listed = dir(module) if module is rushlight else module.__all__
    spaces = NAMESPACES if module in (rushlight, TENSOR) else listed
    for name in listed:
        member = getattr(module, name)
        if name == "annotations" or (name.startswith("__") and name != "__version__"):
            continue
        if name.startswith("_") and not isinstance(member, (types.FunctionType, str)):
            continue
        if isinstance(member, types.ModuleType) and name not in spaces:
            continue
        yield name, member


def shown_member(module: str, name: str, member: Any) -> list[str]:
    """The lines that declare one name of a module."""
    if isinstance(member, types.ModuleType):
        return [f"from {member.__name__.rpartition('.')[0]} import {name} as {name}"]
    if isinstance(member, types.FunctionType):
        by_hand = OVERLOADS.function(name) if module in GENERAL else []
        if by_hand:
            return by_hand
        if name.endswith("_") and name in vars(Tensor) and not name.startswith("_"):
            return [of_input(name)]
        home = sys.modules[member.__module__]
        where = home.__name__
        plain = not where.startswith("rushlight.ops.") and where not in MODULES
        plain = plain and "Value" not in str(inspect.unwrap(member).__annotations__)
        if plain and getattr(home, name, None) is member:
            return [f"from {home.__name__} import {name} as {name}"]
        return [written(name, member)]
    if isinstance(member, type):
        if member is MemoryFormat:
            return [f"{name} = _layout"]
        if member.__module__ == module:  # made when first used
            return [f"{name}: _type[Any]"]
        return [f"from {member.__module__} import {member.__name__} as {name}"]
    return [f"{name}: {TYPES.of(type(member))}"]


def of_input(name: str) -> str:
    """The in-place form of an op as a function of the package."""
    (method,) = method_lines(name, getattr(Tensor, name))
    return method.replace("(self", "(input: Tensor", 1).replace("-> Self", "-> Tensor")


def methods() -> Iterator[str]:
    """The lines of the class Tensor, indented."""
    for name in sorted(vars(Tensor)):
        getattr(Tensor, name)  # makes the method. See Note [Lazy names]
        member = vars(Tensor)[name]
        for line in method_lines(name, member):
            yield "    " + line.replace("\n", "\n    ")


def method_lines(name: str, member: Any) -> list[str]:
    by_hand = OVERLOADS.method(name)
    if by_hand:
        return by_hand
    symbol = name.strip("_")
    if name.startswith("__"):
        if symbol in COMPARISONS:
            ignored = "  # type: ignore[override]" if symbol in ("eq", "ne") else ""
            return [f"def {name}(self, other: Any) -> Tensor: ...{ignored}"]
        if symbol in ARITHMETIC or symbol[1:] in ARITHMETIC:
            return [f"def {name}(self, other: _Operand) -> Tensor: ..."]
        return []
    if isinstance(member, property):
        kind = TYPES.of(hints_of(member.fget).get("return", Any)) if member.fget else "Any"
        lines = ["@property", f"def {name}(self) -> {kind}: ..."]
        if member.fset is not None:
            lines += [f"@{name}.setter", f"def {name}(self, value: {kind}) -> None: ..."]
        return ["\n".join(lines)]
    if not isinstance(member, types.FunctionType):
        return []
    base = name.removesuffix("_")
    if base in REGISTRY and name != base:
        taken = list(inspect.signature(member).parameters.values())
        if len(taken) == 3 and taken[-1].kind is inspect.Parameter.VAR_KEYWORD:
            member = REGISTRY[base].function
    return [written(name, member, method=True)]


def results() -> Iterator[str]:
    """The named tuples that ops give, of tensors."""
    for module in (statistics, ranking, special):
        for member in vars(module).values():
            if isinstance(member, type):
                TYPES.of(member)
    for name, kind in sorted(TYPES.results.items()):
        hints = hints_of(kind)
        yield f"class {name}(NamedTuple):"
        for field in kind._fields:  # type: ignore[attr-defined]
            found = TYPES.of(hints.get(field, Value))
            yield f"    {field}: {'Tensor' if found == 'Any' else found}"


PREAMBLE = """
_Operand: TypeAlias = Tensor | _complex
_Number: TypeAlias = _int | _float | _bool
_DeviceLike: TypeAlias = _device | str | _int | None
_Index: TypeAlias = (
    Tensor | _int | slice | _EllipsisType | Sequence[Any] | _ndarray[Any, Any] | None
)
"""


def stubs() -> dict[str, str]:
    """The text of each stub, by its path."""
    lines = {name: list(definitions(importlib.import_module(name))) for name in MODULES}
    handle = ["class Tensor(Value):", *methods()]
    lines["rushlight.tensor"] += [PREAMBLE, *results(), *handle]
    made = {}
    for name, path in MODULES.items():
        # Imports come first; the sort keeps the order of the rest.
        text = "\n".join(sorted(lines[name], key=lambda line: not line.startswith("from ")))
        made[path] = formatted(f"{HEADER}{imports(name, text)}{text}\n")
    return made


def definitions(module: types.ModuleType) -> Iterator[str]:
    for name, member in members_of(module):
        yield from shown_member(module.__name__, name, member)


def imports(module: str, text: str) -> str:
    """The imports of the names that a text uses."""
    words = set(re.findall(r"\w+", text))
    made = []
    for home, names in IMPORTS.items():
        made += [
            f"from {home} import {there} as {here}" if there else f"from {home} import {here}"
            for here, there in names.items()
            if here in words
        ]
    exported = set(re.findall(r"^from \S+ import \w+ as (\w+)$", text, re.MULTILINE))
    words -= exported
    made += [f"from {home} import {name}" for name, home in TYPES.homes.items() if name in words]
    if module != "rushlight.tensor":
        ours = ["_Operand", "_Number", "_DeviceLike", *TYPES.results, "Tensor"]
        made += [f"from rushlight.tensor import {name}" for name in ours if name in words]
    return "\n".join(made) + "\n"


def formatted(text: str) -> str:
    ruff = str(Path(sys.executable).with_name("ruff"))
    for command in (["check", "--select=I", "--fix", "--quiet"], ["format"]):
        done = subprocess.run(
            [ruff, *command, "--stdin-filename=rushlight/stub.pyi", "-"],
            input=text,
            capture_output=True,
            text=True,
            cwd=ROOT,
            check=True,
        )
        text = done.stdout
    return text


def main(arguments: list[str]) -> int:
    """Write the stubs, or say which are not current."""
    stale = {
        path: text
        for path, text in stubs().items()
        if not (ROOT / path).exists() or (ROOT / path).read_text() != text
    }
    for path, text in stale.items():
        if "--check" in arguments:
            print(f"{path} is not current: run `make stubs`")
        else:
            (ROOT / path).write_text(text)
    return int("--check" in arguments and bool(stale))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
