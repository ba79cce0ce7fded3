"""The API reference: pages made from the registry of ops and the public namespaces."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rushlight
from rushlight.ops.registry import REGISTRY, Entry

_SECTION = re.compile(r"^(Args|Returns|Example):\n", re.MULTILINE)
OPS = Path(rushlight.__file__).parent / "ops"

# Folder of `rushlight/ops` -> title of its page.
FAMILIES = {
    "create": "Making tensors",
    "pointwise": "Pointwise ops",
    "reduce": "Reductions and statistics",
    "view": "Views, joining and reshaping",
    "index": "Indexing and scattering",
    "sort": "Sorting and searching",
    "linalg": "Matrix products",
    "nn": "Functions of neural networks",  # and all else that nn.functional has
    "random": "Random numbers",
    "fft": "Fourier transforms",
}
# Namespace -> title of its page.
NAMESPACES = {
    "memory": "Budgets, counters of bytes, recordings",
    "autograd": "Gradients",
    "autograd.graph": "Records and hooks",
    "autograd.functional": "Derivatives of functions, the older form",
    "autograd.forward_ad": "Dual tensors",
    "func": "Derivatives of functions",
    "nn": "Modules",
    "nn.init": "Initial values of parameters",
    "nn.utils": "Tools for parameters and gradients",
    "nn.utils.rnn": "Sequences of unequal lengths",
    "nn.utils.parametrize": "Parametrised weights",
    "nn.utils.prune": "Pruned weights",
    "optim": "Optimisers",
    "optim.lr_scheduler": "Schedules",
    "optim.swa_utils": "Averaged models",
    "linalg": "Linear algebra",
    "fft": "Fourier transforms",
    "special": "Special functions",
    "distributions": "Probability distributions",
    "masked": "Reductions under a mask",
    "signal.windows": "Window functions",
    "sparse": "Sparse tensors",
    "amp": "Mixed precision",
    "random": "Generators and seeds",
    "utils.data": "Datasets and loaders",
    "utils.checkpoint": "Checkpoints",
    "io": "Files",
    "testing": "Comparing tensors",
    "accelerator": "The accelerator there is",
    "cpu": "The CPU",
    "cuda": "NVIDIA GPUs",
    "array_api": "The array API standard",
}


def navigation() -> list[Any]:
    ops = [{title: f"reference/ops/{family}_ops.md"} for family, title in FAMILIES.items()]
    spaces = [{f"{name}": f"reference/{name}.md"} for name in NAMESPACES]
    return [
        "reference/index.md",
        {"Ops": ops},
        {"Tensor": "reference/tensor.md"},
        {"rushlight": "reference/package.md"},
        {"errors": "reference/errors.md"},
        *spaces,
    ]


def pages() -> dict[str, str]:
    """Every page of the reference, by its place in the site."""
    found = {
        "reference/index.md": _index(),
        "reference/tensor.md": _tensor(),
        "reference/package.md": _package(),
        "reference/errors.md": _errors(),
    }
    for family in FAMILIES:
        found[f"reference/ops/{family}_ops.md"] = _family(family)
    for name in NAMESPACES:
        found[f"reference/{name}.md"] = _namespace(name)
    return found


# ---- pages ----


def _index() -> str:
    ops = [
        f"| [{title}](ops/{family}_ops.md) | {len(_entries(family))} |"
        for family, title in FAMILIES.items()
    ]
    spaces = [
        f"| [`rushlight.{name}`]({name}.md) | {title} |" for name, title in NAMESPACES.items()
    ]
    return "\n".join(
        [
            "# API reference",
            "",
            "Made from the declarations and docstrings of the package. Names, arguments and",
            "results are PyTorch's unless a line says otherwise;",
            "[Coming from PyTorch](../pytorch.md) lists",
            "what differs.",
            "",
            f"There are {len(REGISTRY)} ops. [`Tensor`](tensor.md) has most of them as methods;",
            "[`rushlight`](package.md) has what is no op, [errors](errors.md) what is raised.",
            "",
            "| ops | count |",
            "|---|---|",
            *ops,
            "",
            "| namespace | |",
            "|---|---|",
            *spaces,
            "",
        ]
    )


def _family(family: str) -> str:
    parts = [f"# {FAMILIES[family]}"]
    for entry in _entries(family):
        path = _path(entry.name)
        function = _looked_up(path)
        parts.append(_item(path, function, inspect.getdoc(function) or entry.doc, _forms(entry)))
    if family == "nn":
        for name in sorted(set(rushlight.nn.functional.__all__) - set(REGISTRY)):
            function = getattr(rushlight.nn.functional, name)
            parts.append(_item(f"nn.functional.{name}", function, inspect.getdoc(function) or ""))
    return "\n\n".join(parts) + "\n"


def _namespace(name: str) -> str:
    module = importlib.import_module(f"rushlight.{name}")
    parts = [f"# rushlight.{name}", _first_sentence(module.__doc__ or NAMESPACES[name])]
    for each in _public(module):
        member = getattr(module, each)
        if callable(member):
            parts.append(_item(f"{name}.{each}", member, inspect.getdoc(member) or ""))
    return "\n\n".join(parts) + "\n"


def _tensor() -> str:
    Tensor = rushlight.Tensor
    parts = ["# rushlight.Tensor", _prose(inspect.getdoc(Tensor) or "")]
    ops = sorted(entry.name for entry in REGISTRY.values() if entry.method and _path(entry.name))
    homes = _homes()
    links = [f"[`{name}`](ops/{homes[name]}_ops.md#{_anchor(_path(name))})" for name in ops]
    parts += ["## Ops as methods", "The tensor is the first argument.", " · ".join(links)]
    parts.append("## Other methods and attributes")
    for name in sorted(dir(Tensor)):
        getattr(Tensor, name, None)  # makes the method. See Note [Lazy names]
        member = inspect.getattr_static(Tensor, name)
        if name.startswith("_") or name in REGISTRY or name.removesuffix("_") in REGISTRY:
            continue
        text = inspect.getdoc(member)
        if text:
            parts.append(_item(f"Tensor.{name}", getattr(Tensor, name, member), text, level=3))
    return "\n\n".join(parts) + "\n"


def _package() -> str:
    """What the package has besides ops, errors and namespaces."""
    names = [name for name in dir(rushlight) if name not in REGISTRY and name[0] != "_"]
    names.sort(key=lambda name: (name[0].isupper(), name))
    members = {name: getattr(rushlight, name) for name in names}
    types = [f"`{n}`" for n, each in members.items() if isinstance(each, rushlight.dtype)]
    parts = ["# rushlight", "Functions and classes of the package that are not ops."]
    parts += ["## Types of elements", ", ".join(types)]
    for name, each in members.items():
        doc = inspect.getdoc(each)
        if callable(each) and doc and each is not rushlight.Tensor and not _error(each):
            parts.append(_item(name, each, doc))
    return "\n\n".join(parts) + "\n"


def _error(each: Any) -> bool:
    return isinstance(each, type) and issubclass(each, BaseException)


def _errors() -> str:
    members = [getattr(rushlight, name) for name in dir(rushlight)]
    errors = {each for each in members if _error(each) and "rushlight" in each.__module__}
    parts = ["# Errors", "Each message names the op, the operands and the fix."]
    for error in sorted(errors, key=lambda each: each.__name__):
        bases = ", ".join(f"`{base.__name__}`" for base in error.__bases__)
        parts += [f"## {error.__name__}", f"{_prose(inspect.getdoc(error) or '')}\n\nA {bases}."]
    return "\n\n".join(parts) + "\n"


# ---- where an op is declared, and where users find it ----


@functools.cache
def _homes() -> dict[str, str]:
    """Op -> the folder of `rushlight/ops` that declares it.

    A call there has its name as the first argument, or its function is written there.
    """
    found: dict[str, str] = {}
    for family in FAMILIES:
        for path in sorted((OPS / family).glob("*.py")):
            for name in _first_arguments(path):
                found.setdefault(name, family)
    return {name: found.get(name) or _written_in(entry) for name, entry in REGISTRY.items()}


def _written_in(entry: Entry) -> str:
    code = getattr(inspect.unwrap(entry.function), "__code__", None)
    parts = Path(code.co_filename).parts if code else ()
    return next((part for part in parts[-2:-1] if part in FAMILIES), "pointwise")


def _first_arguments(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and node.args:
            first = node.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield first.value


def _entries(family: str) -> list[Entry]:
    """The family's public ops, by name."""
    homes = _homes()
    found = [e for name, e in REGISTRY.items() if homes[name] == family and _path(name)]
    return sorted(found, key=lambda entry: entry.name)


@functools.cache
def _path(name: str) -> str:
    """Where users find an op, below the package; "" for one that has no public name."""
    if name.startswith("_"):
        return ""
    space, _, rest = name.partition("_")
    inner, special = f"nn.functional.{name}", f"special.{name}"
    first, last = (inner, name) if _homes()[name] == "nn" else (name, inner)
    paths = [first, f"{space}.{rest}", special, last, f"Tensor.{name}"]
    return next((path for path in paths if callable(_looked_up(path))), "")


def _looked_up(path: str) -> Any:
    found: Any = rushlight
    for part in path.split("."):
        found = getattr(found, part, None)
    return found


def _forms(entry: Entry) -> str:
    forms = [f"`special.{name}`" for name in entry.special.split()]
    if entry.method:
        forms.append(f"`Tensor.{entry.name}`")
    if hasattr(rushlight.Tensor, f"{entry.name}_"):
        forms.append(f"in place `Tensor.{entry.name}_`")
    return f"Also {', '.join(forms)}." if forms else ""


def _public(module: Any) -> list[str]:
    return sorted(module.__all__, key=str.lower)


# ---- one item ----


def _item(path: str, member: Any, doc: str, note: str = "", level: int = 2) -> str:
    name = path.rpartition(".")[2]
    parts = [f"{'#' * level} {name} {{ #{_anchor(path)} }}"]
    signature = _stubbed(path) or _signature(f"rushlight.{path}", member)
    if signature:
        parts.append(f"```py\n{signature}\n```")
    parts.append(_prose(doc))
    if isinstance(member, type):
        parts.append(_methods(member))
    parts.append(note)
    return "\n\n".join(part for part in parts if part)


def _anchor(path: str) -> str:
    return f"rushlight.{path}"


# ---- signatures: those of the stubs, which have types; else those of the functions ----

_STUBS = {"": "__init__", "nn.functional": "nn/functional", "Tensor": "tensor"}
_TYPES = {"_Operand": "Tensor | complex", "_Number": "float", "_DeviceLike": "device | str | None"}


@functools.cache
def _stubs(space: str) -> dict[str, list[ast.FunctionDef]]:
    """The functions of a namespace's stub, or the methods of Tensor, each with its overloads."""
    path = OPS.parent / f"{_STUBS.get(space, space)}.pyi"
    if not path.exists():
        return {}
    body = ast.parse(path.read_text()).body
    if space == "Tensor":
        body = next(n for n in body if isinstance(n, ast.ClassDef) and n.name == space).body
    found: dict[str, list[ast.FunctionDef]] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef) and not _sets(node):
            found.setdefault(node.name, []).append(node)
    return found


def _sets(node: ast.FunctionDef) -> bool:
    """Whether this is the setter of a property."""
    return f"{node.name}.setter" in map(ast.unparse, node.decorator_list)


def _stubbed(path: str) -> str:
    space, _, name = path.rpartition(".")
    return "\n".join(_typed(f"rushlight.{path}", node) for node in _stubs(space).get(name, []))


def _typed(name: str, node: ast.FunctionDef) -> str:
    kind = "Any" if node.returns is None else _public_type(ast.unparse(node.returns))
    if "property" in map(ast.unparse, node.decorator_list):
        return f"{name}: {kind}"
    result = f" -> {kind}"
    parts = _apart(_public_type(ast.unparse(node.args)))
    spaced = [re.sub(r"^(\w+: .*?)=", r"\1 = ", part) for part in parts if part != "self"]
    return _laid_out(name, spaced, result)


def _public_type(text: str) -> str:
    """Stubs import builtin types with an underscore, because the package has their names."""
    for alias, meaning in _TYPES.items():
        text = text.replace(alias, meaning)
    return re.sub(r"\b_(?=[A-Za-z])", "", text)


def _signature(name: str, member: Any) -> str:
    try:
        found = inspect.signature(member)
    except (TypeError, ValueError):
        return ""
    kept = [
        parameter.replace(annotation=inspect.Parameter.empty, default=_shown(parameter.default))
        for parameter in found.parameters.values()
        if parameter.name != "self" and not parameter.name.startswith("_")
    ]
    return _laid_out(name, _apart(str(inspect.Signature(kept))[1:-1]))


def _apart(arguments: str) -> list[str]:
    """The arguments between the commas that are not inside of brackets."""
    return re.split(r", (?![^(\[{]*[)\]}])", arguments)


def _laid_out(name: str, arguments: list[str], result: str = "") -> str:
    """On one line where there is room, else with one argument a line."""
    line = f"{name}({', '.join(arguments)}){result}"
    if len(line) <= 88:
        return line
    body = "".join(f"    {argument},\n" for argument in arguments)
    return f"{name}(\n{body}){result}"


class _Text:
    """A default that shows as given."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _shown(default: Any) -> Any:
    if default is inspect.Parameter.empty or isinstance(
        default, (int, float, str, bool, tuple, type(None))
    ):
        return default
    text = getattr(default, "__name__", None) or repr(default)
    return _Text("..." if " at 0x" in text else text)


def _methods(cls: type) -> str:
    """The public methods that the class or a base in the package defines, one line each."""
    rows = []
    for name in sorted(vars(cls)):
        member = inspect.unwrap(getattr(cls, name)) if not name.startswith("_") else None
        text = inspect.getdoc(member) if callable(member) else None
        if text and getattr(member, "__module__", "") == cls.__module__:
            arguments = _signature("", member)
            shown = f"{name}{arguments}" if len(arguments) < 60 else name
            rows.append(f"- `{shown}`: {_prose(_first_sentence(text))}")
    return "\n".join(rows)


def _first_sentence(text: str) -> str:
    return text.strip().partition("\n\n")[0].replace("\n", " ")


def _prose(text: str) -> str:
    """A docstring as Markdown: its arguments become a list, its examples blocks of code."""
    summary, *rest = _SECTION.split(inspect.cleandoc(text))
    parts = [_paragraphs(summary.strip())]
    for title, body in zip(rest[::2], rest[1::2], strict=True):
        inner = textwrap.dedent(body).strip()
        if title == "Args":
            parts.append("\n".join(_argument(item) for item in re.split(r"\n(?! )", inner)))
        elif title == "Example":
            parts.append(f"```pycon\n{inner}\n```")
        else:
            parts.append(f"**{title}** {_plain(' '.join(inner.split()))}")
    return "\n\n".join(parts)


def _argument(item: str) -> str:
    """`name (kind): meaning` as an item of a list."""
    head, _, meaning = item.partition(": ")
    name, _, kind = head.partition(" ")
    words = f" {_plain(kind)}" if kind else ""
    return f"- `{name}`{words}{': ' if meaning else ''}{_plain(' '.join(meaning.split()))}"


def _paragraphs(text: str) -> str:
    """Prose, with the examples among it as blocks."""
    lines, example = [], False
    for line in text.splitlines():
        starts = line.lstrip().startswith(">>> ")
        if starts and not example:
            lines += ["", "```pycon"]
            example = True
        elif example and not line.strip():
            lines.append("```")
            example = False
        lines.append(line.strip() if example else _plain(line))
    if example:
        lines.append("```")
    return "\n".join(lines)


def _plain(line: str) -> str:
    pieces = line.split("`")
    pieces[::2] = [re.sub(r"([*\[\]])", r"\\\1", p).replace("<", "&lt;") for p in pieces[::2]]
    return "`".join(pieces)
