"""Records of backward workers have the line that called it. See Note [Source lines] 4."""

from __future__ import annotations

import sys
import threading
from typing import Any

import rushlight as rl
from rushlight.tape.record import source_line
from rushlight.tape.record.value import Leaf


def records(*values: Any) -> set[Any]:
    """Every node under these values."""
    found: set[Any] = set()
    stack = [v.grad_fn for v in values if v.grad_fn is not None]
    while stack:
        node = stack.pop()
        if node in found or isinstance(node, Leaf):
            continue
        found.add(node)
        stack.extend(edge for edge, _ in node.next_functions if edge is not None)
    return found


def branches(count: int = 4) -> tuple[list[Any], Any]:
    leaves = [rl.rand(200, 200, requires_grad=True) for _ in range(count)]
    return leaves, sum((x @ x).tanh().sum() for x in leaves)


def test_the_line_of_backward() -> None:
    leaves, root = branches()
    before = records(root)
    found = rl.autograd.grad(root, leaves, create_graph=True, workers=3)
    line = sys._getframe().f_lineno - 1
    made = records(*found) - before
    assert len(made) > 8
    assert {(node.place.file, node.place.line) for node in made} == {(__file__, line)}
    assert {node.place.function.split(".")[0] for node in made} == {"test_the_line_of_backward"}
    assert not source_line.CALLERS


class Square(rl.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 2 * g * x  # this line


def test_code_of_the_users_in_a_worker_is_its_own_place() -> None:
    leaves = [rl.rand(200, 200, requires_grad=True) for _ in range(3)]
    root = sum((Square.apply(x) @ x).sum() for x in leaves)
    found = rl.autograd.grad(root, leaves, create_graph=True, workers=3)
    own = [
        n for n in records(*found) - records(root) if n.place.function.endswith("Square.backward")
    ]
    assert own and all(n.place.line == Square.backward.__code__.co_firstlineno + 3 for n in own)


def test_a_thread_of_the_users() -> None:
    x = rl.rand(3, requires_grad=True)
    made: list[Any] = []
    thread = threading.Thread(target=lambda: made.append(x * 2))
    thread.start()
    thread.join()
    assert made[0].grad_fn.place.file == __file__
