"""A wrong call of any public function is refused, at its first call and after a right one.

The error names the function as it was called and, for a wrong value, the argument; for a wrong
number of arguments it counts those that users see.
"""

from __future__ import annotations

import csv
import inspect
import re

import pytest

import rushlight
from tests.ops.wrong_calls import VERDICTS, right_call, targets, verdict, wrong_calls

TARGETS = {target.path: target for target in targets()}
# Arguments without an effect here, which PyTorch reads.
IDLE = {
    "lobpcg": ("method", "tracker", "ortho_iparams", "ortho_fparams", "ortho_bparams"),
    "linear_cross_entropy": ("options",),
}
INTERNAL = ("AttributeError", "KeyError", "IndexError", "NameError", "UnboundLocalError")
ACCEPTED: dict[str, set[str]] = {}
with VERDICTS.open() as file:
    for _path, _what in csv.reader(file):
        ACCEPTED.setdefault(_path, set()).add(_what)


def problem_of(target, wrong, kind, text):
    """What is wrong with the answer to a wrong call, or None."""
    if kind == "accepted":
        taken = ACCEPTED.get(target.path, set())
        idle = wrong.argument in IDLE.get(target.op, ())
        return None if idle or wrong.what in taken else "accepted"
    if kind in INTERNAL:
        return "an internal error"
    if target.name not in text:
        return "the function is not named"
    if wrong.argument and wrong.argument not in text and "wrong" not in text:
        return f"{wrong.argument} is not named"
    counted = re.search(r"takes (?:from \d+ to )?(\d+) positional", text)
    if counted and "too many" in wrong.what:
        shown = inspect.signature(target.function).parameters.values()
        if int(counted[1]) != sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in shown):
            return "hidden parameters are counted"
    return None


def problems(target):
    args, named = right_call(target)
    found = []
    for wrong in wrong_calls(target):
        first = verdict(target.function, wrong.args, wrong.named)
        verdict(target.function, args, named)
        again = verdict(target.function, wrong.args, wrong.named)
        problem = problem_of(target, wrong, *first)
        if problem is None and first != again:
            problem = f"another answer after a right call, {again}"
        if problem is not None:
            found.append(f"{target.path}, {wrong.what}: {problem}: {first}")
    return found


def test_nearly_every_function_has_a_right_call():
    assert len(TARGETS) > 1200
    assert sum(right_call(target) is None for target in TARGETS.values()) < 20


@pytest.mark.parametrize("path", TARGETS)
def test_wrong_calls_are_refused_by_name(path):
    target = TARGETS[path]
    if right_call(target) is not None:
        assert not problems(target)


x, y, z = (rushlight.ones(3) for _ in range(3))
NOT_TAKEN = {
    "four operands": lambda: rushlight.mul(x, y, z, z),
    "an operand twice": lambda: rushlight.add(x, y, z, x, z),
    "out by place": lambda: rushlight.exp(x, None, z),
    "None by place": lambda: x.exp(None),
    "six operands": lambda: x.exp(1, 2, 3, 4, 5),
    "out of pow by place": lambda: rushlight.pow(x, 2, z),
}


@pytest.mark.parametrize("wrong", NOT_TAKEN)
def test_no_hidden_parameter_can_be_given(wrong):
    for _ in range(2):
        with pytest.raises(TypeError):
            NOT_TAKEN[wrong]()


@pytest.mark.parametrize("flag", ["a", 2, 0.5, [], object(), rushlight.ones(1)])
def test_a_flag_is_a_bool(flag):
    for _ in range(2):
        with pytest.raises(TypeError, match=r"sum\(\): argument 'keepdim' must be a bool"):
            x.sum(0, keepdim=flag)
        x.sum(0, keepdim=True)


def test_a_flag_may_be_0_or_1_or_a_tensor_without_dimensions():
    for flag in (1, rushlight.tensor(True)):
        assert x.sum(0, keepdim=flag).shape == (1,)
    assert x.sum(0, keepdim=0).shape == ()


def test_an_error_of_an_inner_op_names_the_argument_of_the_outer():
    with pytest.raises(TypeError, match=r"clamp\(\): argument 'min' .*'a' of type str"):
        rushlight.clamp(x, min="a")


def test_a_refused_call_with_a_device_blames_no_device():
    with pytest.raises(TypeError, match=r"full\(\): argument 'fill_value'"):
        rushlight.full((2,), "a", device="cpu")
