"""Training whose bits do not depend on the number of processes.

# Note [Shards]
1. A step's batch is cut into a fixed number of logical shards. A process of W runs the forward of
   its `shards / W` shards one after another, each on its own rows, with its own leaves in the place
   of the parameters: no kernel sees more rows than a shard has. The leaves are made once; they have
   the parameters' memory.
2. Gradients come shard by shard, at these leaves, and are added in the tree of Note [Sums of
   ranks]: a process's shards are one subtree, so the sum over processes goes on with the same tree.
   W is a power of two, so that this holds and that a loss's mean over W times fewer rows differs by
   an exact factor, which is taken out where gradients enter the module.
3. Random numbers belong to the shard: its stream is a function of rank 0's seed and position and of
   the shard's number. The default stream then moves on by one word.
4. A batch norm normalises by its shard. Buffers that forward wrote, its running statistics, become
   the mean of the shards', in the same tree; integers are those of the first shard.
5. A pass under `no_sync` is reduced too: a sum over passes, then over ranks, has another order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rushlight.core.dtypes import int64
from rushlight.core.errors import ShapeError
from rushlight.distributed.collectives import all_reduce, broadcast
from rushlight.distributed.graph_leaves import leaves_of
from rushlight.distributed.process_groups import ProcessGroup
from rushlight.distributed.reducer import Reducer
from rushlight.distributed.reducing import ReduceOp, combine
from rushlight.nn.module import Module
from rushlight.nn.norm import SyncBatchNorm
from rushlight.ops.create.creation import zeros
from rushlight.ops.view.views import cat, stack
from rushlight.random import default_generator
from rushlight.tape.record.state import no_grad
from rushlight.tensor import Tensor, tensor
from rushlight.utils._pytree import tree_flatten, tree_unflatten

_WORD = (1 << 64) - 1
_PLAIN = (type(None), bool, int, float, str)  # values that shards may share


def stream_of(seed: int, position: int, shard: int) -> int:
    """The seed of a shard's stream: the three numbers mixed (the finaliser of SplitMix64)."""
    word = seed
    for part in (position, shard):
        word = (word + (part + 1) * 0x9E3779B97F4A7C15) & _WORD
        word = ((word ^ word >> 30) * 0xBF58476D1CE4E5B9) & _WORD
        word = ((word ^ word >> 27) * 0x94D049BB133111EB) & _WORD
        word ^= word >> 31
    return word


class Tree:
    """One parameter's gradients of this process's shards, added as they come."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: dict[tuple[int, int], Tensor] = {}

    def add(self, path: Sequence[Merge], gradient: Tensor) -> Tensor | None:
        """Put a shard's gradient in; the sum of all, when it was the last."""
        held, parts = gradient, self.parts
        for own, sibling, is_left in path:
            other = parts.pop(sibling, None)
            if other is None:
                parts[own] = held
                return None
            held = held.add_(other) if is_left else other.add_(held)
        return held


class Merge(NamedTuple):
    """A subtree, the one that it is added to, and whether it is the left one."""

    own: tuple[int, int]
    sibling: tuple[int, int]
    is_left: bool


def merges(count: int, shard: int) -> list[Merge]:
    """The subtrees that a shard is in, the smallest first, but for the whole."""
    low, high = 0, count
    found = []
    while high - low > 1:
        middle = (low + high) // 2
        left, right = (low, middle), (middle, high)
        is_left = shard < middle
        found.append(Merge(*((left, right) if is_left else (right, left)), is_left))
        low, high = left if is_left else right
    return found[::-1]


class Shards:
    """The shards of one process. See Note [Shards].

    Args:
        module (Module): The module.
        names (sequence): Of the parameters that need gradients.
        reducer (Reducer): Sums over ranks; None where there is no group.
        group (ProcessGroup): The ranks.
        count (int): The shards of all ranks.
    """

    def __init__(
        self,
        module: Module,
        names: Sequence[str],
        reducer: Reducer | None,
        group: ProcessGroup | None,
        count: int,
    ) -> None:
        size = 1 if group is None else group.size()
        if size & (size - 1) or count % size:
            raise ValueError(
                f"DistributedDataParallel: shards={count} over {size} processes; the number of "
                "processes must be a power of two that divides the shards"
            )
        if any(isinstance(part, SyncBatchNorm) for part in module.modules()):
            raise ValueError(
                "DistributedDataParallel: shards run one after another, and SyncBatchNorm needs "
                "all at once; use BatchNorm, whose running statistics are those of all shards"
            )
        self.module, self.names, self.group = module, list(names), group
        self.count, self.size = count, size
        self.here = count // size
        self.rank = 0 if group is None else group.rank()
        by_name = dict(module.named_parameters())
        self.parameters = [by_name[name] for name in self.names]
        self.reducer = reducer
        if reducer is not None:
            reducer.write = self._accumulate
        self.trees: list[Tree] = []
        self.paths = [merges(self.here, local) for local in range(self.here)]
        self.leaves: list[list[Tensor]] = [[] for _ in range(self.here)]

    # ---- forward ----

    def forward(self, inputs: Any, kwargs: Any, finds_unused: bool) -> Any:
        """Each shard's forward; what they give, put together along the first dimension."""
        try:
            return self._forward(inputs, kwargs, finds_unused)
        except BaseException:
            if self.reducer is not None:
                self.reducer.active = False  # no backward follows
            raise

    def _forward(self, inputs: Any, kwargs: Any, finds_unused: bool) -> Any:
        given, spec = tree_flatten((inputs, kwargs))
        cut = self._cut(given)
        seed, position = self._begin()
        if self.reducer is not None:
            self.reducer.prepare(set(), alone=True)  # a gradient is one sum of one forward's
            self.reducer.looks = finds_unused
        self.trees = [Tree() for _ in self.parameters]
        outputs, written = [], []
        own = default_generator.seed_value, default_generator.position
        parameters, buffers = self._spots()
        try:
            for local in range(self.here):
                shard = self.rank * self.here + local
                default_generator.manual_seed(stream_of(seed, position, shard))
                args, named = tree_unflatten(cut[local], spec)
                leaves = self._leaves(local)
                for held, key, number in parameters:
                    held[key] = leaves[number]
                copies = [buffer.clone() for _, _, buffer in buffers]
                before = [copy._memory.version for copy in copies]
                for (held, key, _), copy in zip(buffers, copies, strict=True):
                    held[key] = copy
                outputs.append(self.module(*args, **named))
                written.append(
                    {
                        id(buffer): held[key].detach()
                        for (held, key, buffer), copy, version in zip(
                            buffers, copies, before, strict=True
                        )
                        if held[key] is not copy or copy._memory.version != version
                    }
                )
        finally:
            for held, key, number in parameters:
                held[key] = self.parameters[number]
            for held, key, buffer in buffers:
                held[key] = buffer
            default_generator.seed_value, default_generator.position = own
        default_generator.position += 1
        with no_grad():
            self._write_buffers([buffer for _, _, buffer in buffers], written)
        if finds_unused:
            self._leave_out(outputs)
        return self._joined(outputs)

    def _spots(self) -> tuple[list[tuple[Any, str, int]], list[tuple[Any, str, Tensor]]]:
        """Where the module holds parameters that need gradients, by number, and its buffers."""
        numbers = {id(parameter): n for n, parameter in enumerate(self.parameters)}
        parameters, buffers = [], []
        seen: set[int] = set()
        for part in self.module.modules():
            for key, parameter in part._parameters.items():
                if id(parameter) in numbers:
                    parameters.append((part._parameters, key, numbers[id(parameter)]))
            for key, buffer in part._buffers.items():
                if buffer is not None and id(buffer) not in seen:
                    seen.add(id(buffer))
                    buffers.append((part._buffers, key, buffer))
        return parameters, buffers

    def _cut(self, given: Sequence[Any]) -> list[list[Any]]:
        """The inputs of each shard: tensors are cut along the batch, the rest is for all."""
        tensors = [one for one in given if isinstance(one, Tensor) and one.dim()]
        rows = tensors[0].shape[0] if tensors else 0
        if not rows or rows % self.here:
            raise ShapeError(
                f"DistributedDataParallel: a batch of {rows} rows for {self.here} of {self.count} "
                "shards in this process; give each process a multiple of them"
            )
        size = rows // self.here
        return [
            [
                one[n * size : (n + 1) * size]
                if isinstance(one, Tensor) and one.dim() and one.shape[0] == rows
                else one
                for one in given
            ]
            for n in range(self.here)
        ]

    def _begin(self) -> tuple[int, int]:
        """Rank 0's seed and position of the default stream."""
        low = default_generator.seed_value
        numbers = [low & 0xFFFFFFFF, low >> 32, default_generator.position]
        if self.size == 1:
            return low, numbers[2]
        told = tensor(numbers, dtype=int64)
        broadcast(told, group=self.group, group_src=0)
        numbers = [int(number) for number in told.tolist()]
        return numbers[0] | numbers[1] << 32, numbers[2]

    def _leaves(self, local: int) -> list[Tensor]:
        """A shard's own leaves, in the memory of the parameters."""
        made = self.leaves[local]
        if not made:
            made.extend(self._leaf(n, local) for n in range(len(self.parameters)))
        for number, parameter in enumerate(self.parameters):
            leaf: Any = made[number]
            if leaf._memory is not parameter._memory or leaf._spec is not parameter._spec:
                made[number] = self._leaf(number, local)  # it has moved
            elif leaf.grad is not None:
                leaf.grad = None  # of a backward pass that failed
        return made

    def _leaf(self, number: int, local: int) -> Tensor:
        def report(leaf: Any) -> None:
            gradient, leaf.grad = leaf.grad, None
            self._arrived(number, local, gradient)

        leaf = self.parameters[number].detach().requires_grad_()
        leaf.register_post_accumulate_grad_hook(report)
        return leaf

    def _arrived(self, number: int, local: int, gradient: Tensor) -> None:
        reducer = self.reducer
        if reducer is not None and not reducer.active:
            raise RuntimeError(
                "DistributedDataParallel: one backward pass for each forward; with shards a second "
                "one would not be summed"
            )
        with no_grad():
            total = self.trees[number].add(self.paths[local], gradient)
            if total is None:
                return
            if reducer is not None:
                reducer.arrived(number, total)
            else:
                self._accumulate(number, total)

    def _accumulate(self, number: int, total: Tensor) -> None:
        parameter: Any = self.parameters[number]
        if parameter.grad is None:
            parameter.grad = total if self.reducer is None else total.clone()  # a bucket's part
        else:
            parameter.grad.detach().add_(total)

    def _leave_out(self, outputs: Sequence[Any]) -> None:
        """Zeros for what a shard does not use; a parameter that no shard here uses is unused."""
        used = [
            [id(leaf) in reached for leaf in own]
            for own, reached in zip(self.leaves, map(leaves_of, outputs), strict=True)
        ]
        if self.reducer is not None:
            nowhere = {n for n in range(len(self.names)) if not any(row[n] for row in used)}
            self.reducer.active = False
            self.reducer.prepare(nowhere)
        for number, parameter in enumerate(self.parameters):
            if any(row[number] for row in used):
                for local, row in enumerate(used):
                    if not row[number]:
                        absent = zeros(
                            parameter.shape, dtype=parameter.dtype, device=parameter.device
                        )
                        self._arrived(number, local, absent)

    # ---- buffers and results ----

    def _write_buffers(self, own: Sequence[Tensor], written: Sequence[dict[int, Tensor]]) -> None:
        """Rule 4 of Note [Shards]."""
        shares = []
        for buffer in own:
            if not any(id(buffer) in of for of in written):
                continue
            values = [of.get(id(buffer), buffer) for of in written]
            if buffer.dtype.kind not in "fc":
                buffer.copy_(values[0])
            else:
                shares.append((buffer, combine([v.clone() for v in values], ReduceOp.SUM)))
        kinds: dict[Any, list[tuple[Tensor, Tensor]]] = {}
        for target, total in shares:
            kinds.setdefault((total.dtype, total.device), []).append((target, total))
        for same in kinds.values():
            flat = cat([total.reshape(-1) for _, total in same])
            if self.size > 1:
                all_reduce(flat, ReduceOp.SUM, self.group)
            flat.div_(self.count)
            parts = flat.split([target.numel() for target, _ in same])
            for (target, _), part in zip(same, parts, strict=True):
                target.copy_(part.view(target.shape))

    def _joined(self, outputs: Sequence[Any]) -> Any:
        flat = [tree_flatten(one) for one in outputs]
        spec = flat[0][1]
        columns = zip(*(leaves for leaves, _ in flat), strict=True)
        return tree_unflatten([self._together(column) for column in columns], spec)

    def _together(self, column: Sequence[Any]) -> Any:
        """Rows of all shards; a number (a loss) is their mean. See Note [Shards] 2."""
        first = column[0]
        if not isinstance(first, Tensor):
            if isinstance(first, _PLAIN) and all(one == first for one in column):
                return first
            raise TypeError(
                f"DistributedDataParallel: with shards forward gives tensors, or tuples, lists and "
                f"dicts of them: these can be put together. Got {type(first).__name__}"
                + (", not the same from all shards" if isinstance(first, _PLAIN) else "")
            )
        if column[0].dim():
            made: Any = cat(list(column))
        else:
            made = self._mean(stack(list(column)))
        if made.requires_grad and self.size > 1:
            made.register_hook(lambda g: g / self.size)
        return made

    def _mean(self, numbers: Tensor) -> Tensor:
        while len(numbers) > 1 and not len(numbers) % 2:
            half = numbers.view(-1, 2)
            numbers = half[:, 0] + half[:, 1]
        return numbers.sum() / self.here
