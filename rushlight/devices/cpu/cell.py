"""A step of a recurrent layer as IR: products in registers, and the formula while they are near.

A task is a panel of weights. Some rows of its products are made at a time, in tiles as in `tiles`:
each is one chain of fused multiply-adds, s ascending, so its bits depend on nothing else. They stay
in the first-level cache, where the formula reads them.
"""

from __future__ import annotations

from dataclasses import dataclass

from rushlight.core.dtypes import DType, float32
from rushlight.devices.cpu import stub, tiles
from rushlight.devices.cpu.native import Source
from rushlight.devices.cpu.tiles import HEIGHT, LANES, SHORT, TYPE
from rushlight.devices.shared.protocol import Launch
from rushlight.emit.llvm.body import load, pointer, splat, store
from rushlight.emit.llvm.formula import evaluate
from rushlight.emit.llvm.kernels import module
from rushlight.emit.llvm.terms import Term
from rushlight.emit.llvm.text import FUNCTION, Arguments, Writer
from rushlight.kernel.key import key_of
from rushlight.kernel.shapes import PANEL, Cell
from rushlight.scalar.elementary import lower
from rushlight.scalar.ir import Expr, topological

ROWS = 48  # of which the products are in the cache
DEPTH = 128  # terms of a tile

TILE = (
    "define internal void @tile{height}(ptr %a, i64 %a_row, ptr readonly %b, i64 %apart, ptr %c, "
    'i64 %height, i64 %k, i1 %more) noinline "prefer-vector-width"="512"'
)


def types() -> tuple[DType, ...]:
    """The types of cells, where the processor has the instructions."""
    return (float32,) if tiles.available() else ()


def build(kernel: Cell, runner: int) -> Launch:
    operands = len(kernel.body) + 2 + kernel.inputs
    letters = "i" * (operands + 3 + operands - 1)
    return stub.callable_of(Source(key_of(kernel), lambda: text(kernel)), letters, "cell", runner)


def text(kernel: Cell) -> str:
    """The module's functions; see `emit.llvm`."""
    declared: set[str] = set()
    made = [_write_tile(declared, kernel.products, height) for height in (HEIGHT, SHORT)]
    writer, counts = Writer(declared), Writer(declared)
    _write_kernel(writer, kernel)
    made.append(writer.function(FUNCTION.format(name="kernel")))
    arguments = Arguments(counts)
    arguments.skip(len(kernel.body) + 2 + kernel.inputs)
    rows, width, terms = arguments.words(3)
    products = counts.mul(counts.mul(rows, width), counts.mul(terms, str(kernel.products)))
    numbers = counts.divided_up(width, PANEL), counts.value(f"lshr i64 {products}, 3")
    return module(made, counts, numbers)


def _write_tile(declared: set[str], vectors: int, height: int) -> str:
    """@tile6: c = a b, or c + a b with %more, for up to six rows (`height`).

    b has `vectors` matrices of one vector's width, %apart elements from each other; their products
    lie side by side in c, whose rows have no gaps.
    """
    writer = Writer(declared)
    last = writer.sub("%height", "1")
    # Rows past the end repeat the last one.
    rows = [writer.smaller(str(i), last) for i in range(height)]
    a = [pointer(writer, "%a", float32, writer.mul("%a_row", r)) for r in rows]
    c = [pointer(writer, "%c", float32, writer.mul(str(vectors * LANES), r)) for r in rows]
    b = [pointer(writer, "%b", float32, writer.mul("%apart", str(j))) for j in range(vectors)]
    sums = [[writer.slot(TYPE, "zeroinitializer") for _ in b] for _ in rows]
    with writer.when("%more"):
        for place, line in zip(c, sums, strict=True):
            for j, slot in enumerate(line):
                writer.set(slot, _near(writer, place, j))
    with writer.loop("0", "%k") as s:
        at = writer.mul(s, str(LANES))
        columns = [_near(writer, pointer(writer, place, float32, at), 0, 4) for place in b]
        for place, line in zip(a, sums, strict=True):
            element = writer.value(f"load float, ptr {pointer(writer, place, float32, s)}, align 4")
            spread = splat(writer, element, float32, LANES)
            for column, slot in zip(columns, line, strict=True):
                operands = [(TYPE, spread), (TYPE, column), (TYPE, writer.get(slot))]
                writer.set(slot, writer.call(TYPE, "llvm.fma.v16f32", operands))
    for place, line in zip(c, sums, strict=True):
        for j, slot in enumerate(line):
            to = pointer(writer, place, float32, str(j * LANES))
            writer.line(f"store {TYPE} {writer.get(slot)}, ptr {to}, align 64")
    return writer.function(TILE.format(height=height))


def _near(writer: Writer, place: str, number: int, align: int = 64) -> str:
    """The vector of this number from `place` on."""
    at = pointer(writer, place, float32, str(number * LANES))
    return writer.value(f"load {TYPE}, ptr {at}, align {align}")


@dataclass(frozen=True, slots=True)
class _Walk:
    """A walk over some rows by the formula."""

    outputs: tuple[int, ...]  # their numbers
    roots: tuple[Expr, ...]  # of these outputs
    known: tuple[Expr, ...]  # from the walk before
    handed: tuple[Expr, ...]  # to the walk after


def _walks(body: tuple[Expr, ...], products: int) -> list[_Walk]:
    """Two walks where outputs read other outputs.

    One walk would make a row one long chain of instructions that wait for each other, and the
    processor sees little more than a row at a time. Inputs are handed on, too, since outputs of the
    first walk may lie over them.
    """
    roots = set(body)
    late = [i for i, root in enumerate(body) if not roots.isdisjoint(topological(root.args))]
    early = [i for i in range(len(body)) if i not in late]
    first, second = (tuple(body[i] for i in chosen) for chosen in (early, late))
    made = {expr for expr in topological(first) if expr.args}
    made |= {e for e in topological(second) if e.op == "arg" and int(e.value or 0) >= products}
    every = [expr for expr in topological(second) if expr not in made]
    handed = tuple(dict.fromkeys(arg for expr in every for arg in expr.args if arg in made))
    walks = [_Walk(tuple(early), first, (), handed)]
    return [*walks, _Walk(tuple(late), second, handed, ())] if late else walks


def _write_kernel(writer: Writer, kernel: Cell) -> None:
    arguments = Arguments(writer)
    outs = [arguments.address() for _ in kernel.body]
    state, weights = arguments.address(), arguments.address()
    inputs = [arguments.address() for _ in range(kernel.inputs)]
    rows, width, terms = arguments.words(3)
    out_steps, (step,) = arguments.words(len(outs)), arguments.words(1)
    input_steps = arguments.words(len(inputs))
    apart = writer.mul(terms, str(PANEL))
    panel = writer.mul(apart, str(kernel.products))
    walks = _walks(lower(kernel.body, fused=True), kernel.products)
    counts = kernel.products, len(walks[0].handed)
    near = [(writer.array("float", ROWS * max(1, n) * LANES), str(n * LANES)) for n in counts]
    with writer.loop("%begin", "%end") as task, writer.loop("0", rows, str(ROWS)) as first:
        height = writer.smaller(writer.sub(rows, first), str(ROWS))
        source = pointer(writer, state, float32, writer.mul(first, step))
        place = pointer(writer, weights, float32, writer.mul(task, panel))
        _write_products(
            writer, counts[0], (source, step), (place, apart), near[0][0], height, terms
        )
        left = writer.mul(task, str(PANEL))
        lanes = tiles.first_lanes(writer, writer.sub(width, left))
        for walk in walks:
            with writer.loop("0", height) as r:
                lines = [pointer(writer, at, float32, writer.mul(r, size)) for at, size in near]
                row = writer.add(first, r)
                offsets = {s: writer.add(writer.mul(row, s), left) for s in out_steps + input_steps}
                given, made = (
                    [
                        pointer(writer, base, float32, offsets[s])
                        for base, s in zip(bases, steps, strict=True)
                    ]
                    for bases, steps in ((inputs, input_steps), (outs, out_steps))
                )
                _write_walk(writer, walk, counts[0], lines, (given, made), lanes)


def _write_walk(
    writer: Writer,
    walk: _Walk,
    products: int,
    lines: list[str],
    places: tuple[list[str], list[str]],
    lanes: str,
) -> None:
    """One row: `lines` are its products and what is handed on, `places` its inputs and outputs."""
    given, targets = places

    def leaf(expr: Expr) -> str:
        number = int(expr.value or 0)
        if number < products:
            return _near(writer, lines[0], number)
        return load(writer, given[number - products], float32, "1", "1", LANES, lanes)

    known = {expr: _near(writer, lines[1], i) for i, expr in enumerate(walk.known)}
    results = evaluate(writer, (*walk.roots, *walk.handed), LANES, leaf, known)
    for i, value in enumerate(results):
        if i < len(walk.outputs):
            store(writer, value, targets[walk.outputs[i]], float32, "1", "1", LANES, lanes)
        else:
            to = pointer(writer, lines[1], float32, str((i - len(walk.outputs)) * LANES))
            writer.line(f"store {TYPE} {value}, ptr {to}, align 64")


def _write_products(
    writer: Writer,
    products: int,
    state: tuple[str, str],
    panel: tuple[str, str],
    near: str,
    height: str,
    terms: str,
) -> None:
    """The products of some rows with a panel.

    Given are the state's address and the step of its rows, the panel's and what its matrices are
    apart.
    """
    tall = tiles.tall_rows(Term(writer, height)).name
    with writer.loop("0", terms, str(DEPTH)) as s:
        depth = writer.smaller(writer.sub(terms, s), str(DEPTH))
        more = writer.value(f"icmp ne i64 {s}, 0")
        right = pointer(writer, panel[0], float32, writer.mul(s, str(LANES)))
        for begin, end, most in (("0", tall, HEIGHT), (tall, height, SHORT)):
            with tiles.rows(writer, begin, end, most) as (r, count):
                left = pointer(writer, state[0], float32, writer.add(writer.mul(r, state[1]), s))
                to = pointer(writer, near, float32, writer.mul(r, str(products * LANES)))
                operands = f"ptr {left}, i64 {state[1]}, ptr {right}, i64 {panel[1]}, ptr {to}"
                sizes = f"i64 {count}, i64 {depth}, i1 {more}"
                writer.line(f"call void @tile{most}({operands}, {sizes})")
