"""Map and Rowwise kernels in WGSL."""

from __future__ import annotations

from collections.abc import Callable

from rushlight.core.dtypes import DType, compute_type
from rushlight.emit.wgsl_module import GROUP, Module
from rushlight.kernel.shapes import Map, Reduce, Rowwise

Store = Callable[[int, str, str], str]  # a statement that keeps output i's value at a place


def map_text(module: Module, kernel: Map) -> str:
    """One invocation per element."""
    count = max(kernel.rank, 1)
    total = " * ".join(f"launch.size{d}" for d in range(count))
    head = f"    let here = group * {GROUP}u + lane;\n    if (here >= {total}) {{ return; }}\n"
    return module.text(GROUP, head + _split(kernel.rank) + _map_body(module, kernel, "    ", module.store))


def packed_map_text(module: Module, kernel: Map) -> str:
    """One invocation per few elements that fill whole words of every sub-word output; see `packed_run`."""
    run = packed_run(kernel)
    small = {i: run * d.itemsize // 4 for i, d in enumerate(kernel.outputs) if d.itemsize < 4}
    head = (
        f"    let first = (group * {GROUP}u + lane) * {run}u;\n"
        "    if (first >= launch.size0) { return; }\n"
        f"    let last = min(first + {run}u, launch.size0);\n"
    )
    head += "".join(f"    var words{i}: array<u32, {n}>;\n" for i, n in small.items())

    def keep(output: int, at: str, value: str) -> str:
        if output not in small:
            return module.store(output, at, value)
        size = kernel.outputs[output].itemsize
        per, bits = 4 // size, module.encoded(output, value)
        word = f"words{output}[(here - first) / {per}u]"
        return f"{word} = {word} | ({bits} << (((here - first) % {per}u) * {size * 8}u));"

    body = _map_body(module, kernel, "        ", keep)
    loop = f"    for (var here = first; here < last; here += 1u) {{\n{body}    }}\n"
    return module.text(GROUP, head + loop + "".join(_put_words(module, kernel, i, n) for i, n in small.items()))


def packed_run(kernel: Map) -> int:
    """Elements per invocation of the packed form: the least that fill a word of each output; 1 if it does not apply."""
    if kernel.rank:
        return 1
    return max(1, 4 // min(d.itemsize for d in kernel.outputs))


def _put_words(module: Module, kernel: Map, output: int, words: int) -> str:
    """Whole words, the last one masked: what follows the last element belongs to somebody else."""
    size = kernel.outputs[output].itemsize
    access = module.access[output]
    mixed = f"({access.word('at')} & ~mask) | (word & mask)"
    module.globals += (
        f"fn put_word{output}(at: u32, word: u32, bits: u32) {{\n"
        f"    if (bits >= 32u) {{ {access.put('at', 'word')} return; }}\n"
        "    let mask = (1u << bits) - 1u;\n"
        f"    if (bits > 0u) {{ {access.put('at', mixed)} }}\n}}\n"
    )
    text = (
        f"    let start{output} = (launch.offset{output} + first) / {4 // size}u;\n"
        f"    let bits{output} = (last - first) * {size * 8}u;\n"
    )
    for w in range(words):
        left = f"max(bits{output}, {32 * w}u) - {32 * w}u" if w else f"bits{output}"
        text += f"    put_word{output}(start{output} + {w}u, words{output}[{w}], {left});\n"
    return text


def _split(rank: int) -> str:
    """Coordinates c0, c1, ... of the linear position `here`."""
    if rank == 0:
        return ""
    text = "" if rank == 1 else "    var rest = here;\n"
    for d in range(rank - 1, 0, -1):
        text += f"    let c{d} = rest % launch.size{d};\n    rest = rest / launch.size{d};\n"
    return text + f"    let c0 = {'here' if rank == 1 else 'rest'};\n"


def _map_body(module: Module, kernel: Map, indent: str, store: Store) -> str:
    coordinates = [f"c{d}" for d in range(kernel.rank)]
    outputs = len(kernel.outputs)

    def place(operand: int) -> str:
        if kernel.rank:
            return module.at(operand, coordinates)
        return "0u" if kernel.steps[operand] == "0" else "here"

    inputs = {i: place(outputs + i) for i in range(len(kernel.inputs))}
    lines, roots = module.printer.block(kernel.body, module.leaves(inputs, "here"), "t", indent)
    return lines + "".join(f"{indent}{store(i, place(i), root)}\n" for i, root in enumerate(roots))


def rowwise_text(module: Module, kernel: Rowwise, lanes: int) -> str:
    """`lanes` invocations walk each row together; a workgroup has GROUP / lanes rows."""
    columns = GROUP // lanes
    local = "" if lanes == 1 else f"    let walker = lane / {columns}u;\n    let column = lane % {columns}u;\n"
    head = (
        f"{local}    let task = group * {columns}u + {'lane' if lanes == 1 else 'column'};\n"
        "    let present = task < launch.size0 * launch.size2;\n"
        "    let o = task / max(launch.size2, 1u);\n"
        "    let i = task % max(launch.size2, 1u);\n"
        "    let limit = select(0u, launch.size1, present);\n"
    )
    passes = "".join(_pass(module, kernel, k, lanes) for k in range(len(kernel.passes)))
    return module.text(GROUP, head + passes + _stores(module, kernel, lanes))


def _inputs(module: Module, kernel: Rowwise, axis: str) -> dict[int, str]:
    first = len(kernel.outputs)
    return {j: module.at(first + j, ["o", axis, "i"]) for j in range(len(kernel.inputs))}


def _walk(lanes: int) -> str:
    start = "0u" if lanes == 1 else "walker"
    return f"    for (var a = {start}; a < limit; a += {lanes}u) {{\n"


def _pass(module: Module, kernel: Rowwise, k: int, lanes: int) -> str:
    """One reduction: each walker folds its own elements in order, then walkers are folded as a tree."""
    step = kernel.passes[k]
    dtype = step.body.dtype
    leaf = module.leaves(_inputs(module, kernel, "a"), "a", "launch.size1")
    lines, roots = module.printer.block([step.body], leaf, f"p{k}_", "        ")
    text = (
        f"    var sum{k} = {identity(module, step)};\n{_walk(lanes)}{lines}"
        f"        sum{k} = {fold(module, step, f'sum{k}', roots[0])};\n    }}\n"
    )
    if lanes == 1:
        return text + f"    let row{k} = sum{k};\n"
    shared = shared_array(module, dtype)
    columns = GROUP // lanes
    joined = fold(module, step, f"{shared}[lane]", f"{shared}[lane + half * {columns}u]")
    return text + (
        f"    {shared}[lane] = sum{k};\n    workgroupBarrier();\n"
        f"    for (var half = {lanes // 2}u; half > 0u; half = half / 2u) {{\n"
        f"        if (walker < half) {{ {shared}[lane] = {joined}; }}\n        workgroupBarrier();\n    }}\n"
        f"    let row{k} = {shared}[column];\n    workgroupBarrier();\n"
    )


def shared_array(module: Module, dtype: DType) -> str:
    """A workgroup array for one value per invocation."""
    name = f"shared_{compute_type(dtype).name}"
    line = f"var<workgroup> {name}: array<{module.type(dtype)}, {GROUP}>;\n"
    if line not in module.globals:
        module.globals += line
    return name


def identity(module: Module, step: Reduce) -> str:
    dtype = step.body.dtype
    if step.kind in ("sum", "prod"):
        return module.printer.number(0 if step.kind == "sum" else 1, dtype)
    least = step.kind == "max"
    if dtype.kind == "f":
        return module.printer.number(float("-inf") if least else float("inf"), dtype)
    if dtype.kind == "b":
        return "false" if least else "true"
    bits = dtype.itemsize * 8
    low, high = (0, (1 << bits) - 1) if dtype.kind == "u" else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    return module.printer.number(low if least else high, dtype)


def fold(module: Module, step: Reduce, left: str, right: str) -> str:
    op = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}[step.kind]
    return module.printer.apply(op, step.body.dtype, [left, right])


def _stores(module: Module, kernel: Rowwise, lanes: int) -> str:
    """Row values are evaluated first and stored last, since an output may lie on an input (in place)."""
    rows = [n for n, kind in enumerate(kernel.kinds) if kind == "row"]
    elements = [n for n, kind in enumerate(kernel.kinds) if kind == "element"]
    text = ""
    names: list[str] = []
    if rows:
        leaf = module.leaves(_inputs(module, kernel, "0u"), "0u", "launch.size1")
        lines, names = module.printer.block([kernel.stores[n] for n in rows], leaf, "r", "    ")
        text += lines
    if elements:
        leaf = module.leaves(_inputs(module, kernel, "a"), "a", "launch.size1")
        lines, roots = module.printer.block([kernel.stores[n] for n in elements], leaf, "e", "        ")
        puts = [module.store(n, module.at(n, ["o", "a", "i"]), root) for n, root in zip(elements, roots, strict=True)]
        text += _walk(lanes) + lines + "".join(f"        {put}\n" for put in puts) + "    }\n"
    if rows:
        if elements and lanes > 1:
            text += "    workgroupBarrier();\n"
        mine = "present" if lanes == 1 else "present && walker == 0u"
        puts = [module.store(n, module.at(n, ["o", "0u", "i"]), name) for n, name in zip(rows, names, strict=True)]
        text += f"    if ({mine}) {{\n" + "".join(f"        {put}\n" for put in puts) + "    }\n"
    return text
