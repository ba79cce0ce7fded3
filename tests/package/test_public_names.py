"""The public namespaces say which names are theirs."""

from __future__ import annotations

import importlib

import pytest

NAMESPACES = [
    "accelerator",
    "amp",
    "array_api",
    "autograd",
    "autograd.forward_ad",
    "autograd.functional",
    "autograd.graph",
    "cpu",
    "cuda",
    "distributions",
    "fft",
    "func",
    "io",
    "linalg",
    "masked",
    "memory",
    "nn",
    "nn.functional",
    "nn.init",
    "nn.utils",
    "optim",
    "optim.lr_scheduler",
    "random",
    "serialization",
    "signal",
    "signal.windows",
    "sparse",
    "special",
    "storage",
    "testing",
    "utils",
    "utils.checkpoint",
    "utils.data",
]


@pytest.mark.parametrize("name", NAMESPACES)
def test_a_namespace_lists_its_names(name: str) -> None:
    module = importlib.import_module(f"rushlight.{name}")
    assert len(set(module.__all__)) == len(module.__all__)
    for each in module.__all__:
        member = getattr(module, each)
        assert not each.startswith("_")
        assert getattr(member, "__module__", "") not in ("typing", "collections.abc", "__future__")
