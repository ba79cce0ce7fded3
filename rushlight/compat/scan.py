"""The names of `torch` that source files use, and which of them are missing here."""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from rushlight.compat.hook import patch


class Use(NamedTuple):
    """One use of a name. `nearest` is None where the name exists, "" where none is near."""

    path: Path
    line: int
    name: str
    guarded: bool
    nearest: str | None


class Unread(NamedTuple):
    """A file that is no Python of this version, and why."""

    path: Path
    line: int
    reason: str


def files_of(path: str) -> list[Path]:
    """The Python files of a script, a folder or an installed package, which is not imported."""
    given = Path(path)
    if given.is_file():
        return [given]
    if given.is_dir():
        return sorted(given.rglob("*.py"))
    try:
        spec = importlib.util.find_spec(path) if path.isidentifier() else None
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        return []
    folders = spec.submodule_search_locations or []
    found = [file for folder in folders for file in sorted(Path(folder).rglob("*.py"))]
    return found or [Path(spec.origin)]


def names_in(files: Sequence[Path]) -> tuple[list[Use], list[Unread]]:
    """Every name of torch once for each file, in order of line, and the files not read."""
    known: dict[str, str | None] = {}
    found, unread = [], []
    with patch("cpu"):
        for path in files:
            try:
                tree = ast.parse(path.read_bytes(), str(path))
            except (SyntaxError, ValueError, RecursionError) as error:
                line = getattr(error, "lineno", None) or 1
                unread.append(Unread(path, line, getattr(error, "msg", str(error))))
                continue
            seen: set[str] = set()
            for line, name, guarded in sorted(_uses(tree)):
                if name in seen:
                    continue
                seen.add(name)
                if name not in known:
                    known[name] = _lookup(name)
                found.append(Use(path, line, name, guarded, known[name]))
    return found, unread


def _uses(tree: ast.Module) -> Iterator[tuple[int, str, bool]]:
    """(line, dotted name, whether a try or a test is around it) of each use."""
    bound = dict(_bindings(tree))
    below: set[int] = set()  # parts of longer chains
    for node, guarded, others in _walk(tree):
        if isinstance(node, ast.ImportFrom) and _is_torch(node.module) and not node.level:
            for alias in node.names:
                if alias.name != "*":
                    yield node.lineno, f"{node.module}.{alias.name}", guarded
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if _is_torch(alias.name) and "." in alias.name:
                    yield node.lineno, alias.name, guarded
        elif isinstance(node, ast.Attribute) and id(node) not in below:
            chain = _chain(node, bound)
            inner: Any = node
            while isinstance(inner, ast.Attribute):
                inner = inner.value
                below.add(id(inner))
            of_torch = chain is not None and getattr(inner, "id", None) not in others
            if chain is not None and of_torch and isinstance(node.ctx, ast.Load):
                yield node.lineno, chain, guarded


def _is_torch(name: str | None) -> bool:
    return name is not None and name.partition(".")[0] == "torch"


def _bindings(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The local names of modules of torch and of what is imported from them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if _is_torch(alias.name):
                    yield alias.asname or "torch", alias.name if alias.asname else "torch"
        elif isinstance(node, ast.ImportFrom) and _is_torch(node.module) and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _chain(node: ast.Attribute, bound: dict[str, str]) -> str | None:
    """`F.relu` as "torch.nn.functional.relu"; None of what is not torch's."""
    parts: list[str] = []
    inner: ast.expr = node
    while isinstance(inner, ast.Attribute):
        parts.append(inner.attr)
        inner = inner.value
    if not isinstance(inner, ast.Name) or inner.id not in bound:
        return None
    return ".".join([bound[inner.id], *reversed(parts)])


Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


def _walk(tree: ast.Module) -> Iterator[tuple[ast.AST, bool, frozenset[str]]]:
    """Every node, whether an error there would be caught or a test comes before it, and the names
    that are variables there, although the file imports a name of torch by them.
    """
    ahead: list[tuple[ast.AST, bool, frozenset[str]]] = [(tree, False, frozenset())]
    while ahead:
        node, guarded, others = ahead.pop()
        inside = guarded or isinstance(node, ast.Try | ast.If | ast.IfExp | ast.BoolOp)
        if isinstance(node, Scope):
            stored, imported = _own_names(node)
            others = (others - imported) | (stored.keys() - imported)
        else:
            stored = {}
        yield node, guarded, others
        if isinstance(node, ast.Module):
            for child in node.body:  # above its first assignment a name is what was imported
                later = {n for n in stored if not _is_scope(child) and stored[n] >= child.lineno}
                ahead.append((child, inside, frozenset(stored) - later))
        else:
            ahead.extend((child, inside, others) for child in ast.iter_child_nodes(node))


def _is_scope(node: ast.AST) -> bool:
    return isinstance(node, Scope | ast.ClassDef)


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _own_names(scope: ast.AST) -> tuple[dict[str, int], set[str]]:
    """What a module or function stores, by its first line, and what it imports."""
    stored: dict[str, int] = {}
    imported: set[str] = set()
    ahead = list(ast.iter_child_nodes(scope))
    while ahead:
        node = ahead.pop()
        if isinstance(node, ast.Assign) and _is_none(node.value):
            continue  # what stands for an import that failed
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            stored[node.id] = min(node.lineno, stored.get(node.id, node.lineno))
        elif isinstance(node, ast.arg):
            stored[node.arg] = node.lineno
        elif isinstance(node, ast.Import | ast.ImportFrom):
            imported |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        if not _is_scope(node):
            ahead.extend(ast.iter_child_nodes(node))
    return stored, imported


def _lookup(name: str) -> str | None:
    """None where the name exists, else the nearest one in the last module on the way, or ""."""
    holder: Any = importlib.import_module("torch")
    path = "torch"
    for part in name.split(".")[1:]:
        path = f"{path}.{part}"
        if not isinstance(holder, ModuleType | type):
            return None  # an attribute of an object: not known without running
        try:
            holder = getattr(holder, part)
        except ModuleNotFoundError:
            return None  # the module is there; it needs another package
        except AttributeError:
            if not isinstance(holder, ModuleType):
                return None if _may_be_set(holder) else _nearest(part, holder)
            try:
                holder = importlib.import_module(path)
            except ModuleNotFoundError as error:
                if error.name is not None and not _is_torch(error.name):
                    return None  # the module is there; it needs another package
                return _nearest(part, holder)
    return None


def _may_be_set(kind: type) -> bool:
    """Whether instances have names that the class has not: annotations, or a `__getattr__`."""
    return hasattr(kind, "__getattr__")


def _nearest(part: str, holder: Any) -> str:
    near = difflib.get_close_matches(part, dir(holder), 1, 0.7)
    return near[0] if near else ""
