"""Writes `rushlight/ops/declared.py`: which file declares each op, and which namespaces have it.

    python -m tools.declared            writes the file
    python -m tools.declared --check    exits with 1 where it is not current

The package itself reads that file, so this program imports the files of `ops/` without the
package's `__init__`.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
import textwrap
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = Path(__file__).parents[1] / "rushlight"
PATH = PACKAGE / "ops" / "declared.py"

HEAD = '''\
"""Which file of `ops/` declares each op, and which namespaces have it. Written by `make stubs`.

A name loads its file when it is first used (Note [Lazy names]), so these are known without it.
"""

from __future__ import annotations


def _by_name(places: dict[str, str]) -> dict[str, str]:
    return {name: file for file, names in places.items() for name in names.split()}

'''


class _Noting(dict[str, Any]):
    """Entries by name, which notes the file that makes each."""

    def __init__(self) -> None:
        self.files: dict[str, str] = {}

    def __setitem__(self, name: str, entry: Any) -> None:
        frame: Any = sys._getframe()
        while frame.f_code.co_name != "<module>":
            frame = frame.f_back
        self.files[name] = frame.f_globals["__name__"].removeprefix("rushlight.ops.")
        super().__setitem__(name, entry)


def files() -> list[str]:
    """Every file in the folders of `ops/`, as `folder.file`."""
    folders = [each.name for each in pkgutil.iter_modules([str(PATH.parent)]) if each.ispkg]
    return [
        f"{folder}.{each.name}"
        for folder in folders
        for each in pkgutil.iter_modules([str(PATH.parent / folder)])
    ]


def text() -> str:
    """What `declared.py` should hold."""
    bare = sys.modules["rushlight"] = ModuleType("rushlight")
    bare.__path__ = [str(PACKAGE)]
    registry = importlib.import_module("rushlight.ops.registry").REGISTRY
    noted = registry.declared = _Noting()
    loaded = {file: importlib.import_module(f"rushlight.ops.{file}") for file in files()}
    own = {file: getattr(module, "METHODS", ()) for file, module in loaded.items()}

    def by_file(names: dict[str, str]) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, op in names.items():
            found.setdefault(noted.files[op], []).append(name)
        return found

    def chosen(kept: Any, suffix: str = "") -> dict[str, list[str]]:
        return by_file({f"{name}{suffix}": name for name, e in noted.items() if kept(e)})

    linalg = {op.removeprefix("linalg_"): op for op in noted if op.startswith("linalg_")}
    linalg |= {entry.linalg: op for op, entry in noted.items() if entry.linalg}
    special = {name: op for op, entry in noted.items() for name in entry.special.split()}
    tables = {
        "MODULES": chosen(lambda entry: True),
        "TOP": chosen(lambda entry: entry.top),
        "METHODS": chosen(lambda entry: entry.method),
        "IN_PLACE": chosen(lambda entry: entry.inplace, "_"),
        "TOP_IN_PLACE": chosen(lambda entry: entry.inplace_top, "_"),
        "OTHER_METHODS": {
            file: [method.__name__ for method in methods]
            for file, methods in own.items()
            if methods
        },
    }
    docs = {
        "MODULES": "All ops.",
        "TOP": "Ops that are names of the package.",
        "METHODS": "Ops that are methods of Tensor.",
        "IN_PLACE": "Methods of Tensor that are in-place forms of ops.",
        "TOP_IN_PLACE": "In-place forms that are names of the package.",
        "OTHER_METHODS": "Methods of Tensor that are no ops: the files' own `METHODS`.",
    }
    parts = [_table(name, docs[name], table) for name, table in tables.items()]
    operators = {entry.operator: op for op, entry in noted.items() if entry.operator}
    parts.append(_renamed("SPECIAL", "Ops by their names in `rushlight.special`.", special))
    parts.append(_renamed("LINALG", "Ops by their names in `rushlight.linalg`.", linalg))
    parts.append(_renamed("OPERATORS", "Ops by the operators that call them.", operators))
    return HEAD + "\n" + "\n".join(parts)


def _table(name: str, doc: str, table: dict[str, list[str]]) -> str:
    lines = [f"# {doc}", f"{name} = _by_name(", "    {"]
    for file, names in sorted(table.items()):
        row = f'        "{file}": "{" ".join(sorted(names))}",'
        if len(row) <= 100:
            lines.append(row)
            continue
        wrapped = textwrap.wrap(" ".join(sorted(names)), 86)
        if len(wrapped) > 1:  # the last line ends with no space
            wrapped = textwrap.wrap(" ".join(sorted(names)), 85)
        lines.append(f'        "{file}": (')
        lines += [f'            "{line} "' for line in wrapped[:-1]]
        lines += [f'            "{wrapped[-1]}"', "        ),"]
    return "\n".join([*lines, "    }", ")", ""])


def _renamed(name: str, doc: str, table: dict[str, str]) -> str:
    rows = "".join(f'    "{other}": "{op}",\n' for other, op in sorted(table.items()))
    return f"# {doc}\n{name} = {{\n{rows}}}\n"


def main() -> int:
    wanted = text()
    if "--check" in sys.argv:
        return int(PATH.read_text("utf-8") != wanted)
    PATH.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
