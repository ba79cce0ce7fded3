"""Facts about an op stand in its declaration and nowhere else. See Note [Facts of an op]."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import rushlight as rl
from rushlight.ops.registry import REGISTRY

PACKAGE = Path(rl.__file__).parent
DECLARES = {"composite", "elementwise", "register", "second_name"}
SCALAR_ROOMS = {"scalar", "kernel", "emit", "devices"}  # instructions have some of the same names
# Namespaces with functions of their own under names of ops.
OTHER_FUNCTIONS = {"array_api", "sparse", "foreach.py", "masked.py"}
# PyTorch's names of recorded calls (Note [Native names]), of named tuples and of functions that no
# override sees, and the functions that make DTensors.
OTHER_NAMES = {
    Path("compat/aten.py"),
    Path("compat/overrides.py"),
    Path("compat/return_types.py"),
    Path("distributed/tensor/__init__.py"),
}
VALUES = {"sum", "prod", "mean", "amax", "amin", "max", "min"}  # also values of `reduce`
GAINS = {"linear", "sigmoid", "tanh", "relu", "selu"}  # also values of `nonlinearity`
MOST = 4  # names in one list


def _is_exported(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"


def _texts(nodes: list[ast.expr | None]) -> list[str]:
    return [n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)]


def lists_of_ops(tree: ast.Module) -> Iterator[tuple[int, list[str]]]:
    """Literals of which at least half are names of ops, five or more."""
    exported = {id(part) for node in tree.body if _is_exported(node) for part in ast.walk(node)}
    for node in ast.walk(tree):
        words: list[str] = []
        if isinstance(node, ast.List | ast.Tuple | ast.Set):
            words = _texts(list(node.elts))
        elif isinstance(node, ast.Dict):
            words = _texts(node.keys)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = node.value.split()
        found = [word for word in words if word in REGISTRY]
        is_list = len(found) > MOST and 2 * len(found) >= len(words) and id(node) not in exported
        if is_list and not VALUES.issuperset(found) and not GAINS.issuperset(found):
            yield node.lineno, found


def test_no_file_lists_ops_by_name():
    broken = []
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        tree = ast.parse(path.read_text("utf-8"))
        is_generated = "Written by `make" in (ast.get_docstring(tree) or "")
        if place.parts[0] in SCALAR_ROOMS | OTHER_FUNCTIONS or is_generated:
            continue
        if place in OTHER_NAMES:
            continue
        broken += [f"{place}:{line}: {found}" for line, found in lists_of_ops(tree)]
    assert not broken, "state it in the declarations:\n" + "\n".join(broken)


def test_lists_are_found():
    for text in (
        "A = ('add', 'sub', 'mul', 'div', 'exp')",
        "A = {'add': 1, 'sub': 2, 'mul': 3, 'div': 4, 'exp': 5}",
        "A = 'add sub mul div exp'.split()",
    ):
        assert list(lists_of_ops(ast.parse(text)))
    assert not list(lists_of_ops(ast.parse("A = ('add', 'sub', 'mul', 'div')")))


def test_an_op_is_declared_once():
    declared: Counter[str] = Counter()
    for path in PACKAGE.joinpath("ops").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) not in DECLARES:
                continue
            is_kernel = any(k.arg == "listed" for k in node.keywords)
            declared.update([] if is_kernel else _texts(list(node.args[:1])))
    assert not [name for name, count in declared.items() if count > 1]
    assert set(declared) <= set(REGISTRY) and len(declared) > 500


def test_in_place_forms_are_those_of_pytorch():
    torch = pytest.importorskip("torch")
    for ours, theirs in ((rl.Tensor, torch.Tensor), (rl, torch)):
        common = [name for name in REGISTRY if hasattr(ours, name) and hasattr(theirs, name)]
        different = [n for n in common if hasattr(ours, f"{n}_") != hasattr(theirs, f"{n}_")]
        assert not different and len(common) > 250
