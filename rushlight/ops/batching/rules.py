"""An op's batching rule, named by its declaration or family: `batching = "<file>.<rule>"`."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from rushlight.core.errors import RushlightError
from rushlight.tape.record.op import Op


def rule_of(op: Op) -> Any:
    """The op's batching rule; an error that names the op where there is none."""
    stated = getattr(op, "batching", None)
    if stated is None:
        raise RushlightError(
            f"{op.name}: no batching rule; take the op out of vmap, or loop over the batch"
        )
    return _rule(stated)


@functools.cache
def _rule(stated: str) -> Any:
    file, rule = stated.split(".")
    return getattr(importlib.import_module(f"rushlight.ops.batching.{file}"), f"{rule}_rule")
