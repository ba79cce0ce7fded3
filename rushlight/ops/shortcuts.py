"""The public ops that get a shortcut (Note [Shortcuts]): pure functions of tensors and static arguments.

A name belongs here if its function draws no random numbers, reads no elements, writes to nothing, and does not depend
on a default that can be set.
"""

from __future__ import annotations

from dataclasses import replace

from rushlight.ops.registry import REGISTRY
from rushlight.tape.shortcut import shortcut, shortcut_of_one

# Functions of one tensor, which comes first. Their static numbers are dimensions and sizes: 1 and True mean the same.
ONE = (
    *("sum", "mean", "amax", "amin", "argmax", "argmin", "all", "any", "prod", "count_nonzero", "nansum"),
    *("softmax", "log_softmax", "logsumexp", "cumsum", "cumprod"),
    *("reshape", "view", "permute", "transpose", "t", "squeeze", "unsqueeze", "expand", "flatten", "unflatten"),
    *("narrow", "select", "movedim", "swapaxes", "swapdims", "diagonal", "unbind", "chunk", "split"),
    *("tril", "triu", "flip", "roll", "repeat", "contiguous"),
)
# Functions of several, or of numbers whose type matters.
SEVERAL = (
    *("var", "std", "var_mean", "std_mean", "norm", "max", "min", "clamp"),
    *("cat", "stack", "hstack", "vstack", "index_select", "gather", "take_along_dim", "scatter_add", "masked_fill"),
    *("matmul", "mm", "bmm", "mv", "dot", "outer", "addmm", "baddbmm", "linear"),
    *("layer_norm", "group_norm", "rms_norm", "cross_entropy", "mse_loss", "l1_loss", "nll_loss"),
)


def install() -> None:
    for names, wrap in ((ONE, shortcut_of_one), (SEVERAL, shortcut)):
        for name in names:
            entry = REGISTRY[name]
            function = wrap(entry.function)
            if hasattr(entry.function, "op"):
                function.op = entry.function.op  # type: ignore[attr-defined]
            REGISTRY[name] = replace(entry, function=function)
