"""A module called with other parameters and buffers than its own.

# Note [Stateless calls]
1. The given tensors replace the module's members during one call, and the members are restored
   after it, also after an error. Nothing is copied: a member's value is an ordinary attribute
   (Note [Members]).
2. Members that are one tensor under several names stay one: a tensor given for one of them is used
   for all.
3. A buffer that the forward replaces by assignment is stored in the given dict afterwards, not in
   the module.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from rushlight.lazy import shown
from rushlight.nn.module import Module
from rushlight.tensor import Tensor

__all__ = ["functional_call"]


def __dir__() -> list[str]:
    return shown(__name__)


_ABSENT = object()
Member = tuple[Module, str]  # a member: its module, and its name there


def functional_call(
    module: Module,
    parameters_and_buffers: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    args: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """`module(*args, **kwargs)` with the given tensors in place of its parameters and buffers.

    Names are those of `named_parameters` and `named_buffers`. With `tie_weights`, members that are
    one tensor are replaced together; with `strict`, every member must be given, and nothing else.
    Members that are not given stay the module's own.
    """
    if not isinstance(module, Module):
        raise TypeError(f"functional_call: a Module is needed, got {type(module).__name__}")
    called_with = () if args is None else args if isinstance(args, tuple) else (args,)
    with _reparametrize_module(
        module, parameters_and_buffers, tie_weights=tie_weights, strict=strict
    ):
        return module(*called_with, **(kwargs or {}))


def _reparametrize_module(
    module: Module,
    parameters_and_buffers: Mapping[str, Tensor] | Sequence[Mapping[str, Tensor]],
    *,
    tie_weights: bool = False,
    strict: bool = False,
) -> AbstractContextManager[None]:
    """A block in which the module has the given tensors as its parameters and buffers."""
    given = _merged(parameters_and_buffers)
    members = _members_by_name(module)
    if tie_weights:
        given = _tied(given, members)
    _check_names(module, given, members, strict)
    return _replaced(given, members, parameters_and_buffers)


def _merged(given: Any) -> dict[str, Tensor]:
    if isinstance(given, Mapping):
        return dict(given)
    if not isinstance(given, Sequence) or not all(isinstance(part, Mapping) for part in given):
        raise ValueError(
            "functional_call: parameters and buffers are a dict or a sequence of dicts, got "
            f"{type(given).__name__}"
        )
    merged: dict[str, Tensor] = {}
    for part in given:
        again = sorted(merged.keys() & part.keys())
        if again:
            raise ValueError(f"functional_call: given in more than one dict: {', '.join(again)}")
        merged.update(part)
    return merged


def _members_by_name(module: Module) -> dict[str, Member]:
    """Every parameter and buffer under each of its names."""
    found: dict[str, Member] = {}
    for path, part in module.named_modules(remove_duplicate=False):
        for name in (*part._parameters, *part._buffers):
            found[f"{path}.{name}" if path else name] = (part, name)
    return found


def _check_names(
    module: Module, given: dict[str, Any], members: dict[str, Member], strict: bool
) -> None:
    for name, value in given.items():
        if value is not None and not isinstance(value, Tensor):
            raise TypeError(
                f"functional_call: {name!r} must be a tensor or None, got {type(value).__name__}"
            )
    unexpected = [name for name in given if name not in members]
    problems = [f"{type(module).__name__} has no {name!r}" for name in unexpected]
    there = {_identity(members[name]) for name in given if name in members}
    for name, entry in members.items():
        if _place(entry)[entry[1]] is not None and _identity(entry) not in there:
            problems.append(f"{name!r} is missing")
    if strict and problems:
        raise RuntimeError(
            "functional_call: with strict=True exactly the members are given: "
            f"{'; '.join(problems)}"
        )
    for name in unexpected:
        path, _, last = name.rpartition(".")
        try:
            holder = module.get_submodule(path)
            now = holder.__dict__.get(last)
            if now is not None and not isinstance(now, Tensor):
                raise TypeError(
                    f"functional_call: {name!r} is no tensor in the module, but "
                    f"{type(now).__name__}"
                )
            members[name] = holder, last  # an attribute during the call
        except AttributeError:
            raise AttributeError(
                f"functional_call: {type(module).__name__} has no module {path!r} for {name!r}"
            ) from None


def _identity(entry: Member) -> tuple[int, str]:
    return id(entry[0]), entry[1]


def _tied(given: dict[str, Tensor], members: dict[str, Member]) -> dict[str, Tensor]:
    """The given tensors under every name of the members they replace."""
    groups: dict[int, list[str]] = {}
    for name, (part, own) in members.items():
        value = part.__dict__.get(own)
        if value is not None:
            groups.setdefault(id(value), []).append(name)
    spread = dict(given)
    for names in groups.values():
        present = [name for name in names if name in given]
        if not present:
            continue
        first = given[present[0]]
        if any(given[name] is not first for name in present):
            raise ValueError(
                f"functional_call: {', '.join(present)} are one tensor in the module, but several "
                "are given; give one of them, or pass tie_weights=False"
            )
        spread.update(dict.fromkeys(names, first))
    return spread


def _place(entry: Member) -> dict[str, Any]:
    """The dict in which a member is; the module's own where it was taken out."""
    module, name = entry
    held = [kind for kind in (module._parameters, module._buffers) if name in kind]
    place: dict[str, Any] = held[0] if held else module.__dict__
    return place


@contextmanager
def _replaced(given: dict[str, Any], members: dict[str, Member], source: Any) -> Iterator[None]:
    own: dict[tuple[int, str], tuple[Module, str, Any]] = {}
    for name, value in given.items():
        part, member = members[name]
        place = _place((part, member))
        own.setdefault(_identity((part, member)), (part, member, place.get(member, _ABSENT)))
        place[member] = value
    try:
        yield
    finally:
        after = {name: _place(members[name]).get(members[name][1]) for name in given}
        for part, member, value in own.values():
            if value is _ABSENT:
                _place((part, member)).pop(member, None)
            else:
                _place((part, member))[member] = value
        for target in [source] if isinstance(source, Mapping) else source:
            if isinstance(target, dict):
                target.update({n: after[n] for n in target if after[n] is not target[n]})
