"""The code of a known kind of call: from handles to handles, as one record.

# Note [Code of known calls]
1. `calls_of(plan, ...)` is a known call's code for one set of operands that need gradients: the
   steps of `call.run` and `call.record` inlined for the plan's counts of operands, results, saves
   and numbers, as in Note [Call template]. Equal text is compiled once (`bound`).
2. `choosing(count)` finds those operands and that code: `run(known, values, state)`. In a region
   the code is for the next call of a record that is followed (Note [Foresight] 5), whose results
   `follow` makes. What neither handles, other special state and an operand that is dropped, goes to
   `Known.run_slowly`.
3. A plan may have results that are saves and are not shown: they get no handle.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from textwrap import indent
from typing import Any

from rushlight.tape.memory import replay
from rushlight.tape.program.launching import bound
from rushlight.tape.record import needed, template
from rushlight.tape.record.op import Plan
from rushlight.tape.record.value import Output

_CALL = """\
def bind({constants}):
    def followed({values}state):
        region = state.region
        made = follow(plan, ({values}), params, region, state.birth)
        if made is None:
            return None
        {storages} = made
{handles}
{announce}
        return {result}
    def called({values}state):
        try:
{addresses}
        except TypeError:  # dropped
            return None
{taken}
        plan.launch({arguments})
{handles}
        return {result}
    return called, followed
"""

_NODE = """\
node = make_node(plan, params, ({edges}), grad, ({saved}), ({outs}), 4)
"""

_ANNOUNCE = """\
if region.tells or state.saving is not None:
    announce(node, state)
"""

_RUN = """\
def bind(edge_of):
    def run(known, values, state):
        codes = known.calls
        if state.special:
            if not state.regional or state.region is None:
                return known.run_slowly(values, state)
            codes = known.followed
        ({values}) = values
        needs = 0
        if state.grad:
{needs}
        try:
            code = codes[needs]
        except KeyError:
            known.make_calls(needs)
            code = codes[needs]
        made = code({values}state)
        return known.run_slowly(values, state) if made is None else made
    return run
"""

_NEEDS = """\
if ({x}._node if {x}._base is None else edge_of({x})) is not None:
    needs {sign} {bit}
"""


@functools.cache
def choosing(count: int) -> Callable[..., Any]:
    """run(known, values, state) for so many operands."""
    needs = [_NEEDS.format(x=f"x{i}", sign="+=" if i else "=", bit=1 << i) for i in range(count)]
    text = _RUN.format(
        values="".join(f"x{i}, " for i in range(count)),
        needs=indent("".join(needs) or "pass", " " * 12).rstrip(),
    )
    return bound(text, "known call", {"edge_of": needed.edge_of})


def calls_of(
    plan: Plan, params: tuple[Any, ...], needs: int, shown: Sequence[int], make: Any
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """called(*operands, state): the results `shown`, combined by `make`, or the one; or None.

    Outside of a region, and in one.
    """
    operands, outs = [f"x{i}" for i in range(len(plan.ins))], range(len(plan.outs))
    constants: dict[str, Any] = {
        "plan": plan,
        "home": plan.pool,
        "params": params,
        "follow": replay.following(len(operands), len(outs)),
    }
    taken, handles = [], []
    for i in outs:
        constants |= {f"blocks{i}": plan.pool.blocks(plan.rooms[i]), f"room{i}": plan.rooms[i]}
        taken.append(template.take("state.birth", i, "home", f"blocks{i}", f"room{i}"))
    for i in sorted(set(shown)):
        constants[f"spec{i}"] = plan.outs[i]
        handles.append(template.handle(i, f"spec{i}"))
    edge = "None"
    if needs:
        grad = plan.grads.get(needs) or plan.grad(needs)
        constants |= {"grad": grad, "Output": Output}
        listed = "".join(
            f"{x}._node, " if needs >> i & 1 else "None, " for i, x in enumerate(operands)
        )
        saved = "".join(f"x{i}, " for i in grad.saves_in)
        kept = "".join(f"storage{i}, " for i in grad.saves_out)
        handles.append(_NODE.format(edges=listed, saved=saved, outs=kept))
        edge = "node" if len(plan.outs) == 1 else "Output(node, {})"
    for i in sorted(set(shown)):
        own = edge.format(i) if plan.outs[i].differentiable else "None"
        handles.append(f"out{i}._node = {own}\n")
    numbers = (*plan.tail, *params)
    constants |= {f"n{i}": number for i, number in enumerate(numbers)}
    arguments = [
        *[f"address{i}" for i in outs],
        *[f"a{i}" for i in range(len(operands))],
        *[f"n{i}" for i in range(len(numbers))],
    ]
    result = f"out{shown[0]}"
    if make is not None:
        result = f"({''.join(f'out{i}, ' for i in shown)})"
        if make is not tuple:
            constants["combined"] = make
            result = f"combined({result})"
    lines = [f"a{i} = {x}._memory.address + {x}._offset\n" for i, x in enumerate(operands)]
    text = _CALL.format(
        constants=", ".join(constants),
        values="".join(f"{x}, " for x in operands),
        addresses=indent("".join(lines), " " * 12).rstrip() or " " * 12 + "pass",
        taken=indent("".join(taken), " " * 8).rstrip(),
        arguments=", ".join(arguments),
        handles=indent("".join(handles), " " * 8).rstrip(),
        storages="".join(f"storage{i}, " for i in outs),
        announce=indent(_ANNOUNCE, " " * 8).rstrip() if needs else "",
        result=result,
    )
    return bound(text, "known call", constants)
