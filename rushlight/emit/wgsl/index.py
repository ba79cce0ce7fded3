"""Gather and Scatter kernels in WGSL.

An index is read as words: it is in range when its low word is below the limit and its high word, if
any, is 0, so int64 indices need no int64 arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence

from rushlight.core.dtypes import compute_type
from rushlight.emit.wgsl.module import GROUP, Module
from rushlight.kernel.shapes import Gather, Scatter

_BAD = "0xffffffffu"
INVOCATIONS = 16384  # that share a scatter, if it has so many targets
LEAST = 64  # indices per slice of the targets


def slices_of(sizes: Sequence[int]) -> int:
    """The number of invocations that share the targets of one (outer, inner) of a scatter.

    The text has the same formula.
    """
    outer, count, inner, limit = sizes
    return min(max(INVOCATIONS // max(outer * inner, 1), 1), min(limit, count // LEAST) + 1)


def _index_function(module: Module, wide: bool) -> str:
    access = module.access[2]
    if wide:
        words = f"    let low = {access.word('here * 2u')};\n"
        inside = f"{access.word('here * 2u + 1u')} == 0u && low < launch.size3"
    else:
        words = f"    let low = {access.word('here')};\n"
        inside = "low < launch.size3"  # unsigned: a negative index is a large one
    return (
        "fn place(at: u32) -> u32 {\n    let here = launch.offset2 + at;\n"
        f"{words}"
        f"    return select({_BAD}, low, {inside});\n}}\n"
    )


def gather_text(module: Module, kernel: Gather) -> str:
    """One invocation per element of the output."""
    found = module.load(1, module.at(1, ["o", "from_k", "i"]))
    zero = "false" if kernel.dtype.kind == "b" else module.printer.number(0, kernel.dtype)
    out = module.at(0, ["o", "k", "i"])
    put, empty = module.store(0, out, found), module.store(0, out, zero)
    flag = module.store(3, "0u", "1i")
    module.globals += _index_function(module, kernel.index_dtype.itemsize == 8)
    return module.text(
        GROUP,
        f"    let here = group * {GROUP}u + lane;\n"
        "    let i = here % launch.size2;\n"
        "    let k = (here / launch.size2) % launch.size1;\n"
        "    let o = here / (launch.size2 * launch.size1);\n"
        "    if (o >= launch.size0) { return; }\n"
        f"    let from_k = place({module.at(2, ['o', 'k', 'i'])});\n"
        f"    if (from_k == {_BAD}) {{\n        {empty}\n        {flag}\n    }} else {{\n        "
        f"{put}\n    }}\n",
    )


def scatter_text(module: Module, kernel: Scatter) -> str:
    """An invocation owns a slice of the targets of one (outer, inner) and reads every k."""
    out = module.at(0, ["o", "to_k", "i"])
    old = module.load(0, out)
    new = module.load(1, module.at(1, ["o", "k", "i"]))
    if kernel.kind != "set":
        op = "mul" if kernel.kind == "prod" else kernel.kind
        new = module.printer.apply(op, compute_type(kernel.dtype), [old, new])
    put = module.store(0, out, new)
    flag = module.store(3, "0u", "1i")
    module.globals += _index_function(module, kernel.index_dtype.itemsize == 8)
    return module.text(
        GROUP,
        f"    let here = group * {GROUP}u + lane;\n"
        "    let i = here % launch.size2;\n"
        "    let columns = launch.size0 * launch.size2;\n"
        "    let o = (here / launch.size2) % launch.size0;\n"
        f"    let slices = clamp({INVOCATIONS}u / columns, 1u, min(launch.size3, launch.size1 / "
        f"{LEAST}u) + 1u);\n"
        "    let width = (launch.size3 + slices - 1u) / slices;\n"
        "    let begin = here / columns * width;\n"
        "    if (here / columns >= slices) { return; }\n"
        "    for (var k = 0u; k < launch.size1; k += 1u) {\n"
        f"        let to_k = place({module.at(2, ['o', 'k', 'i'])});\n"
        f"        if (to_k == {_BAD}) {{\n            {flag}\n        }} else if (to_k - begin < "
        f"width) {{\n"
        f"            {put}\n        }}\n    }}\n",
    )
