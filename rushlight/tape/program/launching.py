"""The launches of a program, and the code that makes them.

# Note [Code of launches]
1. A program's kernels are launched by generated code, one line for each, with every plan, number,
   block size and list of blocks as a name of its own: a loop over them would cost as much as the
   small kernels that it runs. `launch_code` is its text, which holds no numbers, so programs of the
   same form share one code object (`bound`).
2. `plan` names the plan that runs, which is read by a recording (Note [Recording memory] 3). Its
   `launch` is read at each call, since anomaly mode and profiles exchange it.
3. A scratch block is given back after its last reader, and after an error: no call comes between
   taking a block and noting it (Note [Counting and threads]).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from textwrap import indent
from typing import Any, NamedTuple

from rushlight.core.cache import Cache
from rushlight.devices.shared.allocator import Pool
from rushlight.tape.record import call, template
from rushlight.tape.record.op import Plan

_CODES = Cache()  # by text


class Block(NamedTuple):
    """A block that a launch takes, or whose last reader it is."""

    at: int  # among all addresses: of the made results, the inputs and the scratch blocks
    pool: Pool
    room: int


class Launch(NamedTuple):
    """A step that runs a kernel, over addresses: of results, inputs and scratch."""

    plan: Plan
    numbers: tuple[Any, ...]  # after the addresses
    own: bool  # the parameters of the program's own call follow the numbers
    places: tuple[tuple[int, int], ...]  # of its arguments among all addresses, and bytes into them
    takes: tuple[Block, ...]
    ends: tuple[Block, ...]  # the scratch blocks whose last reader it is


_SCRATCH = """\
{blocks} = None
try:
{lines}
except BaseException:
{given}
    raise
"""

_GIVEN = """\
if {block} is not None:
    {pool}.give({block}, {room})
"""

_END = """\
given, {block} = {block}, None
{pool}.give(given, {room})
"""


def bound(text: str, name: str, constants: dict[str, Any]) -> Any:
    """What `bind` of the text makes of the constants; equal text is compiled once."""
    code = _CODES.get(text) or _CODES.keep(text, template.compiled(text, name))
    return call.defined(code, "bind")(**constants)


def launch_code(
    launches: Sequence[Launch],
    made: int,
    given: int,
    constants: dict[str, Any],
    birth: str | None,
    params: str,
) -> str:
    """Lines that fill `made` results, address0 and so on, from `given` inputs, a0 and so on.

    Every name that they need is added to `constants`. With `birth`, the version of new storages,
    they make the results' memory, storage0 and so on; `params` are the program's own parameters.
    """
    lines: list[str] = []
    scratch: dict[int, Block] = {}

    def name_of(at: int) -> str:
        if at < made:
            return f"address{at}"
        return f"a{at - made}" if at < made + given else f"scratch{at}"

    for number, launch in enumerate(launches):
        plan = f"plan{number}"
        constants[plan] = launch.plan
        lines.append(f"plan = {plan}\n")
        for block in launch.takes:
            at = block.at
            if at >= made + given:
                scratch[at] = block
                constants |= {f"home{at}": block.pool, f"room{at}": block.room}
                lines.append(f"scratch{at} = home{at}.take(room{at})\n")
            elif birth is not None:
                blocks = block.pool.blocks(block.room)
                constants |= {f"home{at}": block.pool, f"room{at}": block.room}
                constants[f"blocks{at}"] = blocks
                lines.append(template.take(birth, at, f"home{at}", f"blocks{at}", f"room{at}"))
        arguments = []
        for i, (at, skip) in enumerate(launch.places):
            arguments.append(name_of(at))
            if skip:
                constants[f"skip{number}_{i}"] = skip
                arguments[-1] += f" + skip{number}_{i}"
        for i, value in enumerate(launch.numbers):
            constants[f"n{number}_{i}"] = value
            arguments.append(f"n{number}_{i}")
        if launch.own:
            arguments.append(f"*{params}")
        lines.append(f"plan.launch({', '.join(arguments)})\n")
        for end in launch.ends:
            names = {"block": f"scratch{end.at}", "pool": f"home{end.at}", "room": f"room{end.at}"}
            lines.append(_END.format(**names))
    if not scratch:
        return "".join(lines)
    given_back = [
        _GIVEN.format(block=f"scratch{at}", pool=f"home{at}", room=f"room{at}") for at in scratch
    ]
    return _SCRATCH.format(
        blocks=" = ".join(f"scratch{at}" for at in scratch),
        lines=indent("".join(lines), " " * 4).rstrip(),
        given=indent("".join(given_back), " " * 4).rstrip(),
    )


_FILL = """\
def bind({constants}):
    def launch({addresses}):
{lines}
    return launch
"""

_MAKE = """\
def bind({constants}):
    def make({addresses}params, birth):
{lines}
        return {storages}
    return make
"""


def filling(launches: Sequence[Launch], made: int, given: int) -> Callable[..., None]:
    """launch(*results, *inputs): addresses, as of a kernel."""
    constants: dict[str, Any] = {}
    lines = launch_code(launches, made, given, constants, None, "()") or "pass\n"
    names = [*[f"address{i}" for i in range(made)], *[f"a{i}" for i in range(given)]]
    text = _FILL.format(
        constants=", ".join(constants), addresses=", ".join(names), lines=indent(lines, " " * 8)
    )
    return bound(text, "program", constants)


def making(launches: Sequence[Launch], made: int, given: int) -> Callable[..., list[Any]]:
    """make(*inputs, params, birth): the new storages of the results."""
    constants: dict[str, Any] = {}
    lines = launch_code(launches, made, given, constants, "birth", "params") or "pass\n"
    text = _MAKE.format(
        constants=", ".join(constants),
        addresses="".join(f"a{i}, " for i in range(given)),
        lines=indent(lines, " " * 8),
        storages=f"[{', '.join(f'storage{i}' for i in range(made))}]",
    )
    return bound(text, "program", constants)
