"""The source line of a call in the user's program, and the path of the module.

# Note [Source lines]
1. Noting a source line must be cheap, because every record has one: it is the code object and the
   instruction's offset in it, and the chain of modules being called. Line and names are computed on
   demand.
2. The user's frame is the innermost one outside this package.
3. Modules are referenced weakly: a record must not keep a model alive.
4. The records of one call of a module of this package that has no members have one source line:
   the first of them finds it, and keeps it in the chain for the others.
5. In a thread that this package started for a user's call, whose code is not on its stack, the
   user's frame is the one that waits for it (CALLERS).
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
import warnings
from contextvars import ContextVar
from types import CodeType, FrameType
from typing import Any, ClassVar, NamedTuple

from rushlight.core.interrupts import unheard
from rushlight.tape.record.state import impure

# The chain of the calling module, or None; a weak reference to the called module; and a list that
# gets the user's code and instruction (Note [Source lines] 4), or None.
Chain = tuple[Any, Any, "list[Any] | None"]

CALLED: ContextVar[Chain | None] = ContextVar("rushlight_called", default=None)
# By file name: whether its code is this package's, or starts threads.
OURS: dict[str, bool] = {threading.__file__: True}
CALLERS: dict[int, FrameType] = {}  # by thread: the frame that waits for it

_ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..")) + os.sep
_get_frame = sys._getframe


class Entry:
    """The code through which modules are called; set by `nn/module.py`."""

    code: ClassVar[CodeType | None] = None


class OwnLines:
    """`with OwnLines():` around a user's code that a module's call runs: its lines are its own.

    See Note [Source lines] 4.
    """

    __slots__ = ("before",)

    def __enter__(self) -> None:
        self.before = chain = CALLED.get()
        if chain is not None:
            CALLED.set((chain[0], chain[1], None))

    @unheard
    def __exit__(self, *_: object) -> None:
        CALLED.set(self.before)


class SourceLine(NamedTuple):
    """A line of the user's program, and the modules being called."""

    code: CodeType
    at: int  # the instruction, as in `frame.f_lasti`
    chain: Chain | None

    @property
    def file(self) -> str:
        return self.code.co_filename

    @property
    def line(self) -> int:
        for start, end, line in self.code.co_lines():
            if start <= self.at < end and line is not None:
                return line
        return self.code.co_firstlineno

    @property
    def function(self) -> str:
        return self.code.co_qualname if sys.version_info >= (3, 11) else self.code.co_name

    @property
    def module(self) -> str:
        """The path of the innermost module from the outermost one, as in `named_modules`.

        If they are the same, its class.
        """
        return module_path(self.chain)

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}{describe_module(self.chain)}"


def is_ours(file: str) -> bool:
    """Whether a file is this package's; the result is kept in OURS."""
    found = OURS[file] = os.path.abspath(file).startswith(_ROOT)
    return found


def user_frame(frame: FrameType) -> FrameType:
    """The innermost frame outside this package, from `frame` on.

    Without one, the thread's caller's, else the outermost.
    """
    known = OURS.get
    while True:
        own = known(frame.f_code.co_filename)
        if not own and (own is False or not is_ours(frame.f_code.co_filename)):
            return frame
        outer = frame.f_back
        if outer is None:
            return CALLERS.get(threading.get_ident(), frame)
        frame = outer


def warn(text: str) -> None:
    """Warn of this call. No program is kept of its kind (Note [Traces] 2), so each call warns."""
    impure()
    frame = user_frame(_get_frame(1))
    warnings.warn_explicit(
        text,
        UserWarning,
        frame.f_code.co_filename,
        frame.f_lineno,
        frame.f_globals.get("__name__"),
        frame.f_globals.setdefault("__warningregistry__", {}),
    )


def find_place(frame: FrameType, chain: Chain | None) -> tuple[CodeType, int]:
    """The user's code and instruction, from `frame` on; kept in the chain where that may be."""
    entry, is_outside = Entry.code, False
    while True:
        code = frame.f_code
        is_own = OURS.get(code.co_filename)
        if not is_own:
            if is_own is None:  # a file that is not known yet may be ours
                frame = user_frame(frame)
            break
        if code is entry:
            is_outside = True
        outer = frame.f_back
        if outer is None:
            frame = user_frame(frame)
            break
        frame = outer
    place = frame.f_code, frame.f_lasti
    if is_outside and chain is not None and chain[2] is not None:
        chain[2][:] = place
    return place


def here() -> SourceLine:
    """The source line of the running call."""
    frame = user_frame(_get_frame(1))
    return SourceLine(frame.f_code, frame.f_lasti, CALLED.get())


def module_path(chain: Chain | None) -> str:
    modules: list[Any] = []
    while chain is not None:
        chain, reference, _ = chain
        modules.append(reference())
    modules.reverse()
    if not modules:
        return ""
    names: list[str] = []
    for outer, inner in itertools.pairwise(modules):
        names.append(_name_in(outer, inner))
    return ".".join(n for n in names if n) or _class_of(modules[0])


def describe_module(chain: Chain | None) -> str:
    """The path and its starting module, as words after a line."""
    if chain is None:
        return ""
    outermost = chain
    while outermost[0] is not None:
        outermost = outermost[0]
    root, path = _class_of(outermost[1]()), module_path(chain)
    return f", module {path}" if path == root else f", module {path} of {root}"


def _name_in(outer: Any, inner: Any) -> str:
    """The outer module's name of the inner one; its class where it is no submodule."""
    if outer is inner:
        return ""
    if outer is not None:
        for name, module in outer.named_modules(remove_duplicate=False):
            if module is inner:
                return str(name)
    return _class_of(inner)


def _class_of(module: Any) -> str:
    return "a module that is gone" if module is None else type(module).__name__
