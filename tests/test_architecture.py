"""The rules of the architecture, checked on the source by `ast`. Failures name file:line and rule.

The order of rooms is ARCHITECTURE.md's: an import points to the same line of `ROOMS` or to one
above it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).parent.parent / "rushlight"

ROOMS = (
    ("core",),
    ("scalar",),
    ("kernel",),
    ("emit",),
    ("devices",),
    ("tape",),
    ("ops",),
    (
        "tensor",
        "methods",
        "dlpack",
        "interop",
        "printing",
        "storage",
        "sharing",
        "lazy",
        "mapping",
        "naming",
    ),
    ("compile",),
    (
        "nn",
        "optim",
        "amp",
        "utils",
        "linalg",
        "fft",
        "special",
        "func",
        "io",
        "distributed",
        "distributions",
        "memory",
        "random",
        "quasirandom",
        "autograd",
        "array_api",
        "settings",
        "checks",
        "determinism",
        "foreach",
        "serialization",
        "version",
        "masked",
        "signal",
        "sparse",
        "explaining",
        "cuda",
        "cpu",
        "testing",
        "accelerator",
        "profiler",
        "compat",
    ),
    ("rushlight",),  # the package's own __init__, which gathers all of the above
    ("report",),
    ("as_torch", "launch", "cli", "__main__"),
)
# Inside of a room an import points to the same folder or to one before it. `folder.file` is a file
# apart from its folder: a kernel that files of other folders are made of, and what it needs.
FOLDERS = {
    "ops": (
        *("declared", "parameters", "arguments", "registry", "family"),
        *("surface.signatures", "surface.documentation"),
        *("pointwise.arithmetic", "pointwise.transcendental"),
        *("create.creation", "create.dtype_limits"),
        *("view", "reduce.reductions", "index.scatter_onto", "index.gather", "reduce"),
        *("sort.sort", "sort.searchsorted", "index", "pointwise", "batching.random", "random"),
        *("create", "sort", "linalg", "batching", "nn", "fft", "optim", "surface"),
    ),
    "tape": (
        *("record", "memory.recipe", "memory.foresight", "memory.offload", "memory.rehearsal"),
        *("memory.pass_ahead", "memory.requirement", "memory.tracebacks", "memory.refusal"),
        *("memory.pins", "memory.rebuild", "memory.replay"),
        *("record.call", "program"),
        *("anomaly", "shadow", "memory", "vmap", "walk", "dual", "function"),
    ),
}
RANK = {room: rank for rank, rooms in enumerate(ROOMS) for room in rooms}
WITHOUT_NUMPY = {"core", "scalar", "kernel"}
ON_PUBLIC_OPS_ONLY = {"nn", "optim", "amp", "linalg", "fft", "func", "distributions", "sparse"}
BELOW_OPS = {"scalar", "kernel", "emit", "devices"}
NOT_A_DEVICE = {"shared"}  # what other rooms may import from devices/

CHARTER = ("Owns:", "Takes:", "Gives:", "Never:")
FILE_LINES = 700
FUNCTION_LINES = 70
NOT_NAMES = {"helper", "helpers", "info", "manager", "misc", "stuff", "util", "utils"}
PYTORCH_NAMES = {  # PyTorch's own
    "_foreach_utils",
    "utils",
    "swa_utils",
    "_common_utils",
    "_utils",
    "_utils_internal",
    "argparse_util",
    "collective_utils",
    "format_utils",
    "external_utils",
    "symbolic_helper",
    "profiler_util",
}
NUMBERED = re.compile(r"[a-z]_?[23]$")
NUMBERED_MATHS = {"Chi2", "atan2", "arctan2", "draw_base2", "exp2", "log2"}

FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


class Module(NamedTuple):
    """One parsed file, its dotted name and the room it is in."""

    path: Path
    name: str
    room: str
    source: str
    tree: ast.Module


class Import(NamedTuple):
    """One imported module: `from rushlight import nn` imports `rushlight.nn`."""

    line: int
    target: str


Rule = Callable[[Module], Iterator[tuple[int, str]]]


def parse(path: Path, source: str) -> Module:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    return Module(path, ".".join(parts), room_of(".".join(parts)), source, ast.parse(source))


def room_of(dotted: str) -> str:
    parts = dotted.split(".")
    return parts[1] if len(parts) > 1 else parts[0]


def is_module(dotted: str) -> bool:
    path = PACKAGE.parent.joinpath(*dotted.split("."))
    return path.with_suffix(".py").exists() or path.is_dir()


def imports(tree: ast.AST) -> Iterator[Import]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (Import(node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = "." * node.level + (node.module or "")
            for alias in node.names:
                whole = f"{base}.{alias.name}"
                yield Import(node.lineno, whole if is_module(whole) else base)


def own_imports(tree: ast.AST) -> Iterator[Import]:
    return (found for found in imports(tree) if found.target.split(".")[0] == "rushlight")


def functions(tree: ast.AST) -> Iterator[FUNCTION]:
    return (node for node in ast.walk(tree) if isinstance(node, FUNCTION))


def imports_point_up(module: Module) -> Iterator[tuple[int, str]]:
    if module.room not in RANK:
        yield 1, f"{module.room} is in no line of ROOMS; give it one here and in ARCHITECTURE.md"
        return
    for line, target in own_imports(module.tree):
        room = room_of(target)
        if RANK.get(room, len(ROOMS)) > RANK[module.room]:
            yield line, f"{module.room} imports {target}, which is below it"


def imports_are_absolute(module: Module) -> Iterator[tuple[int, str]]:
    for line, target in imports(module.tree):
        if target.startswith("."):
            yield line, f"relative import of {target}; write rushlight..."


def imports_stand_at_the_top(module: Module) -> Iterator[tuple[int, str]]:
    for function in functions(module.tree):
        for line, target in own_imports(function):
            yield line, f"{function.name} imports {target} inside itself"


def devices_are_found_by_name(module: Module) -> Iterator[tuple[int, str]]:
    for line, target in own_imports(module.tree):
        parts = target.split(".")
        if (
            module.room != "devices"
            and parts[1:2] == ["devices"]
            and not NOT_A_DEVICE.issuperset(parts[2:3])
        ):
            yield (
                line,
                f"{module.room} imports the device {target}; ask devices.registry for it by name",
            )


def the_library_stands_on_ops(module: Module) -> Iterator[tuple[int, str]]:
    for line, target in own_imports(module.tree):
        if module.room in ON_PUBLIC_OPS_ONLY and room_of(target) in BELOW_OPS:
            yield line, f"{module.room} reaches below ops/ for {target}"


def numpy_stays_out(module: Module) -> Iterator[tuple[int, str]]:
    for line, target in imports(module.tree):
        if module.room in WITHOUT_NUMPY and target.split(".")[0] == "numpy":
            yield line, f"{module.room} imports NumPy"


def rooms_have_charters(module: Module) -> Iterator[tuple[int, str]]:
    docstring = ast.get_docstring(module.tree) or ""
    if not docstring:
        yield 1, "no docstring"
    if module.path.name == "__init__.py" and module.path.parent.parent == PACKAGE:
        missing = [word for word in CHARTER if word not in docstring]
        if missing:
            yield 1, f"the charter lacks {' '.join(missing)}"


def sizes_stay_readable(module: Module) -> Iterator[tuple[int, str]]:
    lines = module.source.count("\n")
    if lines > FILE_LINES:
        yield lines, f"{lines} lines, over {FILE_LINES}: split it by idea"
    for function in functions(module.tree):
        length = function.end_lineno - function.lineno + 1
        if length > FUNCTION_LINES:
            yield function.lineno, f"{function.name} has {length} lines, over {FUNCTION_LINES}"


def names_say_something(module: Module) -> Iterator[tuple[int, str]]:
    named = [(1, part) for part in module.name.split(".") if part not in PYTORCH_NAMES]
    named += [
        (node.lineno, node.name)
        for node in ast.walk(module.tree)
        if isinstance(node, FUNCTION | ast.ClassDef)
    ]
    for line, name in named:
        words = set(re.findall(r"[a-z]+", re.sub(r"([A-Z])", r"_\1", name).lower()))
        if words & NOT_NAMES or (NUMBERED.search(name) and name.strip("_") not in NUMBERED_MATHS):
            yield line, f"{name} is not a name"


RULES: tuple[Rule, ...] = (
    imports_point_up,
    imports_are_absolute,
    imports_stand_at_the_top,
    devices_are_found_by_name,
    the_library_stands_on_ops,
    numpy_stays_out,
    rooms_have_charters,
    sizes_stay_readable,
    names_say_something,
)


@pytest.fixture(scope="module")
def modules() -> list[Module]:
    return [parse(path, path.read_text("utf-8")) for path in sorted(PACKAGE.rglob("*.py"))]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_rule(rule: Rule, modules: list[Module]):
    broken = [
        f"{module.path.relative_to(PACKAGE.parent)}:{line}: {text}"
        for module in modules
        for line, text in rule(module)
    ]
    assert not broken, "\n" + "\n".join(broken)


def cycles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """The groups of modules that import one another, directly or through others."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        ahead = list(arrows[start])
        while ahead:
            module = ahead.pop()
            if module not in found:
                found.add(module)
                ahead.extend(arrows[module])
        return found

    everything = {module: reached(module) for module in arrows}
    groups = {
        tuple(sorted(other for other in found if module in everything[other]))
        for module, found in everything.items()
        if module in found
    }
    return sorted(list(group) for group in groups)


def against(room: str, arrows: dict[str, set[str]]) -> set[str]:
    """The imports inside of a room that point to a later folder."""
    rank = {name: i for i, name in enumerate(FOLDERS[room])}
    start = f"rushlight.{room}."

    def rank_of(module: str) -> int:
        inner = module.removeprefix(start)
        return rank[inner] if inner in rank else rank[inner.split(".")[0]]

    return {
        f"{module.removeprefix(start)}>{target.removeprefix(start)}"
        for module, targets in arrows.items()
        for target in targets
        if module.startswith(start)
        and target.startswith(start)
        and rank_of(target) > rank_of(module)
    }


@pytest.mark.parametrize("room", FOLDERS)
def test_folders_have_an_order(room: str, modules: list[Module]):
    assert not against(room, arrows_of(modules))


def test_imports_against_the_order_are_found():
    arrows = {"rushlight.ops.view.a": {"rushlight.ops.nn.b"}, "rushlight.ops.nn.b": set()}
    assert against("ops", arrows) == {"view.a>nn.b"}


def arrows_of(modules: list[Module]) -> dict[str, set[str]]:
    names = {module.name for module in modules}
    return {
        module.name: {found.target for found in own_imports(module.tree)} & names - {module.name}
        for module in modules
    }


def test_modules_form_no_cycle(modules: list[Module]):
    assert not cycles(arrows_of(modules))


def test_cycles_are_found():
    arrows = {"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}
    assert cycles(arrows) == [["b", "c"]]


BROKEN = [
    (imports_point_up, "core/a.py", "from rushlight.scalar import ir"),
    (imports_point_up, "core/a.py", "from rushlight import scalar"),
    (imports_point_up, "nn/a.py", "import rushlight as torch"),
    (imports_point_up, "attic.py", ""),
    (imports_are_absolute, "core/a.py", "from . import dtypes"),
    (imports_stand_at_the_top, "tape/a.py", "def f():\n    from rushlight.core import dtypes"),
    (devices_are_found_by_name, "ops/a.py", "from rushlight.devices.cpu import open_device"),
    (devices_are_found_by_name, "tape/a.py", "from rushlight.devices import reference"),
    (the_library_stands_on_ops, "nn/a.py", "import rushlight.kernel.shapes"),
    (numpy_stays_out, "scalar/a.py", "import numpy.typing as npt"),
    (rooms_have_charters, "core/__init__.py", '"""Owns: facts. Takes: values. Gives: nouns."""'),
    (sizes_stay_readable, "core/a.py", "\n" * (FILE_LINES + 1)),
    (sizes_stay_readable, "core/a.py", "def f():\n" + "    pass\n" * FUNCTION_LINES),
    (names_say_something, "core/a.py", "class MemoryManager: ..."),
    (names_say_something, "ops/a.py", "def matmul2(): ..."),
    (names_say_something, "core/utils2.py", ""),
]


@pytest.mark.parametrize(
    "rule, path, source", BROKEN, ids=[f"{r.__name__}-{n}" for n, (r, _, _) in enumerate(BROKEN)]
)
def test_rule_finds(rule: Rule, path: str, source: str):
    assert list(rule(parse(PACKAGE / path, source)))
