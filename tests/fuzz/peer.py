"""The same call in PyTorch: a process of another Python that has it, without this package.

`Peer` is the fuzzer's side. Run as a program (`python tests/fuzz/peer.py`), this file is the other
side: it reads pickled calls, makes them by PyTorch's names, and answers with arrays. Arguments are
sent as plain tuples; a call with other arguments is not compared.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import struct
import subprocess
import sys
from typing import Any

import numpy as np

PLAIN = (int, float, complex, bool, str, type(None), slice, type(Ellipsis), bytes)
SECONDS = 10


class Unsaid(Exception):
    """An argument that PyTorch does not know, or a missing answer."""


# ---- the fuzzer's side ----


class Peer:
    """PyTorch in a process of its own, restarted when it crashes or hangs."""

    def __init__(self, python: str) -> None:
        self.python = python
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, path: str, name: str, args: Any, named: Any, inplace: bool) -> tuple[str, Any]:
        """("ok", arrays), ("error", text) or ("missing", name).

        Raises Unsaid where there is no answer.
        """
        if self.process is None or self.process.poll() is not None:
            self.process = subprocess.Popen(
                [self.python, __file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        stdin, stdout = self.process.stdin, self.process.stdout
        assert stdin is not None and stdout is not None
        message = pickle.dumps((path, name, args, named, inplace))
        try:
            stdin.write(struct.pack("<q", len(message)) + message)
            stdin.flush()
            if not select.select([stdout], [], [], 60)[0]:
                raise OSError("no answer")
            return pickle.loads(stdout.read(struct.unpack("<q", stdout.read(8))[0]))
        except (OSError, struct.error, EOFError) as error:
            self.process.kill()
            self.process.wait()
            self.process = None
            raise Unsaid(str(error)) from None


def differences(ours: list[Any], theirs: list[Any]) -> str:
    """The gross differences of two lists of arrays; "" where they agree."""
    if len(ours) != len(theirs):
        return f"{len(ours)} results, PyTorch has {len(theirs)}"
    for a, b in zip(ours, theirs, strict=True):
        if a.shape != b.shape:
            return f"shape {a.shape}, PyTorch has {b.shape}"
        if a.dtype != b.dtype:
            return f"type {a.dtype}, PyTorch has {b.dtype}"
        if a.dtype.kind in "fc":
            with np.errstate(all="ignore"):
                wide = a.astype("complex128"), b.astype("complex128")
                close = np.abs(wide[0] - wide[1]) <= 1e-2 + 3e-2 * np.abs(wide[1])
                close |= (wide[0] == wide[1]) | (np.isnan(a) & np.isnan(b))
                close |= ~np.isfinite(a) & (np.abs(wide[1]) > 1e30)  # overflows at another step
                close |= ~np.isfinite(b) & (np.abs(wide[0]) > 1e30)
        else:
            close = a == b
        if not np.all(close):
            at = tuple(int(i) for i in np.argwhere(~close)[0])
            return f"{a[at]!r} at {at}, PyTorch has {b[at]!r}"
    return ""


# ---- PyTorch's side ----


def _serve() -> None:
    import torch

    torch.set_num_threads(1)
    stdin, stdout = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(TimeoutError("too long")))
    while length := stdin.read(8):
        call = pickle.loads(stdin.read(struct.unpack("<q", length)[0]))
        signal.alarm(SECONDS)
        try:
            answer: tuple[str, Any] = _called(torch, *call)
        except Exception as error:
            answer = ("error", f"{type(error).__name__}: {error}".splitlines()[0][:300])
        signal.alarm(0)
        message = pickle.dumps(answer)
        stdout.write(struct.pack("<q", len(message)) + message)
        stdout.flush()


def _called(
    torch: Any, path: str, name: str, args: Any, named: Any, inplace: bool
) -> tuple[str, Any]:
    where = torch
    for part in [] if path == "rushlight" else path.split("."):
        where = getattr(where, part, None)
    function = getattr(where, name, None)
    if function is None:
        return "missing", name
    torch.manual_seed(11)
    given = [_made(torch, a) for a in args]
    out = function(*given, **{k: _made(torch, v) for k, v in named.items()})
    return "ok", [_array(torch, t) for t in _tensors(torch, out)]


def _made(torch: Any, said: Any) -> Any:
    kind, value = said
    if kind == "tensor":
        array, dtype, view, grad = value
        stored = torch.from_numpy(array.copy()).to(getattr(torch, dtype))
        made = eval(f"stored{view}", {"stored": stored}) if view else stored
        return made.detach().requires_grad_() if grad else made
    if kind == "dtype":
        return getattr(torch, value)
    if kind in ("list", "tuple"):
        items = [_made(torch, v) for v in value]
        return items if kind == "list" else tuple(items)
    return value


def _tensors(torch: Any, out: Any) -> list[Any]:
    if isinstance(out, torch.Tensor):
        return [out]
    if isinstance(out, (list, tuple)):
        return [t for part in out for t in _tensors(torch, part)]
    return []


def _array(torch: Any, tensor: Any) -> np.ndarray:
    tensor = tensor.detach().resolve_conj().resolve_neg()
    tensor = tensor.to_dense() if tensor.layout is not torch.strided else tensor
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy().copy()


if __name__ == "__main__":
    _serve()
