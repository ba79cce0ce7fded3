"""Kernels as pseudo-code: deterministic, shared subexpressions named once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rushlight.core.dtypes import DType
from rushlight.kernel.attend import operands_of, outputs_of
from rushlight.kernel.shapes import (
    Attend,
    Cell,
    Contract,
    Convolve,
    Gather,
    Kernel,
    Library,
    Map,
    Rowwise,
    Scan,
    Search,
    Sort,
)
from rushlight.scalar.ir import LEAVES, Expr, topological

_INFIX = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "rem": "%",
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "and": "&",
    "or": "|",
    "xor": "^",
    "shl": "<<",
    "shr": ">>",
}
_PREFIX = {"neg": "-", "not": "~"}
_WIDEST = 60  # a longer expression gets a name though it is used once


def show(kernel: Kernel) -> str:
    """The kernel as text that ends in a newline."""
    if isinstance(kernel, Map):
        return _map(kernel)
    if isinstance(kernel, Rowwise):
        return _rowwise(kernel)
    if isinstance(kernel, Scan):
        return _scan(kernel)
    if isinstance(kernel, Contract):
        return (
            f"contract {kernel.dtype.name} in {kernel.compute.name}\n"
            f"  out[x, y, m, n] = {'p0 * ' if kernel.scaled else ''}"
            "sum over k: a[x, y, m, k] * b[x, y, k, n]"
            f"{' + p1 * out[x, y, m, n]' if kernel.scaled else ''}"
            f"{' + added[x, y, m, n]' if kernel.added else ''}\n"
        )
    if isinstance(kernel, Attend):
        return _attend(kernel)
    if isinstance(kernel, Convolve):
        how = f"step {kernel.step or 'n'}, {kernel.rank}d{', tf32' if kernel.tf32 else ''}"
        return f"convolve {kernel.dtype.name}: {kernel.of}, {how}\n"
    if isinstance(kernel, Sort):
        way = "descending" if kernel.descending else "ascending"
        return (
            f"sort {kernel.dtype.name} {way}\n  values[o, k, i] = source[o, positions[o, k, i], "
            "i], in order\n"
        )
    if isinstance(kernel, Library):
        names = [
            f"{d.name}[{', '.join('n' * r)}]"
            for d, r in zip(kernel.outputs + kernel.inputs, kernel.ranks, strict=True)
        ]
        split = len(kernel.outputs)
        options = f" with {', '.join(map(repr, kernel.options))}" if kernel.options else ""
        called = f"{kernel.library}.{kernel.function}({', '.join(names[split:])}){options}"
        return f"library\n  {', '.join(names[:split])} = {called}\n"
    if isinstance(kernel, Cell):
        return _cell(kernel)
    if isinstance(kernel, Search):
        passed = "line[r, :] <= wanted[r, k]" if kernel.right else "line[r, :] < wanted[r, k]"
        return f"search {kernel.dtype.name}\n  out[r, k] = count of {passed}\n"
    types = f"{kernel.dtype.name} by {kernel.index_dtype.name}"
    if isinstance(kernel, Gather):
        return f"gather {types}\n  out[o, k, i] = source[o, index[o, k, i], i]\n"
    how = {"add": "+=", "set": "=", "prod": "*="}.get(kernel.kind, f"{kernel.kind}=")
    return (
        f"scatter {kernel.kind} {types}\n  for k: out[o, index[o, k, i], i] {how} source[o, k, i]\n"
    )


def _attend(kernel: Attend) -> str:
    outputs, names = outputs_of(kernel), list(operands_of(kernel))
    marks = [name for name in ("causal", "dropout") if getattr(kernel, name)]
    if kernel.mask is not None:
        marks.append(f"{kernel.mask.name} mask")
    sizes = f"{kernel.width} by {kernel.depth}"
    return (
        f"attend {kernel.dtype.name} {sizes}{', ' if marks else ''}{', '.join(marks)}\n"
        f"  {', '.join(outputs)} = {kernel.of} of {', '.join(names[len(outputs) :])}\n"
    )


def _cell(kernel: Cell) -> str:
    named, texts = bind(kernel.body)
    lines = [f"cell {kernel.dtype.name} of {kernel.products} products", "  for r, i:"]
    for q in range(kernel.products):
        lines.append(f"    arg{q} = sum over s: state[r, s] * w[{q}, s, i]")
    lines += [f"    {line}" for line in named]
    lines += [f"    out{i}[r, i] = {text}" for i, text in enumerate(texts)]
    return "\n".join(lines) + "\n"


def _map(kernel: Map) -> str:
    where = "p" if kernel.rank == 0 else ", ".join(f"p{d}" for d in range(kernel.rank))
    lines = [
        _head("map flat" if kernel.rank == 0 else f"map rank {kernel.rank}", kernel),
        f"  for {where}:",
    ]
    named, texts = bind(kernel.body)
    lines += [f"    {line}" for line in named]
    lines += [f"    out{i}[{where}] = {text}" for i, text in enumerate(texts)]
    return "\n".join(lines) + "\n"


def _rowwise(kernel: Rowwise) -> str:
    lines = [_head(f"rowwise by {kernel.vector}", kernel), "  for outer, inner:"]
    for number, step in enumerate(kernel.passes):
        named, (text,) = bind((step.body,))
        lines.append(f"    row{number} = {step.kind} over axis:")
        lines += [f"      {line}" for line in (*named, text)]
    for number, (kind, store) in enumerate(zip(kernel.kinds, kernel.stores, strict=True)):
        named, (text,) = bind((store,))
        lines.append("    for axis:" if kind == "element" else "    once:")
        lines += [f"      {line}" for line in (*named, f"out{number} = {text}")]
    return "\n".join(lines) + "\n"


def _scan(kernel: Scan) -> str:
    inputs = "".join(f"; arg{i}: {dtype.name}" for i, dtype in enumerate(kernel.inputs))
    named, (text,) = bind((kernel.body,))
    lines = [
        f"scan (out0: {kernel.output.name}{inputs})",
        "  for outer, inner:",
        f"    row0 = {kernel.start!r}",
    ]
    lines += ["    for axis:", *(f"      {line}" for line in (*named, f"out0 = row0 = {text}"))]
    return "\n".join(lines) + "\n"


def _head(title: str, kernel: Map | Rowwise) -> str:
    steps = iter(kernel.steps)
    parts = [
        _operands("out", kernel.outputs, [next(steps, "?") for _ in kernel.outputs]),
        _operands("arg", kernel.inputs, [next(steps, "?") for _ in kernel.inputs]),
        ", ".join(f"param{i}: {d.name}" for i, d in enumerate(kernel.params)),
    ]
    return f"{title} ({'; '.join(p for p in parts if p)})"


def _operands(name: str, dtypes: Sequence[DType], steps: Sequence[str]) -> str:
    return ", ".join(
        f"{name}{i}: {d.name} step {s}" for i, (d, s) in enumerate(zip(dtypes, steps, strict=True))
    )


def bind(roots: Sequence[Expr]) -> tuple[list[str], list[str]]:
    """Lines `t0: type = ...` for shared and very long subexpressions, and each root's text."""
    order = topological(list(roots))
    uses = Counter(a for expr in order for a in expr.args) + Counter(roots)
    lines: list[str] = []
    text: dict[Expr, str] = {}
    for expr in order:
        written = _write(expr, [text[a] for a in expr.args])
        if expr.op not in LEAVES and (uses[expr] > 1 or len(written) > _WIDEST):
            lines.append(f"t{len(lines)}: {expr.dtype.name} = {_bare(written)}")
            written = f"t{len(lines) - 1}"
        text[expr] = written
    return lines, [_bare(text[r]) for r in roots]


def _write(expr: Expr, args: list[str]) -> str:
    if expr.op == "const":
        return repr(expr.value) if expr.dtype.kind != "u" else f"{expr.value:#x}"
    if expr.op in LEAVES:
        return expr.op if expr.value is None else f"{expr.op}{expr.value}"
    if expr.op in _INFIX:
        return f"({args[0]} {_INFIX[expr.op]} {args[1]})"
    if expr.op in _PREFIX:
        return f"{_PREFIX[expr.op]}{args[0]}"
    listed = ", ".join(_bare(a) for a in args)
    return (
        f"{expr.op} {expr.dtype.name}({listed})"
        if expr.op in ("cast", "bitcast")
        else f"{expr.op}({listed})"
    )


def _bare(text: str) -> str:
    """The text without parentheses that enclose all of it."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[1:-1] if place == len(text) - 1 else text
    return text
