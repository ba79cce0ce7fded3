"""The source of the hot path: one call of an elementwise op, for a number of operands.

# Note [Call template]
1. `calling(n)` is the source of `op(x0, ..., xn-1)`: the steps of `call.run` and `call.record`
   inlined, because a Python call costs as much as the rest of a small op. It is compiled once for
   each n, with the names of `call.py` as its globals.
2. A plan is found by the identity of the operands' specs. Up to two operands are compared with
   those of the last call first.
3. A call that the code does not handle (special state, an operand that is a view, one without a
   known plan) goes to `call.run` or to `fallback`, which finds the plan or raises.
4. With one operand the function also takes a number, a launch parameter of the plan; with two it
   passes numbers to such functions. `out` is no keyword-only parameter because that costs more than
   the test for it.
"""

from __future__ import annotations

import functools
from textwrap import indent
from types import CodeType

from rushlight.tape.record.source_line import OURS

# A new storage for the plan's first result: `call.make_storage` inlined. See
# Note [Counting and threads].
_TAKE = """\
storage = new(Storage)
storage.blocks = blocks = plan.blocks
storage.pool = pool = plan.pool
storage.room = room = plan.room
storage.version = {birth}
storage.recipe = None
while not blocks:
    blocks.append(pool.fresh(room))
storage.address = address = blocks[-1]
live = pool.live = pool.live + room
if live > pool.peak:
    pool.peak = live
blocks.pop()
"""

_HANDLE = """\
out = new(Handle)
out._spec = plan.out
out._memory = storage
out._offset = 0
out._base = None
"""

_LAUNCH_ONE = """\
def launch_one(plan, ins, params, birth=0):
{take}
    plan.launch(address, *ins, *plan.tail, *params)
{handle}
    out._node = None
    return out
"""

_CALL = """\
def bind(plans, fallback, numbers):
    last = NO_PLAN
    def function({taken}):
        nonlocal last
{found}
        state = get_state()
        if state.special or {views}:
            return run(plan, ({operands},){params})
{take}
        try:
{launch}
        except TypeError:
            launch_again(plan, storage, ({operands},), {given})
{handle}
{node}
    return function
"""

_FOUND_ONE = """\
plan = last
if out is not None:
    return stored(fallback, ({x},), number, out)
try:
    if plan.first is not {x}._spec:
        plan = last = plans[{x}._spec]
except (KeyError, AttributeError):
    return fallback({x}) if number is None else fallback({x}, number)
"""

_FOUND_TWO = """\
plan = last
if _ is not out:  # `_` is there so that a third operand is not taken for `out`
    return stored(fallback, ({x}, {y}), _, out)
kind = {y}.__class__
if kind is float or kind is int:
    return numbers[kind]({x}, {y})
try:
    if plan.first is not {x}._spec or plan.second is not {y}._spec:
        plan = last = plans[{x}._spec, {y}._spec]
except (KeyError, AttributeError):
    return fallback({x}, {y})
"""

_FOUND_MORE = """\
try:
    {operands} = operands
    plan = plans[{specs}]
except (KeyError, AttributeError, ValueError):
    return fallback(*operands)
"""

_LAUNCH_PARAM = """\
if number is None:
    plan.launch(address, {addresses}, *plan.tail)
else:
    plan.launch(address, {addresses}, *plan.tail, number)
"""

_LAUNCH = """\
if plan.size is None:
    plan.launch(address, {addresses}, *plan.tail)
else:
    plan.launch(address, {addresses}, plan.size)
"""

_NODE = """\
{edges}
if not needs or not state.grad or not plan.out.differentiable:
    out._node = None
    return out
grad = plan.grads.get(needs) or plan.grad(needs)
saves = grad.saves_in
saved = {saved}
out._node = make_node(plan, {given}, ({names},), grad, saved, storage)
return out
"""


def launching() -> CodeType:
    """The code of `launch_one`, which is `call.launch_at` for a plan with one result."""
    take = indent(_TAKE.format(birth="birth"), " " * 4)
    return _compiled(_LAUNCH_ONE.format(take=take, handle=indent(_HANDLE, " " * 4)), "launch")


@functools.cache
def calling(arity: int, second: str = "other") -> CodeType:
    """The code of `bind(plans, fallback, numbers)`, which returns the function.

    `second` names the second operand.
    """
    names = ["input", second][:arity] + [f"x{i}" for i in range(2, arity)]
    x, y = (names * 2)[:2]
    operands = ", ".join(names)
    given = "() if number is None else (number,)" if arity == 1 else "()"
    if arity == 1:
        taken, found = f"{x}, number=None, out=None", _FOUND_ONE.format(x=x)
    elif arity == 2:
        taken, found = f"{x}, {y}, _=None, out=None", _FOUND_TWO.format(x=x, y=y)
    else:
        specs = ", ".join(f"{name}._spec" for name in names)
        taken, found = "*operands", _FOUND_MORE.format(operands=operands, specs=specs)
    saved = {
        1: f"({x},) if saves else ()",
        2: f"() if not saves else ({operands}) if saves == (0, 1) else ({y} if saves[0] else {x},)",
    }
    edges = [f"edge{i} = {name}._node" for i, name in enumerate(names)]
    if arity == 1:
        edges.append("needs = 0 if edge0 is None else 1")
    elif arity == 2:
        edges.append(
            "needs = (0 if edge0 is None else 1) if edge1 is None else 2 if edge0 is None else 3"
        )
    else:
        edges += [
            "needs = 0",
            *[f"if edge{i} is not None:\n    needs += {1 << i}" for i in range(arity)],
        ]
    launch = _LAUNCH_PARAM if arity == 1 else _LAUNCH
    text = _CALL.format(
        taken=taken,
        found=indent(found, " " * 8),
        views=" or ".join(f"{name}._base is not None" for name in names),
        operands=operands,
        params=f", {given}" if arity == 1 else "",
        take=indent(_TAKE.format(birth="state.birth"), " " * 8),
        launch=indent(
            launch.format(addresses=", ".join(f"{name}._memory.address" for name in names)),
            " " * 12,
        ),
        given=given,
        handle=indent(_HANDLE, " " * 8),
        node=indent(
            _NODE.format(
                edges="\n".join(edges),
                saved=saved.get(arity, "tuple([operands[i] for i in saves])"),
                given=given,
                names=", ".join(f"edge{i}" for i in range(arity)),
            ),
            " " * 8,
        ),
    )
    return _compiled(text, f"call of {arity}")


def _compiled(text: str, name: str) -> CodeType:
    file = f"<{name}>"
    OURS[file] = True  # see Note [Source lines] 2
    return compile(text, file, "exec", dont_inherit=True)
