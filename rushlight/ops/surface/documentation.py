"""Docstrings and signatures of public functions, made from their declarations.

# Note [Docstrings]
1. A declaration states a summary. Under `Args:` it may say what one of its parameters means;
   `Returns:` and `Example:` are taken as they are. Everything else follows: the other parameters
   have the meaning that `ops/parameters.py` gives their name, the result follows from the family.
2. A public function is described when it is made (Note [Lazy names]): `__doc__` and
   `__signature__`.
3. Examples are run by `tests/package/test_docstrings.py`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

from rushlight.core.dtypes import COMPLEX, FLOAT, INTEGER, DType, bool_
from rushlight.ops.family.map import Elementwise
from rushlight.ops.parameters import BESIDE, MEANINGS
from rushlight.ops.surface.signatures import operands_of, plain_signature

_SECTION = re.compile(r"^(Args|Returns|Example):\n", re.MULTILINE)
_OVERRIDE = re.compile(r"^ {4}(\w+): (.*(?:\n {6,}.*)*)", re.MULTILINE)
_OPERANDS = frozenset(["other", "exponent"])
_WORDS = {
    "Value": "Tensor",
    "DType": "dtype",
    "Dims": "int or ints",
    "Given": "int or ints",
    "Wanted": "int or ints",
    "Flag": "bool",
    "random.Generator": "Generator",
    "Sequence[int]": "ints",
    "Sequence[float]": "floats",
    "Sequence[Value]": "tensors",
    "Sequence[Value | None]": "tensors",
    "complex": "number",
    "float": "number",
}


def describe(function: Any) -> None:
    """Give a public function its docstring and the signature that users see."""
    signature = plain_signature(function)
    function.__doc__ = documented(function.__doc__ or "", function, signature)
    function.__signature__ = signature


def described(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, described."""
    describe(function)
    return function


def describe_in_place(method: Any, name: str, function: Callable[..., Any]) -> None:
    """The same of `Tensor.<name>_`, whose result takes the place of the tensor."""
    first, *others = plain_signature(function).parameters.values()
    taken = [p for p in others if p.name != "out"]
    signature = inspect.Signature([first.replace(name="self"), *taken])
    lines = [f"`{name}`, into the tensor itself, which is returned.", ""]
    lines.append(_parts(function.__doc__ or "")[0])
    lines += _arguments(signature, inspect.unwrap(function), {}, skipped=1)
    method.__doc__ = "\n".join(lines)
    method.__signature__ = signature
    method.__name__, method.__module__ = f"{name}_", "rushlight.tensor"
    method.__qualname__ = f"Tensor.{name}_"


def documented(declared: str, function: Callable[..., Any], signature: inspect.Signature) -> str:
    """A declared docstring with the sections that it leaves out."""
    summary, sections = _parts(declared)
    stated = _OVERRIDE.findall(sections.get("Args", ""))
    own = {name: " ".join(text.split()) for name, text in stated}
    inner = inspect.unwrap(function)
    lines = [summary, *_arguments(signature, inner, own)]
    result = sections.get("Returns") or _result(function, inner, signature)
    if result:
        lines += ["", "Returns:", f"    {' '.join(result.split())}"]
    if "Example" in sections:
        lines += ["", "Example:", sections["Example"].rstrip()]
    return "\n".join(lines) + "\n"


def _parts(declared: str) -> tuple[str, dict[str, str]]:
    """The summary of a docstring, and its sections by name."""
    if "\n" not in declared:
        return declared.strip(), {}
    summary, *rest = _SECTION.split(inspect.cleandoc(declared))
    return summary.strip(), dict(zip(rest[::2], rest[1::2], strict=True))


def _arguments(
    signature: inspect.Signature, inner: Callable[..., Any], own: dict[str, str], skipped: int = 0
) -> Iterator[str]:
    kinds = getattr(inner, "__annotations__", {})
    parameters = list(signature.parameters.values())[skipped:]
    if parameters:
        yield from ("", "Args:")
    for marker in BESIDE.keys() & signature.parameters.keys():
        own = {**BESIDE[marker], **own}
    for p in parameters:
        kind = _kind(p, str(kinds.get(p.name, "Any")))
        meaning = own.get(p.name) or MEANINGS.get(p.name, "")
        yield f"    {p.name}{f' ({kind})' if kind else ''}: {meaning}".rstrip(": ")


def _kind(parameter: inspect.Parameter, annotation: str) -> str:
    """An annotation in words."""
    if annotation == "Any":
        if parameter.name in _OPERANDS:
            return "Tensor or number"
        return "Tensor" if parameter.name in ("input", "out") else ""
    whole = _WORDS.get(annotation)
    if whole:
        return whole
    parts = [part for part in annotation.split(" | ") if part != "None"]
    return " or ".join(dict.fromkeys(_WORDS.get(part, part) for part in parts))


def _result(
    function: Callable[..., Any], inner: Callable[..., Any], signature: inspect.Signature
) -> str:
    """What comes back, by family."""
    op = getattr(function, "op", None)
    if isinstance(op, Elementwise):
        return _of_elements(op, operands_of(function) or 1)
    names = signature.parameters
    kind = str(getattr(inner, "__annotations__", {}).get("return", ""))
    if kind in ("bool", "int", "float"):
        return f"{kind}."
    if kind.startswith("tuple["):
        return "A tuple of tensors."
    fields = getattr(getattr(inner, "__globals__", {}).get(kind), "_fields", ())
    if fields:
        return f"A named tuple ({', '.join(fields)})."
    if "reduction" in names:
        return (
            "A tensor with one element; with `reduction='none'`, a tensor with the loss of each "
            "element or sample."
        )
    if "keepdim" in names:
        return (
            "The reduced tensor: the shape of `input` without `dim`, or with size 1 there if "
            "`keepdim`."
        )
    if "requires_grad" in names and "device" in names:
        return "A new tensor."
    if "inplace" in names:
        return "A tensor of the shape and type of `input`; `input` itself if `inplace`."
    return "A tensor." if kind in ("Value", "Tensor") else ""


def _of_elements(op: Elementwise, operands: int) -> str:
    shape = "the shape of `input`" if operands == 1 else "the shape to which the operands broadcast"
    if op.result is bool_:
        return f"A bool tensor of {shape}, which carries no gradient."
    if op.result is not None:
        return f"A tensor of type {op.result.name} and of {shape}."
    return f"A tensor of {shape}. {_types(op.accepts)}"


def _types(accepts: tuple[DType, ...]) -> str:
    """In which types an elementwise formula is computed, in words."""
    words = [
        word
        for word, kinds in (("floating point", FLOAT), ("complex", COMPLEX), ("integer", INTEGER))
        if any(kind in accepts for kind in kinds)
    ]
    if bool_ in accepts:
        words.append("bool")
    said = f"Types: {', '.join(words)}"
    if words == ["integer"] or words == ["integer", "bool"]:
        return f"{said}. It carries no gradient."
    if "integer" not in words:
        said += "; integers count as the default float type"
    return f"{said}. Differentiable."
