"""A module's state by name: reading it out and loading it again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from rushlight.core.errors import RushlightError
from rushlight.nn.members import BUFFER, PARAMETER
from rushlight.nn.parameter import Parameter
from rushlight.tape.state import no_grad
from rushlight.tensor import Tensor


class LoadedKeys(NamedTuple):
    """What a load that was not strict left out: names without a value, values without a name."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"LoadedKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


def persistent_members(module: Any, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    """Every parameter and persistent buffer under its full name; tied ones under each of their names."""
    for path, part in module.named_modules(prefix=prefix, remove_duplicate=False):
        dot = f"{path}." if path else ""
        for kind in (PARAMETER, BUFFER):
            for name, value in part._members(kind):
                if value is not None and name not in part._non_persistent_buffers_set:
                    yield f"{dot}{name}", value


def load_state(module: Any, state: Mapping[str, Any], strict: bool, assign: bool) -> LoadedKeys:
    own = dict(persistent_members(module))
    missing = [name for name in own if name not in state]
    unexpected = [name for name in state if name not in own]
    problems = []
    if strict and unexpected:
        problems.append(f"unexpected keys: {', '.join(unexpected)}")
    if strict and missing:
        problems.append(f"missing keys: {', '.join(missing)}")
    for name, value in own.items():
        problems.extend(_misfit(name, value, state[name]) if name in state else ())
    if problems:
        listed = "".join(f"\n    {problem}" for problem in problems)
        fix = "\n  strict=False loads what fits by name" if strict and (missing or unexpected) else ""
        raise RushlightError(f"load_state_dict: the state does not fit {type(module).__name__}:{listed}{fix}")
    with no_grad():
        for name, value in own.items():
            if name in state:
                _store(module, name, value, state[name], assign)
    return LoadedKeys(missing, unexpected)


def _misfit(name: str, value: Tensor, given: Any) -> Iterator[str]:
    if not isinstance(given, Tensor):
        yield f"{name}: a tensor is needed, got {type(given).__name__}"
    elif given.shape != value.shape:
        yield f"{name}: shape {list(given.shape)} in the state, {list(value.shape)} in the module"


def _store(module: Any, name: str, value: Tensor, given: Tensor, assign: bool) -> None:
    if not assign:
        value.copy_(given)
        return
    path, _, last = name.rpartition(".")
    holder = module.get_submodule(path)
    if isinstance(value, Parameter) and not isinstance(given, Parameter):
        given = Parameter(given, value.requires_grad)
    setattr(holder, last, given)
