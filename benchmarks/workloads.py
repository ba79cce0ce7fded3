"""The timed work: functions of a library with PyTorch's names, PyTorch or Rushlight."""

from __future__ import annotations

import importlib
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

Work = Callable[[], object]
EXAMPLES = Path(__file__).parent.parent / "examples"


def small_add(lib: Any) -> Work:
    """a + b of 8 floats, a hundred times."""
    a, b = lib.ones(8), lib.ones(8)

    def work() -> None:
        for _ in range(100):
            a + b

    return work


def chain(lib: Any, device: str = "cpu") -> Work:
    """100 ops on 8 floats, one after another, and backward: multiply, add, tanh, scale."""
    w, b, g = (lib.ones(8, device=device) for _ in range(3))

    def work() -> None:
        x = lib.ones(8, device=device, requires_grad=True)
        y = x
        for _ in range(25):
            y = y * w
            y = y + b
            y = lib.tanh(y)
            y = y * 0.9
        y.backward(g)

    return work


def leaf_chain(lib: Any) -> Work:
    """100 ops on 8 floats; each reads the leaf again, so backward sums 100 gradients into it."""
    g = lib.ones(8)

    def work() -> None:
        x = lib.ones(8, requires_grad=True)
        y = x
        for _ in range(50):
            y = y * x
            y = y + x
        y.backward(g)

    return work


def add_large(lib: Any) -> Work:
    a, b = lib.rand(1 << 20), lib.rand(1 << 20)
    return lambda: a + b


def exp_large(lib: Any) -> Work:
    a = lib.rand(1 << 20)
    return lambda: lib.exp(a)


def softmax(lib: Any) -> Work:
    x, g = lib.randn(1024, 1024, requires_grad=True), lib.randn(1024, 1024)

    def work() -> None:
        x.grad = None
        lib.softmax(x, -1).backward(g)

    return work


def layer_norm(lib: Any) -> Work:
    x, g = lib.randn(1024, 1024, requires_grad=True), lib.randn(1024, 1024)
    w, b = lib.ones(1024, requires_grad=True), lib.zeros(1024, requires_grad=True)
    functional = importlib.import_module(f"{lib.__name__}.nn.functional")

    def work() -> None:
        x.grad = w.grad = b.grad = None
        functional.layer_norm(x, (1024,), w, b).backward(g)

    return work


def matmul(lib: Any) -> Work:
    a, b = lib.randn(1024, 1024), lib.randn(1024, 1024)
    return lambda: a @ b


def mlp_gradients(lib: Any) -> Work:
    """784-256-10, batch 32: forward and backward, without an optimiser."""
    nn = importlib.import_module(f"{lib.__name__}.nn")
    lib.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    measure = nn.CrossEntropyLoss()
    x, y = lib.randn(32, 784), lib.randint(0, 10, (32,))

    def work() -> None:
        for p in model.parameters():
            p.grad = None
        measure(model(x), y).backward()

    return work


def cnn_step(lib: Any) -> Work:
    """One step with momentum: two blocks of convolution, norm, relu, pooling on 32 images of
    3x32x32.
    """
    nn = importlib.import_module(f"{lib.__name__}.nn")
    optim = importlib.import_module(f"{lib.__name__}.optim")
    lib.manual_seed(0)
    layers = []
    for wide, high in ((3, 32), (32, 64)):
        layers += [
            nn.Conv2d(wide, high, 3, padding=1),
            nn.BatchNorm2d(high),
            nn.ReLU(),
            nn.MaxPool2d(2),
        ]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * 64, 10))
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    measure = nn.CrossEntropyLoss()
    x, y = lib.randn(32, 3, 32, 32), lib.randint(0, 10, (32,))

    def work() -> None:
        optimizer.zero_grad()
        measure(model(x), y).backward()
        optimizer.step()

    return work


def mlp_step(lib: Any) -> Work:
    """784-256-10, batch 32, Adam: one step."""
    nn = importlib.import_module(f"{lib.__name__}.nn")
    optim = importlib.import_module(f"{lib.__name__}.optim")
    lib.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    measure = nn.CrossEntropyLoss()
    x, y = lib.randn(32, 784), lib.randint(0, 10, (32,))

    def work() -> None:
        optimizer.zero_grad()
        measure(model(x), y).backward()
        optimizer.step()

    return work


def load_gpt(lib: Any) -> Any:
    """The demo's model, from the same file with the library's name substituted."""
    source = (EXAMPLES / "gpt.py").read_text().replace("rushlight", lib.__name__)
    module = types.ModuleType("gpt")
    exec(compile(source, "gpt.py", "exec"), module.__dict__)
    return module


def gpt_step(lib: Any, device: str = "cpu", batch: int = 16) -> tuple[Work, Any]:
    """One step of the demo's GPT with AdamW; the work and the model."""
    optim = importlib.import_module(f"{lib.__name__}.optim")
    lib.manual_seed(0)
    model = load_gpt(lib).GPT(79).to(device)
    optimizer = optim.AdamW(model.parameters(), lr=1e-3)
    x = lib.randint(0, 79, (batch, 64)).to(device)
    y = lib.randint(0, 79, (batch, 64)).to(device)

    def work() -> float:
        optimizer.zero_grad()
        loss = model.loss(x, y)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return work, model
