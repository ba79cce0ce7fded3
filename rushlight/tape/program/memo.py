"""Functions of tensors that skip their Python once their calls are known.

# Note [Memo]
1. `memo(function)` keeps a program (Note [Programs]) for each kind of call of a pure function. The
   first call is traced; later ones run the program. The function must draw no random numbers, read
   no elements, write to nothing, and depend on no setting but the default dtype, and the result of
   `depends`.
2. A kind of call is the specs of the tensors, the other arguments and their classes (1, 1.0 and
   True are equal but not the same, as are 0.0 and -0.0), and the grad mode. Code that makes this
   key is generated from the function's parameters at its first call: a test per argument costs a
   tenth of a loop. A call whose trace does not determine it is kept as unknown and runs the
   function.
3. Dual levels and traces choose by their own state: there the function runs. Under autocast an op
   that lists its casts is called again with cast operands (Note [Autocast]). In a region, under
   hooks of saves and inside `vmap` programs run as calls (`call.run`).
4. A program of one step is that step's plan. One whose operands and results are small together
   (`SMALL`) runs as one plan and is one record (`Program.as_plan`): each step's record would cost
   more than its work. Any other runs step by step.
5. Sums of gradients have another order in one record than along single ones. So whether a call is
   one record follows from the specs and the static arguments alone: the traced call is repeated
   where it was recorded, and calls in a checkpoint, in a budget or under hooks of saves follow the
   same rule.
6. Views at the end of a program stay separate views; those of a whole launch's result in another
   shape or order of dimensions are that result's shape, and no views to a user (`release`).
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Sequence
from textwrap import indent
from typing import Any

from rushlight.core.dtypes import DType
from rushlight.tape.program import known
from rushlight.tape.program.known import Kinds
from rushlight.tape.record import call, value
from rushlight.tape.record.source_line import OURS
from rushlight.tape.record.state import STATE
from rushlight.tape.record.value import Value


class Absent:
    """In place of a parameter: the call does not give it."""

    __slots__ = ()


ABSENT = Absent()
# Classes of which no two have equal members: those need no class in a key.
SURE = frozenset([int, type(None), Absent])
# Further names of the generated code.
new, get_state, history_of = object.__new__, STATE.get, value.history_of
make_node, part = call.make_node, known.part


def memo(
    function: Callable[..., Any],
    depends: Callable[[], Any] | None = None,
    shared: Kinds | None = None,
) -> Callable[..., Any]:
    """The function, which runs the program of calls that are known. See Note [Memo].

    `depends` returns further state that the result depends on. `shared` is of a memo whose programs
    are this function's too.
    """
    _kinds = Kinds(function, depends)
    if shared is not None:
        _kinds.tables = shared.tables

    @functools.wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        return _specialised(_kinds)(*args, **named)

    _kinds.public = called
    called.kinds = _kinds  # type: ignore[attr-defined]
    return called


def kinds_of(function: Callable[..., Any]) -> Kinds | None:
    """The kinds of calls of a memo; None of another function."""
    kinds: Kinds | None = getattr(function, "kinds", None)  # which `functools.wraps` copies too
    return kinds if kinds is not None and kinds.public is function else None


def _specialised(kinds: Kinds) -> Callable[..., Any]:
    """Give the public function generated code for its parameters."""
    code, count, by_name = _code(kinds)
    public = kinds.public
    # In this order another thread that calls it gets the old code or all of the new.
    public.__defaults__ = (ABSENT,) * count
    public.__kwdefaults__ = dict.fromkeys(by_name, ABSENT)
    public.__code__ = code
    return public


def static_part(a: Any) -> Any:
    """The key entry of an argument that is no tensor."""
    if isinstance(a, Value):
        raise TypeError  # it is read, so the call has no kind
    if a.__class__ is list or a.__class__ is tuple:
        return (a.__class__, *[b if b.__class__ is int else static_part(b) for b in a])
    return (a.__class__, a if a.__class__ is not float or a else str(a))


def given(
    names: Sequence[str],
    values: Sequence[Any],
    count: int,
    rest: Sequence[Any],
    named: dict[str, Any],
) -> tuple[list[Any], dict[str, Any]]:
    """A call as it was made: positional for the first `count` parameters, then by name."""
    args: list[Any] = []
    for each in values[:count]:
        if each is ABSENT:
            break
        args.append(each)
    begun = len(args)
    more = {n: v for n, v in zip(names[begun:], values[begun:], strict=True) if v is not ABSENT}
    return [*args, *rest], {**more, **named}


def _kind(hint: Any) -> str:
    """The key entry of a parameter, by its annotation."""
    flat = list(_members(hint))
    if flat == [Value]:
        return "tensor"
    if all(m in (bool, str, type(None), DType) for m in flat):
        return "plain"
    if all(m in (int, bool, str, type(None), DType) or _is_ints(m) for m in flat):
        return "whole"
    return "number" if all(m in (float, int, type(None)) for m in flat) else "any"


def _members(hint: Any) -> Iterable[Any]:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        for member in typing.get_args(hint):
            yield from _members(member)
    else:
        yield hint


def _is_ints(hint: Any) -> bool:
    inner = typing.get_args(hint)
    return bool(inner) and all(m in (int, type(None), Ellipsis) for i in inner for m in _members(i))


def _code(of: Kinds) -> tuple[types.CodeType, int, list[str]]:
    """A memo's code, the number of positional parameters, and the names of the others."""
    function = of.function
    inner = inspect.unwrap(function)
    parameters = list(inspect.signature(inner).parameters.values())
    try:
        hints = typing.get_type_hints(inner)
    except (NameError, TypeError):
        hints = {}
    kinds = {p.name: _kind(hints.get(p.name, Any)) for p in parameters}
    by_place = [
        p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    by_name = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
    names = [*by_place, *by_name]
    collects = any(kinds[n] == "any" for n in (*names, *([rest] if rest else [])))
    looks, key = [], ["_kinds.depends()"] if of.depends is not None else []
    for name in (*by_place, *([rest] if rest else []), *by_name):
        look, entry = _key_entry(name, kinds[name], name == rest, collects)
        looks += look
        key.append(entry)
    tensors = [n for n in names if kinds[n] == "tensor"]
    values = "_values" if collects else f"({''.join(f'{n}, ' for n in tensors)})"
    listed = "".join(f"{n}, " for n in names)
    text = _TEXT.format(
        taken=", ".join(
            [
                *[f"{n}=None" for n in by_place],
                f"*{rest or '_rest'}",
                *[f"{n}=None" for n in by_name],
                "**_named",
            ]
        ),
        asked="_named" if rest else "_named or _rest",
        call=f"given({tuple(names)!r}, ({listed}), {len(by_place)}, {rest or '_rest'}, _named)",
        looks=indent(
            "\n".join(["_values = []", *looks] if collects else looks) or "pass", " " * 12
        ),
        key="".join(f"{entry}, " for entry in key),
        values=values,
        special="(_state.special and not _state.regional)"
        + (" or _state.autocast" if of.casts is not None else ""),
        run=indent(_RUN_ONE.format(x=tensors[0]), " " * 8)
        if len(tensors) == 1 and not collects
        else "",
    )
    file = f"<memo of {getattr(function, '__name__', 'a function')}>"
    OURS[file] = True  # see Note [Source lines] 2
    made: dict[str, Any] = {}
    exec(compile(text, file, "exec", dont_inherit=True), made)
    return made["bind"](None).__code__, len(by_place), by_name


def _key_entry(name: str, kind: str, is_rest: bool, collects: bool) -> tuple[list[str], str]:
    """Lines before the key, and a parameter's entry in it."""
    if is_rest and kind == "any":
        return [], f"part({name}, _values)"
    if is_rest:
        return [
            f"_key_{name} = {name}",
            f"for _each in {name}:",
            "    if _each.__class__ is not int:",
            f"        _key_{name} = static_part({name})",
            "        break",
        ], f"_key_{name}"
    if kind == "tensor":
        return [f"_values.append({name})"] if collects else [], f"{name}._spec"
    if kind == "plain":
        return [], name
    if kind == "whole":
        return [], f"{name} if {name}.__class__ in SURE else static_part({name})"
    if kind == "number":
        return [], f"{name} if {name}.__class__ is float and {name} else static_part({name})"
    return [
        f"_key_{name} = {name}",
        f"if {name}.__class__ in SURE:",
        "    pass",
        f"elif isinstance({name}, Value):",
        f"    _values.append({name})",
        f"    _key_{name} = {name}._spec",
        "else:",
        f"    _key_{name} = part({name}, _values)",
    ], f"_key_{name}"


_TEXT = """\
def bind(_kinds):
    def called({taken}):
        if {asked}:
            return _kinds.call_any(*{call})
        _state = get_state()
        try:
{looks}
            _key = ({key})
            _found = None if {special} else _kinds.tables[_state.grad][_key]
        except KeyError:
            _found = None
        except (AttributeError, TypeError):  # no tensor, or no hash
            _args, _named = {call}
            return _kinds.function(*_args, **_named)
        if _found is None:
            return _kinds.call(*{call}, {values}, _key)
{run}
        return _found.run(_found, {values}, _state)
    return called
"""

# For one tensor, most often a view: that is made here. In a region it is so for a view that saves
# nothing: there is nothing to tell the region.
_RUN_ONE = """\
_plan = _found.view
if _plan is not None and _state.regional:
    _region = _state.region  # None: only hooks, or another thread takes it from the state
    if _region is None or _state.saving is not None or _region.chooses or not _found.shows:
        _plan = None
_base = {x}._base
if _plan is not None and (_base is None or not _state.grad or history_of({x}) == history_of(_base)):
    _out = new(call.Handle)
    _out._spec = _plan.out
    _out._memory = {x}._memory
    _out._offset = {x}._offset + _plan.offsets[0]
    _out._base = {x} if _base is None else _base
    _out._history = history_of({x})
    _edge = {x}._node
    if _edge is None or not _state.grad or not _plan.out.differentiable:
        _out._node = None
        return _out
    _grad = _plan.grads.get(1) or _plan.grad(1)
    _saved = ({x},) if _grad.saves_in else ()
    _out._node = make_node(_plan, (), (_edge,), _grad, _saved, ())
    return _out
"""
