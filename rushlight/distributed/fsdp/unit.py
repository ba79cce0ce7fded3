"""Parameters of one module that are whole only while they are used.

# Note [Units]
1. A unit has the parameters of a module that no unit below it has. Between uses each rank has its
   part of each (`Sharding`), a leaf of its own in the module. `Unit.call` runs a forward: the whole
   parameters are gathered, take the parts' places in the module, and leave them when it ends.
2. A whole parameter is a leaf whose storage is vacated and filled again (Note [Vacant storages]):
   records of the forward hold it, and backward finds it filled. When the parts have changed, other
   leaves are made; a backward over the old ones is refused, as one over a parameter that was
   written to.
3. A hook on each result gathers again when backward comes to the unit, and counts the whole
   parameters that this pass reaches. When the last of them has its gradient, the unit is closed:
   the gradients are summed over ranks, each rank gets its part, and the whole parameters are
   vacated. Where some parameters are frozen, the gradients of the inputs are waited for as well:
   their derivatives need the frozen ones.
4. The gradient of a part is given to its leaf by the running pass (`Walk.deliver`), so it is undone
   with the pass where that fails.
5. What must be rebuilt in backward is rebuilt while its unit is open. So the results of a unit are
   kept, or settled (`replay.cut`): no recipe leads from one unit into another. Inside of a
   checkpoint a unit is a checkpoint of its own, restored when backward comes to it.
6. Collectives come in the order of the calls, which all ranks share; prefetching depends on the
   order of earlier calls alone. Nothing is gathered on demand.
7. Sums over ranks are Note [Sums of ranks]'s, element by element, so the bits are DDP's. With
   copies, the sum over the ranks of a copy ends before that over copies reads it: their groups have
   threads of their own. The order is DDP's where each copy has ranks that follow one another and
   the number of copies is a power of two.
8. A parameter may be a DTensor (tensor parallel): its part on this rank is what is shared out. The
   mesh of the parts has the DTensor's dimensions first, which cut it first, and then the unit's.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rushlight.core.dtypes import DType
from rushlight.core.errors import InplaceError
from rushlight.distributed.collectives import (
    all_gather_into_tensor,
    all_reduce,
    reduce_scatter_tensor,
)
from rushlight.distributed.fsdp.sharding import (
    QUIET,
    Sharding,
    is_same,
    local,
    room,
)
from rushlight.distributed.process_groups import ProcessGroup
from rushlight.distributed.reducing import ReduceOp
from rushlight.distributed.tensor.dtensor import DTensor, wrap
from rushlight.distributed.tensor.layout import Layout
from rushlight.distributed.work import Work
from rushlight.nn.module import Module
from rushlight.nn.parameter import Parameter
from rushlight.tape.memory import replay
from rushlight.tape.memory.checkpoint import Checkpoint
from rushlight.tape.memory.vacancy import is_vacant, occupy, vacate
from rushlight.tape.record.state import STATE, WALK, Changed
from rushlight.tape.record.value import Leaf, Output
from rushlight.tensor import Tensor
from rushlight.utils._pytree import tree_leaves, tree_map
from rushlight.utils.checkpoint import is_checkpointing

Place = tuple[Module, str]  # where a parameter is registered


class Piece:
    """One parameter of a unit: this rank's part, and for a time the whole."""

    def __init__(
        self,
        places: Sequence[Place],
        part: Any,
        sharding: Sharding,
        name: str,
        layout: Layout | None = None,
    ) -> None:
        self.places = list(places)
        self.layout = layout  # of the whole, where that is a DTensor
        self.part = part  # a Parameter and a DTensor
        self.sharding = sharding
        self.name = name
        self.whole: Any = None  # a Parameter, since the first gather

    def register(self, parameter: Any) -> None:
        """Put a parameter where the module looks for it."""
        for module, name in self.places:
            module._parameters[name] = parameter


class Kind:
    """The pieces of a unit that travel in one buffer, since they have one dtype."""

    def __init__(self, dtype: DType, pieces: Sequence[Piece], starts: Sequence[int]) -> None:
        self.dtype = dtype
        self.pieces = list(pieces)
        self.starts = list(starts)
        self.count = sum([piece.sharding.room for piece in pieces])  # elements of each rank

    @classmethod
    def of(cls, pieces: Iterable[Piece], dtype_of: Callable[[Piece], DType]) -> list[Kind]:
        """The pieces by dtype, each beginning where the one before it ends."""
        by_dtype: dict[DType, list[Piece]] = {}
        for piece in pieces:
            by_dtype.setdefault(dtype_of(piece), []).append(piece)
        found = []
        for dtype, same in by_dtype.items():
            starts, at = [], 0
            for piece in same:
                starts.append(at)
                at += piece.sharding.room
            found.append(cls(dtype, same, starts))
        return found

    def rows(self, flat: Tensor, n: int, ranks: int) -> Tensor:
        """Every rank's part of the n-th piece."""
        start, count = self.starts[n], self.pieces[n].sharding.room
        return flat.view(ranks, self.count)[:, start : start + count]


class Moving:
    """A gather under way, or a sum: buffers and calls, and what the parts were."""

    def __init__(self, stamp: Sequence[Any] = ()) -> None:
        self.stamp = stamp
        self.buffers: list[tuple[Kind, Tensor]] = []
        self.works: list[Work] = []

    def wait(self) -> None:
        """Wait for all calls."""
        works, self.works = self.works, []
        for work in works:
            work.wait()


class Options:
    """What users choose for a unit."""

    def __init__(self) -> None:
        self.reshard_after_forward = True
        self.reshard_after_backward = True
        self.syncs = True  # gradients are summed over ranks
        self.syncs_replicas = True  # and over the groups that share the parameters out
        self.unused_as_zeros = False
        self.gathers_for_backward = True
        self.divisor: float | None = None  # of sums; the number of ranks without it
        self.param_dtype: DType | None = None
        self.reduce_dtype: DType | None = None
        self.output_dtype: DType | None = None
        self.casts_inputs = True
        self.casts_root_inputs = False  # of the root, where others' are not
        self.keeps: set[int] = set()  # modules whose parameters keep their dtype
        self.device: Any = None  # of whole parameters, where parts are kept on another one
        self.ahead_forward: list[Unit] | None = None  # None: as the last pass went
        self.ahead_backward: list[Unit] | None = None
        self.waits_to_gather = False  # gathers ahead in backward begin when this unit is closed
        self.all_reduce_hook: Callable[[Tensor], None] | None = None


class Pass:
    """What the units of one root share: their order, and what is under way."""

    def __init__(self) -> None:
        self.units: list[Unit] = []
        self.last: Unit | None = None  # whose forward began last
        self.following: dict[Unit, Unit] = {}  # whose forward began after whose, last time
        self.order: dict[Unit, None] = {}  # of forwards that were recorded, the last one last
        self.walk: Any = None
        self.summed: tuple[Unit, Moving] | None = None
        self.is_last_backward = True

    def begin_forward(self, unit: Unit, is_root: bool) -> None:
        """Note the order of calls."""
        if self.last is not None and not is_root:
            self.following[self.last] = unit
        self.last = unit

    def end_forward(self) -> None:
        """The root's forward ended: nothing is gathered ahead any more."""
        self.last = None
        for unit in self.units:
            unit.let_go()

    def begin_backward(self, walk: Any) -> None:
        """The first hook of a pass: its end is waited for."""
        if self.walk is not walk:
            self.abandon()
            self.walk = walk
            walk.callbacks.append(self.end_backward)

    def abandon(self) -> None:
        """Let go of a pass that failed."""
        if self.summed is not None:
            self.summed[1].wait()
        self.summed = None
        for unit in self.units:
            unit.walk = None

    def end_backward(self) -> None:
        """All nodes have run: what is still open is closed."""
        for unit in self.units:
            if unit.walk is self.walk and unit.is_open:
                unit.close()
        self.finish_sum()
        for unit in self.units:
            unit.walk = None
            if self.is_last_backward:
                unit.let_go()
        self.walk = None
        if self.is_last_backward:
            self.order.clear()

    def sum_over_ranks(self, unit: Unit, moving: Moving) -> None:
        """One sum is under way while the next unit's derivatives run."""
        self.summed = unit, moving

    def finish_sum(self) -> None:
        """Wait for the sum under way, and give the parts their gradients."""
        if self.summed is not None:
            unit, moving = self.summed
            self.summed = None
            unit.take_gradients(moving)

    def before(self, unit: Unit) -> list[Unit]:
        """The unit to gather ahead in backward: the one whose forward was before."""
        order = list(self.order)
        at = order.index(unit) if unit in self.order else 0
        return order[at - 1 : at]


class Unit:
    """Parameters that are gathered and freed together. See Note [Units].

    Args:
        modules (sequence): Those whose calls need them.
        pieces (sequence): The parameters.
        group (ProcessGroup): The ranks that share them out.
        replicas (ProcessGroup): The ranks that have the same parts, if there are any.
        options (Options): What the user chose.
    """

    def __init__(
        self,
        modules: Sequence[Module],
        pieces: Sequence[Piece],
        group: ProcessGroup,
        replicas: ProcessGroup | None,
        options: Options,
    ) -> None:
        self.modules = list(modules)
        self.pieces = list(pieces)
        self.group, self.replicas, self.options = group, replicas, options
        self.size, self.rank = group.size(), group.rank()
        self.called: set[int] = set()  # of several modules, those whose forward ended
        self.stamp: Sequence[Any] = ()  # of the parts that the whole parameters were made from
        self.moving: Moving | None = None  # a gather under way
        self.shared: Pass = Pass()
        self.is_root = False
        self.is_shown = False  # the whole parameters are those of the module
        self.reshards: bool | None = None  # as the user said; None: all but the root
        self.walk: Any = None  # the pass that came to it
        self.is_open = False
        self.missing: set[Piece] = set()  # those whose gradient is to come
        self.inputs = 0  # whose gradient is to come, where that is waited for
        # Records of inputs, weakly: a forward may have no backward, or a later one.
        self.waits_for: list[tuple[weakref.ref[Any], int | None]] = []

    # ---- whole parameters ----

    @property
    def is_whole(self) -> bool:
        """Whether the whole parameters are there, and those of the parts as they are."""
        return (
            all(p.whole is not None and not is_vacant(p.whole._memory) for p in self.pieces)
            and is_same(self.stamp, self._stamp())
        )  # fmt: skip

    def _find_parts(self) -> None:
        """Parts that were exchanged in the module, as by a load with `assign`, are the parts."""
        for piece in self.pieces:
            module, name = piece.places[0]
            there = module._parameters.get(name)
            if there is not piece.part and isinstance(there, DTensor):
                piece.part = there
                piece.register(there)

    def _stamp(self) -> list[Any]:
        return [(piece.part._memory, piece.part._memory.version) for piece in self.pieces]

    def gather(self, asynchronous: bool = False) -> None:
        """Begin to gather, unless that was done."""
        self._find_parts()
        stamp = self._stamp()
        if self.is_whole:
            return
        if self.moving is not None:
            if is_same(self.moving.stamp, stamp):
                return
            self.moving.wait()
        self.moving = Moving(stamp)
        with Changed(**QUIET):
            for kind in Kind.of(self.pieces, self._sent_as):
                flat = self._room(kind, kind.count * self.size)
                mine = flat[self.rank * kind.count : (self.rank + 1) * kind.count]
                for start, piece in zip(kind.starts, kind.pieces, strict=True):
                    part, end = local(piece.part), start + piece.sharding.room
                    mine[start : start + part.numel()].copy_(part.reshape(-1))
                    if start + part.numel() < end:
                        mine[start + part.numel() : end].zero_()
                if self.size > 1:
                    work = all_gather_into_tensor(flat, mine, self.group, asynchronous)
                    self.moving.works += [] if work is None else [work]
                self.moving.buffers.append((kind, flat))

    def _sent_as(self, piece: Piece) -> DType:
        dtype = piece.part.dtype
        chosen, keeps = self.options.param_dtype, self.options.keeps
        if chosen is None or dtype.kind != "f" or id(piece.places[0][0]) in keeps:
            return dtype
        return chosen

    def _room(self, kind: Kind, count: int) -> Tensor:
        return room(count, kind.pieces[0].part, kind.dtype, self.device)

    @property
    def device(self) -> Any:
        """Where the whole parameters are."""
        chosen = self.options.device
        return self.pieces[0].part.device if chosen is None else chosen

    def fill(self) -> None:
        """Make the parameters whole, by the gather under way or a new one."""
        self.gather()
        moving, self.moving = self.moving, None
        if moving is None:
            return
        moving.wait()
        renewed = not is_same(self.stamp, moving.stamp)
        with Changed(**QUIET):
            while moving.buffers:
                kind, flat = moving.buffers.pop()
                for n, piece in enumerate(kind.pieces):
                    self._fill(piece, kind, flat, n, renewed)
                del flat
        self.stamp = moving.stamp

    def _fill(self, piece: Piece, kind: Kind, flat: Tensor, n: int, renewed: bool) -> None:
        sharding = piece.sharding
        if len(kind.pieces) == 1 and sharding.is_even:
            made = flat.view(sharding.shape)
        else:
            made = room(math.prod(sharding.shape), flat).view(sharding.shape)
            sharding.join(made, kind.rows(flat, n, self.size))
        if not renewed and piece.whole is not None:
            if is_vacant(piece.whole._memory):
                occupy(piece.whole._memory, made._memory)
            return
        shown = made if piece.layout is None else wrap(made, piece.layout)
        before, piece.whole = piece.whole, Parameter(shown, piece.part.requires_grad)
        piece.whole.__dict__.update(own_attributes(piece.part))
        if piece.whole.requires_grad:
            piece.whole.register_post_accumulate_grad_hook(self._reporter(piece))
            if before is not None:
                piece.whole.grad = before.grad  # summed up by passes that were not synchronised

    def free(self) -> None:
        """Free the whole parameters; the parts are left."""
        for piece in self.pieces:
            if piece.whole is not None and not is_vacant(piece.whole._memory):
                vacate(piece.whole._memory)

    def let_go(self) -> None:
        """Give back what was gathered ahead and not used."""
        if self.moving is not None:
            self.moving.wait()
            self.moving = None

    def show(self, whole: bool) -> None:
        """Put the whole parameters, or the parts, where the modules look for them."""
        self.is_shown = whole
        for piece in self.pieces:
            if whole and piece.whole.requires_grad is not piece.part.requires_grad:  # since then
                piece.whole.requires_grad_(piece.part.requires_grad)
                if piece.whole.requires_grad:
                    piece.whole.register_post_accumulate_grad_hook(self._reporter(piece))
            piece.register(piece.whole if whole else piece.part)

    # ---- forward ----

    def call(self, module: Module, run: Callable[..., Any], args: Any, named: Any) -> Any:
        """Run a module's forward, or another method that needs its parameters."""
        self.join(module)
        shared, options = self.shared, self.options
        shared.begin_forward(self, self.is_root)
        if options.param_dtype is not None and (
            options.casts_inputs or (options.casts_root_inputs and self.is_root)
        ):
            args, named = tree_map(_casting(options.param_dtype), (args, named))
        self.fill()
        ahead = options.ahead_forward
        if ahead is None:
            ahead = [shared.following[self]] if self in shared.following else []
        for unit in ahead:
            unit.gather(asynchronous=True)
        self.show(whole=True)
        try:
            result = self._run(run, args, named)
        except BaseException:
            self.show(whole=False)
            self.free()
            raise
        self.show(whole=False)
        if options.output_dtype is not None:
            result = tree_map(_casting(options.output_dtype), result)
        if STATE.get().grad:
            self._listen(args, named, result)
        self._end(module)
        return result

    def join(self, module: Module) -> None:
        """Share the order of calls with all units below the root, the unit that is called first."""
        if self.shared.units:
            return
        shared = Pass()
        for below in module.modules():
            unit: Unit | None = below.__dict__.get("_unit")
            if unit is not None and unit not in shared.units:
                shared.units.append(unit)
                unit.shared, unit.is_root = shared, unit is self
                unit.options.reshard_after_forward = (
                    not unit.is_root if unit.reshards is None else unit.reshards
                )

    def _run(self, run: Callable[..., Any], args: Any, named: Any) -> Any:
        """Rule 5 of Note [Units]."""
        if STATE.get().region is None:
            return run(*args, **named)
        if not is_checkpointing():
            result = run(*args, **named)
        else:
            region = Checkpoint()
            try:
                with Changed(region=region, saving=None):
                    result = run(*args, **named)
                region.close({value._memory for value in _tensors(result)})
            except BaseException:
                region.give_up()
                raise
        for value in _tensors(result):
            if value._memory.recipe is not None:
                replay.cut(value._memory)
        return result

    def _listen(self, args: Any, named: Any, result: Any) -> None:
        """Hooks that tell when backward comes to the unit, and when it leaves."""
        outputs = [value for value in _tensors(result) if value.requires_grad]
        if not outputs:
            return
        self.shared.order.pop(self, None)
        self.shared.order[self] = None
        stamp = self.stamp

        def begin(_: Any) -> None:
            self.open(stamp)

        for value in outputs:
            value.register_hook(begin)
        waits_for = self.waits_for = [pair for pair in self.waits_for if pair[0]() is not None]
        if any(not piece.part.requires_grad for piece in self.pieces):
            for value in _tensors((args, named)):
                if value.requires_grad:
                    waits_for.append(_weak(value._node))
                    value.register_hook(self._left)

    def _end(self, module: Module) -> None:
        """The forward of a module ended; with that of the last, the whole parameters are freed."""
        self.called.add(id(module))
        if len(self.called) < len(self.modules):
            return
        self.called.clear()
        if self.options.reshard_after_forward:
            self.free()
        if self.is_root:
            self.shared.end_forward()

    # ---- backward ----

    def open(self, stamp: Sequence[Any]) -> None:
        """Backward comes to the unit."""
        walk = WALK.get()
        self.shared.begin_backward(walk)
        if self.walk is walk:
            return
        if not is_same(stamp, self._stamp()):
            names = ", ".join([piece.name for piece in self.pieces][:4])
            raise InplaceError(
                f"backward: sharded parameters ({names}) were changed after the forward; run "
                "backward before the optimiser's step, or forward again"
            )
        self.walk, self.is_open = walk, True
        if self.options.gathers_for_backward or not self.is_whole:
            self.fill()
        self.missing = {
            piece
            for piece in self.pieces
            if piece.whole.requires_grad and walk.reaches(piece.whole._node)
        }
        self.inputs = len([pair for pair in self.waits_for if _is_reached(walk, *pair)])
        if not self.options.waits_to_gather:
            self._gather_ahead()

    def _gather_ahead(self) -> None:
        """Begin to gather the units that backward comes to next."""
        ahead = self.options.ahead_backward
        for unit in self.shared.before(self) if ahead is None else ahead:
            if unit.walk is not self.walk:
                unit.gather(asynchronous=True)

    def _reporter(self, piece: Piece) -> Callable[[Any], None]:
        def report(_: Any) -> None:
            if self.walk is WALK.get():
                self.missing.discard(piece)
                self._close_if_done()

        return report

    def _left(self, _: Any) -> None:
        """An input has its gradient."""
        if self.walk is WALK.get():
            self.inputs -= 1
            self._close_if_done()

    def _close_if_done(self) -> None:
        if self.is_open and not self.missing and self.inputs <= 0:
            self.close()

    def close(self) -> None:
        """Sum the gradients over ranks, and free the whole parameters."""
        self.is_open = False
        if self.options.syncs:
            given: list[tuple[Piece, Tensor]] = []
            for piece in self.pieces:
                gradient = piece.whole.grad if piece.whole.requires_grad else None
                if gradient is None and self.options.unused_as_zeros and piece.whole.requires_grad:
                    gradient = local(piece.whole).new_zeros(piece.sharding.shape)
                if gradient is not None:
                    given.append((piece, local(gradient)))
                    piece.whole.grad = None
            self.shared.finish_sum()
            if given:
                self.shared.sum_over_ranks(self, self._sum(given))
        if self.options.reshard_after_backward and not self.walk.create:
            self.free()
        if self.options.waits_to_gather:
            self._gather_ahead()

    def _sum(self, given: list[tuple[Piece, Tensor]]) -> Moving:
        """Begin the sums of gradients over ranks."""
        moving = Moving()
        gradients = dict(given)
        given.clear()
        with Changed(**QUIET):
            dtypes = {
                piece: self.options.reduce_dtype or gradient.dtype
                for piece, gradient in gradients.items()
            }
            for kind in Kind.of(gradients, dtypes.__getitem__):
                flat = self._room(kind, kind.count * self.size)
                for n, piece in enumerate(kind.pieces):
                    piece.sharding.split(kind.rows(flat, n, self.size), gradients.pop(piece))
                work = None
                if self.size > 1:
                    total = self._room(kind, kind.count)
                    work = reduce_scatter_tensor(total, flat, ReduceOp.SUM, self.group, True)
                    moving.works += [] if work is None else [work]
                    del flat
                else:
                    total = flat
                if self.replicas is not None and self.options.syncs_replicas:
                    work = all_reduce(total, ReduceOp.SUM, self.replicas, True, after=work)
                    moving.works += [] if work is None else [work]
                moving.buffers.append((kind, total))
        return moving

    @property
    def divisor(self) -> float:
        """What sums over ranks are divided by."""
        if self.options.divisor is not None:
            return self.options.divisor
        return self.size * (1 if self.replicas is None else self.replicas.size())

    def take_gradients(self, moving: Moving) -> None:
        """Give each part its part of the gradient."""
        moving.wait()
        divisor = self.divisor
        for kind, total in moving.buffers:
            with Changed(**QUIET):
                if divisor != 1:
                    total.div_(divisor)
            if self.options.all_reduce_hook is not None:
                self.options.all_reduce_hook(total)
            for start, piece in zip(kind.starts, kind.pieces, strict=True):
                part, leaf = local(piece.part), piece.part._node
                with Changed(**QUIET):
                    mine = total[start : start + part.numel()].view(part.shape)
                    mine = mine.to(part.device, part.dtype, copy=True)
                if leaf.__class__ is Leaf:  # rule 4 of Note [Units]
                    WALK.get().deliver(leaf, mine)


def _weak(edge: Any) -> tuple[weakref.ref[Any], int | None]:
    """A record without holding it: its node, and which result."""
    return (
        (weakref.ref(edge.node), edge.index) if type(edge) is Output else (weakref.ref(edge), None)
    )


def _is_reached(walk: Any, weak: weakref.ref[Any], index: int | None) -> bool:
    node = weak()
    if node is None:
        return False
    reached: bool = walk.reaches(node if index is None else Output(node, index))
    return reached


def own_attributes(parameter: Any) -> dict[str, Any]:
    """What a program has noted on a parameter."""
    return {name: value for name, value in vars(parameter).items() if name[0] != "_"}


def _casting(dtype: DType) -> Callable[[Any], Any]:
    def cast(given: Any) -> Any:
        is_float = isinstance(given, Tensor) and given.dtype.kind == "f"
        return given.to(dtype) if is_float else given

    return cast


def _tensors(nest: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(nest) if isinstance(leaf, Tensor)]
