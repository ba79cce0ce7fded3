"""Contract kernels in WGSL: a tiled form in workgroup memory, and a plain one per element.

Both add in ascending k, so the choice does not change the sum's order. With `more` the sum is added
to the output.
"""

from __future__ import annotations

from rushlight.emit.wgsl.module import GROUP, Module
from rushlight.kernel.shapes import Contract

# Rows and columns of the output per workgroup; each of 16 x 16 invocations has 4 x 4 of them.
TILE = 64
DEPTH = 16  # of k in workgroup memory at a time


def plain_contract_text(module: Module, kernel: Contract, more: bool = False) -> str:
    printer = module.printer
    dtype, compute = kernel.dtype, kernel.compute
    a = printer.cast(module.load(1, module.at(1, ["x", "y", "m", "k"])), dtype, compute)
    b = printer.cast(module.load(2, module.at(2, ["x", "y", "k", "n"])), dtype, compute)
    # The hardware's fma, as in the tiled form, fused or not.
    added = (
        "fma(a, b, sum)"
        if compute.kind == "f"
        else printer.apply("fma", compute, ["a", "b", "sum"])
    )
    there = module.at(0, ["x", "y", "m", "n"])
    total = "sum"
    if more:
        total = printer.apply(
            "add", compute, [printer.cast(module.load(0, there), dtype, compute), "sum"]
        )
    put = module.store(0, there, printer.cast(total, compute, dtype))
    return module.text(
        GROUP,
        f"    let here = group * {GROUP}u + lane;\n"
        "    let n = here % launch.size3;\n"
        "    let m = (here / launch.size3) % launch.size2;\n"
        "    let batch = here / (launch.size3 * launch.size2);\n"
        "    let y = batch % launch.size1;\n"
        "    let x = batch / launch.size1;\n"
        "    if (x >= launch.size0) { return; }\n"
        f"    var sum = {printer.number(0, compute)};\n"
        "    for (var k = 0u; k < launch.size4; k += 1u) {\n"
        f"        let a = {a};\n        let b = {b};\n        sum = {added};\n    }}\n"
        f"    {put}\n",
    )


def tiled_contract_text(module: Module, kernel: Contract, more: bool = False) -> str:
    """For compute types of 32 bits. One invocation writes a vec4 of a tile.

    Rows of 17 avoid bank conflicts.
    """
    kind = module.type(kernel.compute)
    zero = module.printer.number(0, kernel.compute)
    for side in "ab":
        module.globals += f"var<workgroup> tile_{side}: array<vec4<{kind}>, {DEPTH * 17}>;\n"
    loads = _guarded(module, kind, zero)
    if kernel.compute.kind == "f":
        step = "fma(vec4<{0}>(a.{1}), b, sum{2})"
    else:
        step = "vec4<{0}>(a.{1}) * b + sum{2}"
    lines = "".join(f"            sum{r} = {step.format(kind, 'xyzw'[r], r)};\n" for r in range(4))
    body = _TILED_HEAD + "".join(f"    var sum{r} = vec4<{kind}>({zero});\n" for r in range(4))
    body += _TILED_LOOP.replace("KIND", kind).replace("LINES\n", lines)
    body += "".join(_tiled_store(module, r, more) for r in range(4))
    module.globals += loads
    return module.text(GROUP, body)


def _guarded(module: Module, kind: str, zero: str) -> str:
    """Loads that give zero outside the matrix.

    Only k outside matters, and there both sides are zero.
    """
    a = module.load(1, "batch_a + m * launch.stride1_2 + k * launch.stride1_3")
    b = module.load(2, "batch_b + k * launch.stride2_2 + n * launch.stride2_3")
    return (
        f"fn a_at(batch_a: u32, m: u32, k: u32) -> {kind} {{\n"
        f"    if (m < launch.size2 && k < launch.size4) {{ return {a}; }}\n    return {zero};\n}}\n"
        f"fn b_at(batch_b: u32, k: u32, n: u32) -> {kind} {{\n"
        f"    if (n < launch.size3 && k < launch.size4) {{ return {b}; }}\n    return {zero};\n}}\n"
    )


def _tiled_store(module: Module, r: int, more: bool) -> str:
    text = f"    if (m + {r}u < launch.size2) {{\n"
    for c in range(4):
        there = f"batch_o + (m + {r}u) * launch.stride0_2 + (n + {c}u) * launch.stride0_3"
        total = f"sum{r}.{'xyzw'[c]}"
        put = module.store(0, there, f"({module.load(0, there)} + {total})" if more else total)
        text += f"        if (n + {c}u < launch.size3) {{ {put} }}\n"
    return text + "    }\n"


_TILED_HEAD = f"""    let across = (launch.size3 + {TILE - 1}u) / {TILE}u;
    let down = (launch.size2 + {TILE - 1}u) / {TILE}u;
    let batch = group / (across * down);
    let x = batch / launch.size1;
    let y = batch % launch.size1;
    if (x >= launch.size0) {{ return; }}
    let batch_o = x * launch.stride0_0 + y * launch.stride0_1;
    let batch_a = x * launch.stride1_0 + y * launch.stride1_1;
    let batch_b = x * launch.stride2_0 + y * launch.stride2_1;
    let first_m = ((group / across) % down) * {TILE}u;
    let first_n = (group % across) * {TILE}u;
    // Neighbouring invocations read along the dimension of stride 1.
    let by_k_a = launch.stride1_3 == 1u;
    let by_k_b = launch.stride2_2 == 1u && launch.stride2_3 != 1u;
    let k_a = select(lane / 16u, lane % 16u, by_k_a);
    let g_a = select(lane % 16u, lane / 16u, by_k_a);
    let k_b = select(lane / 16u, lane % 16u, by_k_b);
    let g_b = select(lane % 16u, lane / 16u, by_k_b);
    let m_a = first_m + g_a * 4u;
    let n_b = first_n + g_b * 4u;
"""

_TILED_LOOP = f"""    for (var start = 0u; start < launch.size4; start += {DEPTH}u) {{
        let ka = start + k_a;
        let kb = start + k_b;
        tile_a[k_a * 17u + g_a] = vec4<KIND>(
            a_at(batch_a, m_a, ka), a_at(batch_a, m_a + 1u, ka),
            a_at(batch_a, m_a + 2u, ka), a_at(batch_a, m_a + 3u, ka));
        tile_b[k_b * 17u + g_b] = vec4<KIND>(
            b_at(batch_b, kb, n_b), b_at(batch_b, kb, n_b + 1u),
            b_at(batch_b, kb, n_b + 2u), b_at(batch_b, kb, n_b + 3u));
        workgroupBarrier();
        for (var k = 0u; k < {DEPTH}u; k += 1u) {{
            let a = tile_a[k * 17u + lane / 16u];
            let b = tile_b[k * 17u + lane % 16u];
LINES
        }}
        workgroupBarrier();
    }}
    let m = first_m + (lane / 16u) * 4u;
    let n = first_n + (lane % 16u) * 4u;
"""
