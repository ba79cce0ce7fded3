"""Map kernels in WGSL.

# Note [Turned tiles in WGSL]
A strided map whose outputs are dense along the last dimension and some of whose inputs are dense
along another one, d, runs by tiles of SIDE x SIDE of these two dimensions. The inputs dense along d
pass through workgroup memory, so that memory is read and written along its dense dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
    dense = (
        all(step in "10" for step in kernel.steps)
        and "0" not in kernel.steps[: len(kernel.outputs)]
    )
    if not dense or kernel.anomaly is not None or not plain:
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
    total = " * ".join(f"launch.size{d}" for d in range(max(kernel.rank, 1)))
    text = f"    let first = (group * {GROUP}u + lane) * {run}u;\n"
    text += f"    if (first >= {total}) {{ return; }}\n"
    text += _split(kernel.rank, "first")
    for k in range(outputs + len(kernel.inputs)):
        place = module.at(k, [f"c{d}" for d in range(kernel.rank)]) if kernel.rank else "first"
        text += f"    let at{k} = launch.offset{k}"
        text += ";\n" if not kernel.rank and kernel.steps[k] == "0" else f" + {place};\n"
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
        word = f"(at{k} >> {bits - 2}u)"
        shift = "0u" if dtype.itemsize == 4 else f"((at{k} & 1u) * 16u)"
        return (
            f"    let a{k} = {module.decoded(k, f'{array}[{word} >> 2u][{word} & 3u]', shift)};\n"
        )
    place = f"(at{k} >> {bits}u)"
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
        place = f"(at{k} >> {bits}u) + {m}u"
        text += f"    {array}[{place}] = vec4<u32>({four});\n"
    return text


# ---- Note [Turned tiles in WGSL] ----

SIDE = 32
SHORTEST = 16  # a dimension below this is not worth tiles
MOST_STAGED = 2


def staged_inputs(kernel: Map) -> list[int]:
    """The inputs that would pass through workgroup memory; none where tiles do not apply."""
    count = len(kernel.outputs)
    found = [i for i in range(len(kernel.inputs)) if kernel.steps[count + i] == "n"]
    dense = all(step == "1" for step in kernel.steps[:count])
    whole = all(d.itemsize >= 4 for d in kernel.outputs)
    plain = not any(e.op == "index" for e in topological(list(kernel.body)))
    moves = all(step in "10n" for step in kernel.steps)
    fits = kernel.rank > 1 and len(found) <= MOST_STAGED and kernel.anomaly is None
    return found if dense and whole and plain and moves and fits else []


def turned_dimension(kernel: Map, sizes: Sequence[int], strides: Sequence[int]) -> int | None:
    """The dimension along which all staged inputs are dense, if tiles are worth it."""
    count, rank = len(kernel.outputs), kernel.rank
    staged = staged_inputs(kernel)
    if not staged or sizes[-1] < SHORTEST:
        return None
    for d in range(rank - 1):
        if sizes[d] >= SHORTEST and all(strides[(count + i) * rank + d] == 1 for i in staged):
            return d
    return None


def turned_tiles(sizes: Sequence[int], d: int) -> int:
    tiles = -(-sizes[-1] // SIDE)
    for each, size in enumerate(sizes[:-1]):
        tiles *= -(-size // SIDE) if each == d else size
    return tiles


def turned_map_text(module: Module, kernel: Map, d: int) -> str:
    """A workgroup per tile of dimension `d` and the last one."""
    outputs, last = len(kernel.outputs), kernel.rank - 1
    staged, operands = staged_inputs(kernel), range(outputs + len(kernel.inputs))
    text = "    var rest = group;\n"
    for each in range(last, -1, -1):
        size = f"launch.size{each}"
        count = f"(({size} + {SIDE - 1}u) / {SIDE}u)" if each in (d, last) else size
        scale = f" * {SIDE}u" if each in (d, last) else ""
        text += f"    let c{each} = rest % {count}{scale};\n    rest = rest / {count};\n"
    text += "    if (rest > 0u) { return; }\n"
    coordinates = [f"c{each}" for each in range(kernel.rank)]
    for k in operands:
        text += f"    let base{k} = {module.at(k, coordinates)};\n"
    text += f"    let x = lane % {SIDE}u;\n    let first = lane / {SIDE}u;\n"
    text += f"    for (var y = first; y < {SIDE}u; y += {GROUP // SIDE}u) {{\n"
    text += f"        if (c{d} + x < launch.size{d} && c{last} + y < launch.size{last}) {{\n"
    for i in staged:
        k = outputs + i
        kind = module.type(kernel.inputs[i])
        module.globals += f"var<workgroup> tile{i}: array<{kind}, {SIDE * (SIDE + 1)}>;\n"
        value = module.load(k, f"base{k} + x + y * launch.stride{k}_{last}")
        text += f"            tile{i}[y * {SIDE + 1}u + x] = {value};\n"
    text += "        }\n    }\n    workgroupBarrier();\n"
    text += f"    for (var y = first; y < {SIDE}u; y += {GROUP // SIDE}u) {{\n"
    text += f"        if (c{last} + x < launch.size{last} && c{d} + y < launch.size{d}) {{\n"

    def place(k: int) -> str:
        return f"base{k} + y * launch.stride{k}_{d} + x * launch.stride{k}_{last}"

    names = {
        i: f"tile{i}[x * {SIDE + 1}u + y]"
        if i in staged
        else module.load(outputs + i, place(outputs + i))
        for i in range(len(kernel.inputs))
    }
    lines, roots = module.printer.block(kernel.body, module.named(names, "0u"), "t", " " * 12)
    text += lines
    text += "".join(f"            {module.store(n, place(n), r)}\n" for n, r in enumerate(roots))
    return module.text(GROUP, text + "        }\n    }\n")


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


def _split(rank: int, position: str = "here") -> str:
    """Coordinates c0, c1, ... of a linear position."""
    if rank == 0:
        return ""
    text = "" if rank == 1 else f"    var rest = {position};\n"
    for d in range(rank - 1, 0, -1):
        text += f"    let c{d} = rest % launch.size{d};\n    rest = rest / launch.size{d};\n"
    return text + f"    let c0 = {position if rank == 1 else 'rest'};\n"


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
