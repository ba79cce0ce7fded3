"""The public namespaces say which names are theirs."""

from __future__ import annotations

import importlib
import inspect

import pytest

import rushlight

NAMESPACES = [
    "accelerator",
    "amp",
    "array_api",
    "autograd",
    "autograd.anomaly_mode",
    "autograd.forward_ad",
    "autograd.function",
    "autograd.functional",
    "autograd.grad_mode",
    "autograd.graph",
    "cpu",
    "cuda",
    "cuda.amp",
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
    "nn.modules",
    "nn.parameter",
    "nn.utils",
    "nn.utils.parametrizations",
    "nn.utils.parametrize",
    "nn.utils.prune",
    "nn.utils.rnn",
    "nn.utils.stateless",
    "optim",
    "optim.lr_scheduler",
    "optim.swa_utils",
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
    "utils.dlpack",
    "utils.hooks",
]


@pytest.mark.parametrize("name", NAMESPACES)
def test_a_namespace_lists_its_names(name: str) -> None:
    module = importlib.import_module(f"rushlight.{name}")
    assert len(set(module.__all__)) == len(module.__all__)
    for each in module.__all__:
        member = getattr(module, each)
        assert not each.startswith("_")
        assert getattr(member, "__module__", "") not in ("typing", "collections.abc", "__future__")


@pytest.mark.parametrize("name", NAMESPACES)
def test_dir_shows_no_imported_helper(name: str) -> None:
    module = importlib.import_module(f"rushlight.{name}")
    seen = {each for each in dir(module) if not each.startswith("_")}
    assert seen >= set(module.__all__)
    for each in seen - set(module.__all__):
        assert getattr(module, each).__name__ == f"{module.__name__}.{each}"


def test_dir_of_the_package() -> None:
    seen = {each for each in dir(rushlight) if not each.startswith("_")}
    assert seen >= set(rushlight.__all__) and "annotations" not in seen
    assert all(inspect.ismodule(getattr(rushlight, each)) for each in seen - {*rushlight.__all__})
