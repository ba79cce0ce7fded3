"""Docstrings of public ops: every parameter is explained, and examples print what they say."""

from __future__ import annotations

import doctest

import pytest

import rushlight
from rushlight.ops.registry import REGISTRY

WITH_EXAMPLES = [name for name, entry in REGISTRY.items() if ">>> " in entry.doc]


def test_many_ops_have_examples():
    assert len(WITH_EXAMPLES) > 120


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_example_prints_what_it_says(name):
    names = {"torch": rushlight, "F": rushlight.nn.functional}
    example = doctest.DocTestParser().get_doctest(REGISTRY[name].doc, names, name, None, 0)
    said: list[str] = []
    rushlight.manual_seed(0)
    result = doctest.DocTestRunner(verbose=False).run(example, out=said.append)
    assert result.attempted and not result.failed, "".join(said)
