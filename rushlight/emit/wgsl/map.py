"""Map kernels in WGSL."""

from __future__ import annotations

from collections.abc import Callable

from rushlight.emit.wgsl.module import GROUP, Module
from rushlight.kernel.shapes import Map
from rushlight.scalar.ir import topological

Store = Callable[[int, str, str], str]  # a statement that stores output i at a position


def map_text(module: Module, kernel: Map) -> str:
    """One invocation per element."""
    count = max(kernel.rank, 1)
    total = " * ".join(f"launch.size{d}" for d in range(count))
    head = f"    let here = group * {GROUP}u + lane;\n    if (here >= {total}) {{ return; }}\n"
    return module.text(
        GROUP, head + _split(kernel.rank) + _map_body(module, kernel, "    ", module.store)
    )


def packed_map_text(module: Module, kernel: Map) -> str:
    """One invocation per few elements that fill whole words of every sub-word output.

    See `packed_run`.
    """
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
        noted = module.noted(output, lambda: module.access[output].seen_stored(value))
        return (
            f"{noted}{' ' if noted else ''}{word} = {word} | ({bits} << (((here - first) % {per}u) "
            f"* {size * 8}u));"
        )

    body = _map_body(module, kernel, "        ", keep)
    loop = f"    for (var here = first; here < last; here += 1u) {{\n{body}    }}\n"
    return module.text(
        GROUP, head + loop + "".join(_put_words(module, kernel, i, n) for i, n in small.items())
    )


def packed_run(kernel: Map) -> int:
    """Elements per invocation of the packed form: the least that fill a word of each output.

    1 if the form does not apply.
    """
    if kernel.rank:
        return 1
    return max(1, 4 // min(d.itemsize for d in kernel.outputs))


LARGEST_WIDE = 48  # instructions of a body that is written once per element


def wide_run(kernel: Map) -> int:
    """Elements per invocation of the wide form: 16 bytes of the narrowest operand that moves.

    1 if the form does not apply.
    """
    dtypes = kernel.outputs + kernel.inputs
    plain = all(d.itemsize == 4 or (d.itemsize == 2 and d.kind == "f") for d in dtypes)
    if kernel.rank or kernel.anomaly is not None or not plain:
        return 1
    if len(topological(list(kernel.body))) > LARGEST_WIDE:
        return 1
    return _wide_run(kernel)


def _wide_run(kernel: Map) -> int:
    dtypes = kernel.outputs + kernel.inputs
    moving = [d for d, step in zip(dtypes, kernel.steps, strict=True) if step == "1"]
    return 16 // min(d.itemsize for d in moving)


def wide_map_text(module: Module, kernel: Map) -> str:
    """One invocation per few elements, which it reads and writes as vectors of four words.

    The number of elements is a multiple of them, and operands are aligned to 16 bytes.
    """
    run, outputs = _wide_run(kernel), len(kernel.outputs)  # the body may be expanded here
    text = f"    let first = (group * {GROUP}u + lane) * {run}u;\n"
    text += "    if (first >= launch.size0) { return; }\n"
    for i in range(len(kernel.inputs)):
        text += _wide_load(module, kernel, outputs + i, run)
    made: list[list[str]] = []
    for j in range(run):
        names = {}
        for i, dtype in enumerate(kernel.inputs):
            k = outputs + i
            if kernel.steps[k] == "0":
                names[i] = f"a{k}"
                continue
            names[i] = f"a{k}_{j}"
            word, bit = divmod(j * dtype.itemsize, 4)
            value = module.decoded(k, f"v{k}_{word // 4}.{'xyzw'[word % 4]}", f"{8 * bit}u")
            text += f"    let {names[i]} = {value};\n"
        leaf = module.named(names, f"(first + {j}u)")
        lines, roots = module.printer.block(kernel.body, leaf, f"t{j}_", "    ")
        text += lines
        made.append(roots)
    for k in range(outputs):
        text += _wide_store(module, kernel, k, [roots[k] for roots in made])
    return module.text(GROUP, text)


def _wide_load(module: Module, kernel: Map, k: int, run: int) -> str:
    dtype, array = (kernel.outputs + kernel.inputs)[k], module.access[k].array
    bits = 2 if dtype.itemsize == 4 else 3
    if kernel.steps[k] == "0":
        word = f"(launch.offset{k} >> {bits - 2}u)"
        shift = "0u" if dtype.itemsize == 4 else f"((launch.offset{k} & 1u) * 16u)"
        return (
            f"    let a{k} = {module.decoded(k, f'{array}[{word} >> 2u][{word} & 3u]', shift)};\n"
        )
    place = f"((launch.offset{k} + first) >> {bits}u)"
    return "".join(
        f"    let v{k}_{m} = {array}[{place} + {m}u];\n" for m in range(run * dtype.itemsize // 16)
    )


def _wide_store(module: Module, kernel: Map, k: int, values: list[str]) -> str:
    dtype, array = kernel.outputs[k], module.access[k].array
    bits = 2 if dtype.itemsize == 4 else 3
    if dtype.itemsize == 4:
        words = [v if dtype.kind == "u" else f"bitcast<u32>({v})" for v in values]
    else:
        halves = [module.encoded(k, v) for v in values]
        words = [
            f"{low} | ({high} << 16u)" for low, high in zip(halves[::2], halves[1::2], strict=True)
        ]
    text = ""
    for m in range(len(words) // 4):
        four = ", ".join(words[4 * m : 4 * m + 4])
        place = f"((launch.offset{k} + first) >> {bits}u) + {m}u"
        text += f"    {array}[{place}] = vec4<u32>({four});\n"
    return text


def _put_words(module: Module, kernel: Map, output: int, words: int) -> str:
    """Store whole words, the last one masked: elements after the last belong to another tensor."""
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
    lines, roots = module.printer.block(
        kernel.body, module.leaves(outputs, inputs, "here"), "t", indent
    )
    return lines + "".join(f"{indent}{store(i, place(i), root)}\n" for i, root in enumerate(roots))
