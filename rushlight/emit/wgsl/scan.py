"""Scan kernels in WGSL: one invocation per (outer, inner), serial along the axis.

With `more` the output begins one element after earlier results, and the last of those is the scan's
start. A fourth size is the number of earlier positions, so that positions along the axis are right.
"""

from __future__ import annotations

from rushlight.emit.wgsl.module import GROUP, Module
from rushlight.kernel.shapes import Scan


def scan_text(module: Module, kernel: Scan, more: bool = False) -> str:
    start = module.printer.constant(kernel.start)
    if more:
        # The position -1: u32 wraps around.
        last = module.load(0, module.at(0, ["o", "0xffffffffu", "i"]))
        start = module.printer.cast(last, kernel.output, kernel.body.dtype)
    inputs = {j: module.at(1 + j, ["o", "a", "i"]) for j in range(len(kernel.inputs))}
    lines, (result,) = module.printer.block(
        [kernel.body], module.leaves(1, inputs, "(a + launch.size3)"), "t", "        "
    )
    put = module.store(0, module.at(0, ["o", "a", "i"]), "row0")
    return module.text(
        GROUP,
        f"    let here = group * {GROUP}u + lane;\n"
        "    let i = here % launch.size2;\n"
        "    let o = here / launch.size2;\n"
        "    if (o >= launch.size0) { return; }\n"
        f"    var row0 = {start};\n"
        "    for (var a = 0u; a < launch.size1; a += 1u) {\n"
        f"{lines}        row0 = {result};\n        {put}\n    }}\n",
    )
