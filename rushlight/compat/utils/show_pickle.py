"""PyTorch's `torch.utils.show_pickle`: what a pickle holds, without running any of it.

`python -m torch.utils.show_pickle file.pt` prints it; `archive.pt@data.pkl` names a member of a
zip file, which `*` matches.
"""

from __future__ import annotations

import argparse
import fnmatch
import pickle
import pprint
import sys
import zipfile
from collections.abc import Sequence
from typing import IO, Any, ClassVar, NoReturn

__all__ = ["DumpUnpickler", "FakeClass", "FakeObject", "main"]


class FakeObject:
    """What a class or function of the pickle would have made, as the names it was called with."""

    def __init__(self, module: str, name: str, args: Any) -> None:
        self.module = module
        self.name = name
        self.args = args
        self.state: Any = None

    def __repr__(self) -> str:
        state = "" if self.state is None else f"(state={self.state!r})"
        return f"{self.module}.{self.name}{self.args!r}{state}"

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def append(self, item: Any) -> None:
        """Keep an element that the pickle appends."""
        self.args = (*self.args, item)

    def extend(self, items: Sequence[Any]) -> None:
        """Keep elements that the pickle appends."""
        self.args = (*self.args, *items)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.args = (*self.args, (key, value))


class FakeClass:
    """A class or function that the pickle names; a call of it gives a FakeObject."""

    def __init__(self, module: str, name: str) -> None:
        self.module = module
        self.name = name

    def __repr__(self) -> str:
        return f"{self.module}.{self.name}"

    def __call__(self, *args: Any) -> FakeObject:
        return FakeObject(self.module, self.name, args)


class DumpUnpickler(pickle._Unpickler):
    """Reads a pickle and makes FakeObjects in the places of all classes.

    Args:
        file (file): The pickle.
        catch_invalid_utf8 (bool): Has no effect: such text is shown with escapes in any case.
    """

    def __init__(self, file: IO[bytes], *, catch_invalid_utf8: bool = False, **named: Any) -> None:
        named.setdefault("errors", "backslashreplace")
        super().__init__(file, **named)
        self.catch_invalid_utf8 = catch_invalid_utf8

    # Python's own reader makes an object of a named class by `__new__`, which no instance has.
    dispatch: ClassVar[dict[int, Any]] = dict(pickle._Unpickler.dispatch)

    stack: Any
    append: Any

    def _make(self) -> None:
        args = self.stack.pop()
        kind = self.stack.pop()
        self.append(FakeObject(kind.module, kind.name, tuple(args)))

    def _make_named(self) -> None:
        named = self.stack.pop()
        args = self.stack.pop()
        kind = self.stack.pop()
        self.append(FakeObject(kind.module, kind.name, (*args, *named.items())))

    dispatch[pickle.NEWOBJ[0]] = _make
    dispatch[pickle.NEWOBJ_EX[0]] = _make_named

    def find_class(self, module: str, name: str) -> FakeClass:
        """The stand-in of a class."""
        return FakeClass(module, name)

    def persistent_load(self, pid: Any) -> FakeObject:
        """The stand-in of what lies outside of the pickle: a tensor's memory."""
        return FakeObject("pers", "obj", (pid,))

    def get_extension(self, code: int) -> NoReturn:
        """Refused: a number in place of a name tells nothing."""
        raise pickle.UnpicklingError(f"show_pickle: extension {code} has no name in the file")

    @classmethod
    def dump(cls, in_stream: IO[bytes], out_stream: IO[str]) -> Any:
        """Print a pickle.

        Args:
            in_stream (file): The pickle.
            out_stream (file): Where its text goes.
        """
        value = cls(in_stream).load()
        pprint.pprint(value, stream=out_stream)
        return value


def _is_zip(name: str) -> bool:
    with open(name, "rb") as file:
        return file.read(2) == b"PK"


def main(argv: Sequence[str], output_stream: Any = None) -> None:
    """Print the pickles that the arguments name.

    Args:
        argv (list): The program's name, and the words of the command line.
        output_stream (file): Where the text goes; standard output without it.
    """
    out = sys.stdout if output_stream is None else output_stream
    parser = argparse.ArgumentParser(description="Print what a pickle holds.")
    parser.add_argument("file", help="a pickle, or archive@member; - is standard input")
    given = parser.parse_args(argv[1:])
    if given.file == "-":
        DumpUnpickler.dump(sys.stdin.buffer, out)
        return
    name, _, member = given.file.partition("@")
    if not member and _is_zip(name):
        member = "*/data.pkl"
    if not member:
        with open(name, "rb") as file:
            DumpUnpickler.dump(file, out)
        return
    with zipfile.ZipFile(name) as archive:
        found = [inner for inner in archive.namelist() if fnmatch.fnmatch(inner, member)]
        if not found:
            raise FileNotFoundError(f"show_pickle: {name} has no member {member}")
        with archive.open(found[0]) as inner_file:
            DumpUnpickler.dump(inner_file, out)


if __name__ == "__main__":
    main(sys.argv)
