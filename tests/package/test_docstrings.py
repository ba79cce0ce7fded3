"""Docstrings of public ops: every parameter is explained, and examples print what they say."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pydoc

import pytest

import rushlight
from rushlight.ops.registry import REGISTRY
from rushlight.tensor import Tensor

WITH_EXAMPLES = [name for name, entry in REGISTRY.items() if ">>> " in entry.doc]
TOP = [name for name, entry in REGISTRY.items() if entry.top and not name.startswith("_")]
NAMESPACES = ("nn.functional", "linalg", "fft", "special")
WRITTEN = (
    *("amp", "autograd", "cuda", "func", "io", "masked", "memory", "nn.init", "nn.utils"),
    *("random", "signal.windows", "sparse", "testing", "utils.data"),
)


def public_functions():
    for name in TOP:
        yield f"rushlight.{name}", getattr(rushlight, name)
    for namespace in NAMESPACES:
        module = rushlight
        for part in namespace.split("."):
            module = getattr(module, part)
        for name in module.__all__:
            member = getattr(module, name)
            if inspect.isfunction(member):
                yield f"{namespace}.{name}", member


def test_signatures_show_no_internal_parameter():
    for path, function in public_functions():
        for p in inspect.signature(function).parameters.values():
            assert not p.name.startswith("_") or p.name == "_stacklevel", f"{path}: {p}"
            assert p.name not in ("number", "older", "named"), f"{path}: {p}"


@pytest.mark.parametrize("namespace", ["rushlight", *NAMESPACES])
def test_every_parameter_is_explained(namespace):
    lacking = []
    for path, function in public_functions():
        if path.rpartition(".")[0] != namespace or not hasattr(function, "__signature__"):
            continue
        for name in inspect.signature(function).parameters:
            lines = [x for x in function.__doc__.splitlines() if x.startswith(f"    {name}")]
            if not any(len(x.partition(": ")[2]) > 5 for x in lines):
                lacking.append(f"{path}: {name}")
    assert not lacking


@pytest.mark.parametrize("namespace", WRITTEN)
def test_functions_outside_of_the_registry_explain_their_arguments(namespace):
    module = importlib.import_module(f"rushlight.{namespace}")
    members = [getattr(module, name) for name in module.__all__]
    functions = [x for x in members if inspect.isfunction(x) and inspect.signature(x).parameters]
    assert functions
    docs = {f.__name__: f.__doc__ or "" for f in functions}
    assert [n for n, doc in docs.items() if "Args:" not in doc and "Refused:" not in doc] == []


def test_most_functions_are_described():
    functions = dict(public_functions())
    described = [path for path, f in functions.items() if hasattr(f, "__signature__")]
    assert len(described) > 0.98 * len(functions), functions.keys() - set(described)


def test_help_of_a_function_and_of_methods():
    text = pydoc.plain(pydoc.render_doc(rushlight.add))
    assert "add(input, other, *, alpha=1, out=None)" in text
    assert "Args:" in text and "Returns:" in text
    assert str(inspect.signature(Tensor.add_)) == "(self, other, *, alpha=1)"
    assert "into the tensor itself" in Tensor.add_.__doc__
    assert "keepdim (bool)" in Tensor.amax.__doc__


def test_a_declaration_may_explain_its_own_parameters():
    assert "index (Tensor): " in rushlight.gather.__doc__
    assert "Example:" in rushlight.gather.__doc__


def test_many_ops_have_examples():
    assert len(WITH_EXAMPLES) > 150


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_example_prints_what_it_says(name):
    names = {"torch": rushlight, "F": rushlight.nn.functional}
    example = doctest.DocTestParser().get_doctest(REGISTRY[name].doc, names, name, None, 0)
    said: list[str] = []
    rushlight.manual_seed(0)
    result = doctest.DocTestRunner(verbose=False).run(example, out=said.append)
    assert result.attempted and not result.failed, "".join(said)
