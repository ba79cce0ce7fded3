"""The source of the hot path: one call of an elementwise op, for a number of operands.

# Note [Call template]
1. `calling(n)` is the source of `op(x0, ..., xn-1)`: the steps of `call.run` and `call.record`
   inlined, because a Python call costs as much as the rest of a small op. It is compiled once for
   each n, with the names of `call.py` as its globals.
2. A plan is found by the identity of the operands' specs. Up to two operands are compared with
   those of the last call first.
3. A call that the code does not handle (special state, an operand that is a view, one without a
   known plan) goes to `call.run` or to `fallback`, which finds the plan or raises. Of special
   states it handles a region in which a record is followed (Note [Foresight] 5): by `following`,
   which is compiled once for each number of operands and of results.
4. A function of two operands passes a number to a function of the first operand and the number, a
   launch parameter of the plan (`calling_number`).
5. The function takes `out`, and in `*rest` what is given by place beyond the operands: such a call
   goes to `stored`. An operator takes its two operands alone, which is faster to call.
6. The lines that make a storage (`take`) and a handle (`handle`) are written once: calls,
   `make_storage`, `launch_one` and derivatives (Note [Derivatives] 4) are generated from them.
"""

from __future__ import annotations

import functools
from textwrap import indent
from types import CodeType

from rushlight.tape.record.source_line import OURS

# A new storage. See Note [Counting and threads].
_TAKE = """\
{storage} = new(Storage)
{storage}.blocks = blocks = {blocks}
{storage}.pool = pool = {pool}
{storage}.room = room = {room}
{storage}.version = {birth}
{storage}.recipe = None
if not blocks:
    blocks = [pool.fresh(room)]
{storage}.address = {address} = blocks[-1]
live = pool.live = pool.live + room
if live > pool.peak:
    pool.peak = live
blocks.pop()
"""

# A new handle of a storage; its `_node` is set after it.
_HANDLE = """\
{out} = new(Handle)
{out}._spec = {spec}
{out}._memory = {storage}
{out}._offset = 0
{out}._base = None
"""

_MAKE_STORAGE = """\
def make_storage(pool, room, birth=0):
    of_room = pool.free.get(room)
    if of_room is None:
        of_room = pool.blocks(room)
{take}
    return storage
"""

_LAUNCH_ONE = """\
def launch_one(plan, ins, params, birth=0):
{take}
    plan.launch(address, *ins, *plan.tail, *params)
{handle}
    out._node = None
    return out
"""

# The next call of a followed record. No call lies between `append` and `try` or in `finally`, so
# that Ctrl-C leaves nothing pinned. Sources are read after the launch: room may have been made by
# taking an input's recipe away (`free_sources`).
_FOLLOW = """\
def follow(plan, inputs, params, region, birth=0):
    if region is None or region.listens or region.chooses:
        return None
    foresight = region.foresight
    if foresight is None or not foresight.followed:
        return None
    {operands} = inputs
    with LOCK:
        now = foresight.now + 1
        followed = foresight.followed
        if now >= len(followed) or followed[now] != id(plan):
            return None
        drops = COUNTERS.drops
        if plan.rest:
            pool = plan.pool
            room = pool.live + plan.room + plan.rest
            if room > pool.held:
                limit = pool.limit
                if limit is not None and room > limit:
                    return None
{addresses}
        made = []
        running = Pins.running
        try:
            running.append((plan, inputs, made, None))
{take}
            if drops != COUNTERS.drops and not is_intact(plan, inputs, ({ins}), ({outs})):
                return None
            plan.launch({outs} {ins} *plan.tail, *params)
        except BudgetError as error:
            raise refusal.explained(error, plan, inputs) from None
        finally:
            del running[-1]
        COUNTERS.tick = tick = COUNTERS.tick + 1
        foresight.now = now
        foresight.is_inside = False
        if {room} < SMALLEST_DROP:  # no region that does not listen rebuilds it
{used}
            return made
        length = 0
{sources}
        record = foresight.record
        if (
            length + 1 >= LONGEST
            or record.fleeting[now]
            or region.witness is not None
            or plan.pool.reclaim is None
        ):
            adopt_all(Recipe(plan, params, ({names}), region.mark), made, region)
            return made
        recipe = new(Recipe)
        recipe.plan = plan
        recipe.params = params
        recipe.sources = ({names})
        recipe.mark = region.mark
        recipe.length = length + 1
        recipe.single = {single}
        recipe.used = recipe.serial = tick
        recipe.onto = recipe.proof = None
        recipe.fleeting = False
        recipe.runs = recipe.wanted = 0
        recipe.record = record
        recipe.call = now
        recipe.number = number = foresight.count
        foresight.count = number + 1
        if number in foresight.dropped:
            foresight.kept[number] = weakly(recipe)
{references}
        recipe.outs = [{weak}]
{adopt}
        {list}  # now that they have a recipe: see `list_pending`
    return made
"""

_FOLLOW_ROOM = """\
of_room = pool.free.get(plan.rooms[{i}])
if of_room is None:
    of_room = pool.blocks(plan.rooms[{i}])
"""

_FOLLOW_ADDRESS = """\
memory{i} = x{i}._memory
a{i} = memory{i}.address if memory{i}.recipe is None else memory{i}.block
if a{i} is None:
    return None
a{i} += x{i}._offset
"""

_FOLLOW_SOURCE = """\
origin = memory{i}.recipe
if origin is None:
    if id(memory{i}) not in READ:
        enter(READ, memory{i})
    source{i} = memory{i}, memory{i}.version, x{i}._offset
else:
    origin.used = tick
    if origin.length > length:
        length = origin.length
    source{i} = (origin, 0, x{i}._offset) if origin.single else source_of(x{i})
"""

_FOLLOW_USED = """\
if memory{i}.recipe is not None:
    memory{i}.recipe.used = tick
"""

_FOLLOW_ADOPT = """\
storage{i}.block = address{i}
storage{i}.address = None
storage{i}.recipe = recipe
storage{i}.copy = None
"""

_CALL = """\
def bind(plans, fallback, numbers):
    last = NO_PLAN
    def function({taken}):
        nonlocal last
{found}
        state = get_state()
{cast}
        if state.special or {views}:
            made = None
            if state.regional and not ({views}):
                region = state.region
                made = following({count}, 1)(plan, ({operands},), {given}, region, state.birth)
            if made is None:
                return run(plan, ({operands},){params})
            storage, = made
{followed}
            if region.tells or state.saving is not None:
                announce(node, state)
            return out
{take}
        try:
{launch}
        except TypeError:
            launch_plan(plan, (storage,), ({operands},), {given})
{handle}
{node}
        return out
    return function
"""

# A call of a listed op: see Note [Autocast] 2.
_CAST = """\
if state.autocast is not None:
    return fallback({operands}{number})
"""

# A call with `out`, or with more than its operands. See Note [Call template] 5.
_MORE = """\
if rest or out is not None:
    return stored(fallback, ({operands}, *rest), out)
"""

_FOUND_ONE = """\
plan = last
try:
    if plan.first is not {x}._spec:
        plan = last = plans[{x}._spec]
except (KeyError, AttributeError):
    return fallback({x})
"""

_FOUND_NUMBER = """\
plan = last
try:
    if plan.first is not {x}._spec:
        plan = last = plans[{x}._spec]
except (KeyError, AttributeError):
    return fallback({x}, number)
"""

_FOUND_TWO = """\
plan = last
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

_LAUNCH_NUMBER = """\
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
outs = (storage,) if grad.saves_out else ()
out._node = node = make_node(plan, {given}, ({names},), grad, saved, outs)
"""


def take(
    birth: str,
    number: int | str = "",
    pool: str = "plan.pool",
    blocks: str = "plan.blocks",
    room: str = "plan.room",
) -> str:
    """Lines that make a storage of these expressions: `storage` and its `address`, numbered."""
    return _TAKE.format(
        storage=f"storage{number}",
        address=f"address{number}",
        pool=pool,
        blocks=blocks,
        room=room,
        birth=birth,
    )


def handle(number: int | str = "", spec: str = "plan.out") -> str:
    """Lines that make the handle `out` of a `storage`, both numbered."""
    return _HANDLE.format(out=f"out{number}", storage=f"storage{number}", spec=spec)


def making_storage() -> CodeType:
    """The code of `make_storage`."""
    lines = take("birth", pool="pool", blocks="of_room", room="room")
    return compiled(_MAKE_STORAGE.format(take=indent(lines, " " * 4)), "make storage")


def launching() -> CodeType:
    """The code of `launch_one`, which is `call.launch_at` for a plan with one result."""
    text = _LAUNCH_ONE.format(take=indent(take("birth"), " " * 4), handle=indent(handle(), " " * 4))
    return compiled(text, "launch")


def following(ins: int, outs: int) -> CodeType:
    """The code of `follow(plan, inputs, params, region, birth)`: see `replay.following`."""
    given = range(ins)
    taken = take("birth", 0) + "made.append(storage0)\n"
    for i in range(1, outs):
        taken += _FOLLOW_ROOM.format(i=i)
        taken += take("birth", i, "pool", "of_room", f"plan.rooms[{i}]")
        taken += f"made.append(storage{i})\n"
    weak = ", ".join([f"reference{i}" for i in range(outs)])
    text = _FOLLOW.format(
        operands="".join([f"x{i}, " for i in given]) or "()",
        addresses=_each(_FOLLOW_ADDRESS, ins, 8),
        take=indent(taken, " " * 12),
        ins="".join([f"a{i}, " for i in given]),
        outs="".join([f"address{i}, " for i in range(outs)]),
        room="plan.room" if outs == 1 else "max(plan.rooms)",
        used=_each(_FOLLOW_USED, ins, 12),
        sources=_each(_FOLLOW_SOURCE, ins, 8),
        names="".join([f"source{i}, " for i in given]),
        single=outs == 1,
        weak=weak,
        list=f"PENDING.append({weak})" if outs == 1 else f"PENDING.extend(({weak}))",
        references=_each("reference{i} = weakly(storage{i})\n", outs, 8),
        adopt=_each(_FOLLOW_ADOPT, outs, 8),
    )
    return compiled(text, f"followed call of {ins}")


def _each(text: str, count: int, depth: int) -> str:
    return indent("".join([text.format(i=i) for i in range(count)]), " " * depth)


@functools.cache
def calling(
    arity: int, second: str = "other", is_operator: bool = False, casts: bool = False
) -> CodeType:
    """The code of `bind(plans, fallback, numbers)`, which returns the function.

    `second` names the second operand. An operator takes operands alone. `casts`: autocast lists it.
    """
    names = ["input", second][:arity] + [f"x{i}" for i in range(2, arity)]
    operands = ", ".join(names)
    if arity > 2:
        specs = ", ".join(f"{name}._spec" for name in names)
        found = _FOUND_MORE.format(operands=operands, specs=specs)
        return _call(names, "*operands", found, casts)
    found = (_FOUND_ONE if arity == 1 else _FOUND_TWO).format(x=names[0], y=names[-1])
    if is_operator:
        return _call(names, operands, found, casts)
    found = _MORE.format(operands=operands) + found
    return _call(names, f"{operands}, *rest, out=None", found, casts)


@functools.cache
def calling_number(casts: bool = False) -> CodeType:
    """The code of `bind`, whose function takes an operand and a number."""
    return _call(["input"], "input, number", _FOUND_NUMBER.format(x="input"), casts, number=True)


def _call(names: list[str], taken: str, found: str, casts: bool, number: bool = False) -> CodeType:
    """The code of `bind` for operands of these names, with the parameters and the lookup."""
    operands = ", ".join(names)
    given = "(number,)" if number else "()"
    saved = {
        1: f"({operands},) if saves else ()",
        2: f"() if not saves else ({operands}) if saves == (0, 1) "
        f"else ({names[-1]} if saves[0] else {names[0]},)",
    }
    edges = [f"edge{i} = {name}._node" for i, name in enumerate(names)]
    needs = {
        1: ["needs = 0 if edge0 is None else 1"],
        2: ["needs = (0 if edge0 is None else 1) if edge1 is None else 2 if edge0 is None else 3"],
    }
    more = [f"if edge{i} is not None:\n    needs += {1 << i}" for i in range(len(names))]
    edges += needs.get(len(names), ["needs = 0", *more])
    launch = _LAUNCH_NUMBER if number else _LAUNCH
    addresses = ", ".join(f"{name}._memory.address" for name in names)
    node = _NODE.format(
        edges="\n".join(edges),
        saved=saved.get(len(names), "tuple([operands[i] for i in saves])"),
        given=given,
        names=", ".join(f"edge{i}" for i in range(len(names))),
    )
    text = _CALL.format(
        taken=taken,
        count=len(names),
        found=indent(found, " " * 8),
        cast=indent(_CAST.format(operands=operands, number=", number" if number else ""), " " * 8)
        if casts
        else "",
        views=" or ".join(f"{name}._base is not None" for name in names),
        operands=operands,
        params=", (number,)" if number else "",
        take=indent(take("state.birth"), " " * 8),
        launch=indent(launch.format(addresses=addresses), " " * 12),
        given=given,
        handle=indent(handle(), " " * 8),
        node=indent(node, " " * 8),
        followed=indent(handle() + node, " " * 12),
    )
    return compiled(text, f"call of {len(names)}")


def compiled(text: str, name: str) -> CodeType:
    """Generated code, of which no line is a user's."""
    file = f"<{name}>"
    OURS[file] = True  # see Note [Source lines] 2
    return compile(text, file, "exec", dont_inherit=True)
