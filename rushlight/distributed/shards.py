"""Training whose bits do not depend on the number of processes.

# Note [Shards]
1. A step's batch is cut into a fixed number of logical shards. A process of W runs the forward of
   its `shards / W` shards one after another, each on its own rows, with its own leaves in the place
   of the parameters: no kernel sees more rows than a shard has.
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
from typing import Any

from rushlight.core.dtypes import int64
from rushlight.core.errors import ShapeError
from rushlight.distributed.collectives import all_reduce, broadcast
from rushlight.distributed.graph_leaves import leaves_of
from rushlight.distributed.process_groups import ProcessGroup
from rushlight.distributed.reducer import Reducer
from rushlight.distributed.reducing import ReduceOp, combine
from rushlight.nn.module import Module
from rushlight.nn.norm import SyncBatchNorm
from rushlight.nn.utils.stateless import functional_call
from rushlight.ops.create.creation import zeros
from rushlight.ops.view.views import cat, stack
from rushlight.random import default_generator
from rushlight.tape.record.state import no_grad
from rushlight.tensor import Tensor, tensor
from rushlight.utils._pytree import tree_flatten, tree_unflatten

_WORD = (1 << 64) - 1


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

    def __init__(self, count: int) -> None:
        self.count = count
        self.parts: dict[tuple[int, int], Tensor] = {}

    def add(self, shard: int, gradient: Tensor) -> Tensor | None:
        """Put a shard's gradient in; the sum of all, when it was the last."""
        path = _path(self.count, shard)
        key, held = path[-1], gradient
        for above in reversed(path[:-1]):
            middle = (above[0] + above[1]) // 2
            sibling = (middle, above[1]) if key[0] < middle else (above[0], middle)
            other = self.parts.pop(sibling, None)
            if other is None:
                self.parts[key] = held
                return None
            held = held.add_(other) if key[0] < middle else other.add_(held)
            key = above
        return held


def _path(count: int, shard: int) -> list[tuple[int, int]]:
    """The subtrees that a shard is in, the whole first."""
    low, high = 0, count
    found = [(low, high)]
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if shard < middle else (middle, high)
        found.append((low, high))
    return found


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
        self.awaited: dict[tuple[int, int], Tensor] = {}  # leaves whose gradient is to come

    # ---- forward ----

    def forward(self, inputs: Any, kwargs: Any, finds_unused: bool) -> Any:
        """Each shard's forward; what they give, put together along the first dimension."""
        given, spec = tree_flatten((inputs, kwargs))
        cut = self._cut(given)
        seed, position = self._begin()
        if self.reducer is not None:
            self.reducer.prepare(set(), alone=True)  # a gradient is one sum of one forward's
            self.reducer.looks = finds_unused
        self.trees = [Tree(self.here) for _ in self.parameters]
        self.awaited = {}
        outputs, written, leaves = [], [], []
        own = default_generator.seed_value, default_generator.position
        try:
            for local in range(self.here):
                shard = self.rank * self.here + local
                default_generator.manual_seed(stream_of(seed, position, shard))
                args, named = tree_unflatten(cut[local], spec)
                replaced = self._leaves(local)
                leaves.append([replaced[name] for name in self.names])
                buffers = {name: b.clone() for name, b in self.module.named_buffers()}
                before = {name: b._version for name, b in buffers.items()}
                replaced.update(buffers)
                kept = dict(buffers)
                outputs.append(functional_call(self.module, replaced, args, named))
                written.append(
                    {
                        name: replaced[name].detach()
                        for name, b in kept.items()
                        if replaced[name] is not b or b._version != before[name]
                    }
                )
        finally:
            default_generator.seed_value, default_generator.position = own
        default_generator.position += 1
        with no_grad():
            self._write_buffers(written)
        if finds_unused:
            self._leave_out(outputs, leaves)
        return self._joined(outputs)

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

    def _leaves(self, local: int) -> dict[str, Tensor]:
        """A shard's own leaves, in the memory of the parameters."""
        made: dict[str, Tensor] = {}
        for number, (name, parameter) in enumerate(zip(self.names, self.parameters, strict=True)):
            leaf = parameter.detach().requires_grad_()
            leaf.register_post_accumulate_grad_hook(self._reporter(number, local))
            made[name] = self.awaited[number, local] = leaf
        return made

    def _reporter(self, number: int, local: int) -> Any:
        trees, awaited = self.trees, self.awaited

        def report(leaf: Any) -> None:
            gradient, leaf.grad = leaf.grad, None
            awaited.pop((number, local), None)
            self._arrived(trees, number, local, gradient)

        return report

    def _arrived(self, trees: Sequence[Tree], number: int, local: int, gradient: Tensor) -> None:
        with no_grad():
            total = trees[number].add(local, gradient)
            if total is None:
                return
            if self.reducer is not None:
                self.reducer.arrived(number, total)
            else:
                self._accumulate(number, total)

    def _accumulate(self, number: int, total: Tensor) -> None:
        parameter: Any = self.parameters[number]
        if parameter.grad is None:
            parameter.grad = total.clone()
        else:
            parameter.grad.detach().add_(total)

    def _leave_out(self, outputs: Sequence[Any], leaves: Sequence[Sequence[Tensor]]) -> None:
        """Zeros for what a shard does not use; a parameter that no shard here uses is unused."""
        used = [
            [id(leaf) in reached for leaf in own]
            for own, reached in zip(leaves, map(leaves_of, outputs), strict=True)
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
                        self._arrived(self.trees, number, local, absent)

    # ---- buffers and results ----

    def _write_buffers(self, written: Sequence[dict[str, Tensor]]) -> None:
        """Rule 4 of Note [Shards]."""
        own = dict(self.module.named_buffers())
        changed = [name for name in own if any(name in of for of in written)]
        shares = []
        for name in changed:
            values = [of.get(name, own[name]) for of in written]
            if own[name].dtype.kind not in "fc":
                own[name].copy_(values[0])
            else:
                shares.append((own[name], combine([v.clone() for v in values], ReduceOp.SUM)))
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
        if not isinstance(column[0], Tensor):
            return column[0]
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
