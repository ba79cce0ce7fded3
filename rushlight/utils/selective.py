"""Selective checkpointing: a policy says which calls' results a checkpoint keeps."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Sequence
from typing import Any

from rushlight.compat.aten import OpOverload, aten, op_of
from rushlight.tape.memory.checkpoint import Checkpoint, Choice
from rushlight.tape.record.op import Plan
from rushlight.tape.record.state import STATE, Changed
from rushlight.tape.record.value import Value


class CheckpointPolicy(enum.Enum):
    """What a checkpoint does with the results of one call.

    SAVE keeps them, RECOMPUTE drops and rebuilds them, CPU_OFFLOAD moves them to host memory and
    back; on the CPU that is SAVE. A budget or a checkpoint around may drop what is only PREFERred
    to be saved.
    """

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


_CHOICES = {
    CheckpointPolicy.MUST_SAVE: Choice.KEPT,
    CheckpointPolicy.PREFER_SAVE: Choice.PREFERRED,
    CheckpointPolicy.MUST_RECOMPUTE: Choice.REBUILT,
    CheckpointPolicy.PREFER_RECOMPUTE: Choice.REBUILT,
    CheckpointPolicy.MUST_CPU_OFFLOAD: Choice.OFFLOADED,
    CheckpointPolicy.PREFER_CPU_OFFLOAD: Choice.OFFLOADED,
    True: Choice.KEPT,
    False: Choice.REBUILT,
}

# Calls that a policy is not asked about: `detach` makes none.
SAC_IGNORED_OPS = {aten.detach.default}


class SelectiveCheckpointContext:
    """The first argument of a policy: `op_output` is the call's result.

    `is_recompute` is False: a replay runs kernels, and asks no policy.
    """

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute = is_recompute
        self.op_output = op_output


PolicyFunction = Callable[..., CheckpointPolicy | bool]


class _Selecting:
    """A block in which the checkpoint around asks a policy. See Note [Selection]."""

    def __init__(self, policy: PolicyFunction) -> None:
        self.policy = policy
        self.before: list[tuple[Checkpoint, Any, bool]] = []

    def __enter__(self) -> _Selecting:
        region = STATE.get().region
        if not isinstance(region, Checkpoint):
            raise RuntimeError(
                "create_selective_checkpoint_contexts: its blocks are entered by checkpoint(); "
                "give them to its context_fn"
            )
        self.before.append((region, region.selection, region.chooses))
        region.selection, region.chooses = self, True
        return self

    def __exit__(self, *_: object) -> None:
        region, selection, chooses = self.before.pop()
        region.selection, region.chooses = selection, chooses

    def choose(self, plan: Plan, inputs: Sequence[Value], result: Any) -> Choice:
        asked = SelectiveCheckpointContext(is_recompute=False, op_output=result)
        with Changed(grad=False, region=None, saving=None):
            answer = self.policy(asked, op_of(plan), *inputs)
        if answer.__class__ not in (CheckpointPolicy, bool):
            raise TypeError(
                f"a checkpoint's policy gives a CheckpointPolicy or a bool, got {answer!r} for "
                f"{op_of(plan)}"
            )
        return _CHOICES[answer]


def create_selective_checkpoint_contexts(
    policy_fn_or_list: PolicyFunction | list[OpOverload], allow_cache_entry_mutation: bool = False
) -> tuple[Any, Any]:
    """The blocks of a checkpoint that keeps some of its calls' results, for its `context_fn`.

    `policy_fn(ctx, op, *args)` is called after each call that the tape records inside, with the
    call's operands, and gives a `CheckpointPolicy`, or a bool: save or recompute. A list of ops is
    a policy that saves their results. Ops are `rushlight.ops.aten.<name>.default`.

    `allow_cache_entry_mutation` is accepted for compatibility: before a saved result is overwritten
    in place, what a replay would make from it is made, so gradients are right in any case.
    """
    if isinstance(policy_fn_or_list, list):
        for op in policy_fn_or_list:
            if not isinstance(op, OpOverload):
                raise ValueError(
                    "create_selective_checkpoint_contexts: a list has ops such as "
                    f"rushlight.ops.aten.mm.default, got {op!r}"
                )
        saved = frozenset(policy_fn_or_list)
        return _Selecting(lambda asked, op, *args: op in saved), contextlib.nullcontext()
    if not callable(policy_fn_or_list):
        raise TypeError(
            "create_selective_checkpoint_contexts: a function or a list of ops is needed, got "
            f"{type(policy_fn_or_list).__name__}"
        )
    return _Selecting(policy_fn_or_list), contextlib.nullcontext()
