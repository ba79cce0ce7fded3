"""The API reference that `make docs` builds: every public op once, every link to an anchor."""

from __future__ import annotations

import importlib.util
import inspect
import operator
import posixpath
import re
from pathlib import Path
from types import ModuleType

import pytest

import rushlight
from rushlight.ops.registry import REGISTRY

SOURCE = Path(__file__).parents[2] / "docs" / "site" / "reference.py"
FIRST = re.compile(r"\{ #rushlight\.(\S+) \}")


@pytest.fixture(scope="module")
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", SOURCE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def pages(reference: ModuleType) -> dict[str, str]:
    return reference.pages()


def test_every_op_has_its_place(pages: dict[str, str]) -> None:
    found = [
        name for page, text in pages.items() if "/ops/" in page for name in FIRST.findall(text)
    ]
    assert len(found) == len(set(found))
    ends = {name.rpartition(".")[2] for name in found}
    for name in REGISTRY:
        if not name.startswith(("_", "to_")):
            assert name in ends or name.partition("_")[2] in ends, name


def test_links_lead_to_anchors(pages: dict[str, str]) -> None:
    for page, text in pages.items():
        for target, anchor in re.findall(r"\]\(([\w./]+\.md)#?([\w.]*)\)", text):
            path = posixpath.normpath(posixpath.join(posixpath.dirname(page), target))
            if path.startswith("reference/"):
                assert not anchor or f"{{ #{anchor} }}" in pages[path], (page, target, anchor)


def test_the_navigation_has_every_page(reference: ModuleType, pages: dict[str, str]) -> None:
    def walked(part: object) -> list[str]:
        if isinstance(part, str):
            return [part]
        inner = part if isinstance(part, list) else part.values()
        return [page for each in inner for page in walked(each)]

    assert sorted(walked(reference.navigation())) == sorted(pages)


def test_every_item_has_a_signature_and_a_docstring(pages: dict[str, str]) -> None:
    lacking = []
    for text in pages.values():
        for item in re.split(r"\n(?=##+ )", text):
            for name in FIRST.findall(item.partition("\n")[0]):
                shown = re.fullmatch(r".*?\n\n```py\n.+?\n```\n\n.+", item, re.S)
                if not shown and not _is_error(name):
                    lacking.append(name)
    assert not lacking


def _is_error(path: str) -> bool:
    member = operator.attrgetter(path)(rushlight)
    return isinstance(member, type) and issubclass(member, BaseException)


def test_every_public_name_is_listed(pages: dict[str, str]) -> None:
    listed = {name for text in pages.values() for name in FIRST.findall(text)}
    ends = {name.rpartition(".")[2] for name in listed}
    functions = [
        name
        for name in rushlight.__all__
        if inspect.isroutine(getattr(rushlight, name)) and name not in ends
    ]
    assert not functions
    attributes = {name for name in dir(rushlight.Tensor) if name[0] != "_"} - {"kept_grad"}
    ops = {name for name in attributes if {name, name.removesuffix("_")} & REGISTRY.keys()}
    assert attributes - ops <= {name.removeprefix("Tensor.") for name in listed}
