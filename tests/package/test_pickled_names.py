"""Public functions and unbound methods: where they say they are, and pickle by that name."""

from __future__ import annotations

import pickle
import subprocess
import sys
import types

import pytest

import rushlight
from rushlight.ops import declared

METHODS = [n for n in dir(rushlight.Tensor) if callable(getattr(rushlight.Tensor, n))]
CODE = """
import pickle, sys
import rushlight
{first}
sys.stdout.buffer.write(pickle.dumps(({methods})))
"""


def test_functions_of_ops_are_the_package_s():
    for name in [name for name in declared.TOP if name[0] != "_"]:
        function = getattr(rushlight, name)
        assert (function.__module__, function.__qualname__) == ("rushlight", name)


def test_methods_pickle_by_their_name():
    for name in METHODS:
        method = getattr(rushlight.Tensor, name)
        if isinstance(method, types.FunctionType):
            assert not method.__module__.startswith(("rushlight.ops", "rushlight.tape")), name
        assert pickle.loads(pickle.dumps(method)) == method, name


@pytest.mark.parametrize("first", ["", "rushlight.add, rushlight.sum, rushlight.flip"])
def test_a_method_pickles_before_and_after_the_function_is_used(first):
    of = rushlight.Tensor
    names = ["add", "sum", "flip", "exp_", "__add__", "__neg__"]
    methods = ", ".join(f"rushlight.Tensor.{name}" for name in names)
    code = CODE.format(first=first, methods=methods)
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert pickle.loads(made.stdout) == tuple([getattr(of, name) for name in names])


def test_a_pickled_method_runs():
    add = pickle.loads(pickle.dumps(rushlight.Tensor.add))
    assert add(rushlight.ones(2), rushlight.ones(2)).tolist() == [2.0, 2.0]
