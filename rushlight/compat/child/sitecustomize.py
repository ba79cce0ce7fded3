"""Python runs this file at its start where `rushlight run` has put its folder on PYTHONPATH.

It makes `torch` Rushlight in the program and in every Python that the program starts. Rushlight is
loaded when `torch` is first asked for. See Note [Import hook].
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.metadata
import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))


class _Waiting(MetaPathFinder):
    """Puts the hook in its place when `torch` is first asked for."""

    def _hook(self) -> Any:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        if importlib.util.find_spec("rushlight") is None:  # run from a checkout
            sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(_HERE))))
        importlib.import_module("rushlight.as_torch")
        return importlib.import_module("rushlight.compat.hook").FINDER

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> Any:
        if fullname.partition(".")[0] != "torch":
            return None
        return self._hook().find_spec(fullname, path, target)

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterable[Any]:
        """As of the hook: libraries look for the version of torch before they import it."""
        name = getattr(context, "name", None)
        if name is not None and name.lower() != "torch":
            return []
        found: Iterable[Any] = self._hook().find_distributions(context)
        return found


def _run_shadowed() -> None:
    """Run the `sitecustomize` of the environment, which this one hides."""
    others = [folder for folder in sys.path if os.path.abspath(folder or ".") != _HERE]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


if os.environ.get("RUSHLIGHT_TORCH"):
    sys.meta_path.insert(0, _Waiting())
_run_shadowed()
