"""A reader of pickles that makes tensors and plain containers and calls nothing else.

# Note [Reading pickles]
1. A pickle is a program of opcodes for a machine with a stack and a memo. `Reader` has a method for
   each opcode in `OPCODES`; any other one is refused. Numbers, text and bytes are read directly;
   containers are filled only where their type is exactly one of Python's own; all else is made by
   `constructors.py`.
2. A length in the file is trusted only up to the bytes there are. Work besides one object per
   opcode is reported to the ledger, which allows a fixed number of bytes or steps for each byte
   read: memory and time are linear in the file's length, but for Note [Keys] 4.
3. Keys are hashed and compared: see Note [Keys].
4. Nothing recurses. The nesting of the complete result is checked, for programs that recurse.
   Python frees nested defaultdicts by recursion in C, so those are counted at once.
"""

from __future__ import annotations

import collections
import io
import os
import pickle
import struct
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from rushlight.io.archive import BEGIN
from rushlight.io.constructors import Maker, Mover, attach, find, is_of_safe_class, is_safe
from rushlight.io.keys import Keys
from rushlight.io.limits import DEPTH, Ledger, TruncatedFile, UnsafeFile
from rushlight.tape.record.value import Value

_CHUNK = 1 << 16
_LONGEST_NAME = 1000
_DEFAULTS_DEPTH = 100  # nested defaultdicts: Python frees them by recursion in C
MAGIC = 0x1950A86A20F9469CFC6C  # the first object in PyTorch's files before they were zip files

_DICTS = (dict, collections.OrderedDict, collections.defaultdict, collections.Counter)


class _Stop(Exception):
    """The object is complete."""


class Reader:
    def __init__(self, file: Any, move: Mover | None, encoding: str, errors: str) -> None:
        self.read = file.read
        self.left = _bytes_left(file)
        self.encoding = encoding
        self.errors = errors
        self.ledger = Ledger()
        self.enter = Keys(self.ledger).enter
        self.maker = Maker(self.ledger, move, self.enter)
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []  # the stacks below each mark
        self.memo: dict[int, Any] = {}
        # Nested defaultdicts, and their depths.
        self.defaults: dict[int, tuple[Any, int]] = {}

    def load(self) -> Any:
        table, take = OPCODES, self.take
        try:
            while True:
                key = take(1)
                operation = table.get(key)
                if operation is None:
                    self.refuse_opcode(key)
                operation(self)
        except _Stop:
            pass
        except IndexError as error:  # raised by this machine only: constructors raise UnsafeFile
            if not _is_own(error):
                raise
            raise UnsafeFile(
                "load: the file takes from an empty stack; it is damaged, or was not written by "
                "save"
            ) from None
        if len(self.stack) != 1 or self.marks:
            raise UnsafeFile(
                "load: the file ends with something left over; it is damaged, or was not written "
                "by save"
            )
        result = self.stack.pop()
        if result.__class__ is int and result == MAGIC:
            raise UnsafeFile(foreign("an older format"))
        check_depth(result)
        return result

    def persistent(self) -> None:
        self.stack.append(self.stored(self.stack.pop()))

    def stored(self, pid: Any) -> Any:
        """What the file asks for by a key: see Note [PyTorch's files]."""
        raise UnsafeFile("load: the file asks for memory by a key, and has none")

    def refuse_opcode(self, key: bytes) -> NoReturn:
        if self.ledger.given == 1 and key == b"P" and self.take(3) == BEGIN[1:]:
            raise UnsafeFile(foreign("a zip file"))
        raise UnsafeFile(
            f"load: {key!r} at byte {self.ledger.given - 1} is not in the list of what a file may "
            "ask for; it is damaged, was not written by save, or needs weights_only=False, which "
            "you can pass if you trust where it is from"
        )

    # ---- bytes ----

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        if self.left is not None:
            if count > self.left:
                raise TruncatedFile(
                    "load: Ran out of input: the file ends before what it describes"
                )
            self.left -= count
        if count <= _CHUNK or self.left is not None:
            data = self.read(count)
            if len(data) != count:
                data = self.rest(data, count)
        else:
            data = self.rest(b"", count)
        if data.__class__ is not bytes:
            data = _as_bytes(data)
        self.ledger.given += count
        return data

    def rest(self, data: Any, count: int) -> bytes:
        """The bytes after `data`, in pieces: the file may be shorter than its length field says."""
        pieces, got = [_as_bytes(data)], len(data)
        while got < count:
            piece = _as_bytes(self.read(min(count - got, max(got, _CHUNK))))
            if not piece:
                raise TruncatedFile(
                    "load: Ran out of input: the file ends before what it describes"
                )
            pieces.append(piece)
            got += len(piece)
        return b"".join(pieces)

    def take_number(self, count: int) -> int:
        return int.from_bytes(self.take(count), "little")

    def take_line(self) -> str:
        line = bytearray()
        while (byte := self.take(1)) != b"\n":
            line += byte
            if len(line) > _LONGEST_NAME:
                raise UnsafeFile("load: the file has a name that is too long")
        return self.text(line, "utf-8")

    def text(self, raw: bytes | bytearray, encoding: str, errors: str = "strict") -> str:
        try:
            return raw.decode(encoding, errors)
        except UnicodeError as error:
            raise UnsafeFile(
                f"load: the file has text that is not {encoding}; it is damaged"
            ) from error

    # ---- stack and memo ----

    def proto(self) -> None:
        if self.take(1)[0] > pickle.HIGHEST_PROTOCOL:
            raise UnsafeFile(
                "load: the file is of a later pickle protocol than this Python knows, or it is no "
                "pickle"
            )

    def frame(self) -> None:
        self.take(8)  # the number of bytes in one frame, which this reader ignores

    def stop(self) -> None:
        raise _Stop

    def mark(self) -> None:
        self.marks.append(self.stack)
        self.stack = []

    def since_mark(self) -> list[Any]:
        """The objects on the stack since the last mark."""
        items, self.stack = self.stack, self.marks.pop()
        return items

    def pop(self) -> None:
        if self.stack:
            self.stack.pop()
        else:
            self.since_mark()

    def pop_mark(self) -> None:
        self.since_mark()

    def dup(self) -> None:
        self.stack.append(self.stack[-1])

    def memoize(self) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def binput(self) -> None:
        self.memo[self.take(1)[0]] = self.stack[-1]

    def long_binput(self) -> None:
        self.memo[self.take_number(4)] = self.stack[-1]

    def get(self, key: int) -> None:
        if key not in self.memo:
            raise UnsafeFile("load: the file refers to something it does not have; it is damaged")
        self.stack.append(self.memo[key])

    def binget(self) -> None:
        self.get(self.take(1)[0])

    def long_binget(self) -> None:
        self.get(self.take_number(4))

    # ---- plain values ----

    def none(self) -> None:
        self.stack.append(None)

    def true(self) -> None:
        self.stack.append(True)

    def false(self) -> None:
        self.stack.append(False)

    def number(self) -> None:
        self.stack.append(int.from_bytes(self.take(4), "little", signed=True))

    def number_byte(self) -> None:
        self.stack.append(self.take(1)[0])

    def number_short(self) -> None:
        self.stack.append(self.take_number(2))

    def long1(self) -> None:
        self.stack.append(int.from_bytes(self.take(self.take(1)[0]), "little", signed=True))

    def long4(self) -> None:
        self.stack.append(int.from_bytes(self.take(self.take_number(4)), "little", signed=True))

    def binfloat(self) -> None:
        self.stack.append(struct.unpack(">d", self.take(8))[0])

    def put_text(self, count: int) -> None:
        self.stack.append(self.text(self.take(count), "utf-8", "surrogatepass"))

    def short_binunicode(self) -> None:
        self.put_text(self.take(1)[0])

    def binunicode(self) -> None:
        self.put_text(self.take_number(4))

    def binunicode8(self) -> None:
        self.put_text(self.take_number(8))

    def short_binbytes(self) -> None:
        self.stack.append(self.take(self.take(1)[0]))

    def binbytes(self) -> None:
        self.stack.append(self.take(self.take_number(4)))

    def binbytes8(self) -> None:
        self.stack.append(self.take(self.take_number(8)))

    def bytearray8(self) -> None:
        self.stack.append(bytearray(self.take(self.take_number(8))))

    def put_string(self, count: int) -> None:
        """Python 2's str, which was bytes."""
        raw = self.take(count)
        self.stack.append(
            raw if self.encoding == "bytes" else self.text(raw, self.encoding, self.errors)
        )

    def short_binstring(self) -> None:
        self.put_string(self.take(1)[0])

    def binstring(self) -> None:
        self.put_string(self.take_number(4))

    # ---- containers ----

    def empty_tuple(self) -> None:
        self.stack.append(())

    def single(self) -> None:
        self.stack[-1] = (self.stack[-1],)

    def pair(self) -> None:
        last = self.stack.pop()
        self.stack[-1] = (self.stack[-1], last)

    def triple(self) -> None:
        last, middle = self.stack.pop(), self.stack.pop()
        self.stack[-1] = (self.stack[-1], middle, last)

    def tuple_(self) -> None:
        items = self.since_mark()
        self.stack.append(tuple(items))

    def empty_list(self) -> None:
        self.stack.append([])

    def list_(self) -> None:
        items = self.since_mark()
        self.stack.append(items)

    def append(self) -> None:
        item = self.stack.pop()
        self.extend([item])

    def appends(self) -> None:
        self.extend(self.since_mark())

    def extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if target.__class__ is list:
            target.extend(items)
        elif is_safe(target.__class__) and not isinstance(target, Value):
            target.extend(items) if hasattr(target, "extend") else [
                target.append(item) for item in items
            ]
        else:
            raise UnsafeFile(f"load: the file appends to a {type(target).__name__}")

    def empty_dict(self) -> None:
        self.stack.append({})

    def dict_(self) -> None:
        items = self.since_mark()
        self.stack.append({})
        self.set_all(items)

    def setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self.set_all([key, value])

    def setitems(self) -> None:
        self.set_all(self.since_mark())

    def set_all(self, items: list[Any]) -> None:
        target = self.stack[-1]
        kind = target.__class__
        plain = kind in _DICTS
        if len(items) % 2 or (not plain and (not is_safe(kind) or isinstance(target, Value))):
            raise UnsafeFile(
                f"load: the file sets items of a {type(target).__name__}, or a key without a value"
            )
        for key, value in zip(items[::2], items[1::2], strict=True):
            self.enter(target, key)
            if kind is collections.defaultdict:
                self.nest(target, value)
            if plain:
                dict.__setitem__(target, key, value) if kind is dict else kind.__setitem__(
                    target, key, value
                )
            else:
                target[key] = value

    def empty_set(self) -> None:
        self.stack.append(set())

    def additems(self) -> None:
        items, target = self.since_mark(), self.stack[-1]
        if target.__class__ is not set:
            raise UnsafeFile(f"load: the file adds elements to a {type(target).__name__}")
        for item in items:
            self.enter(target, item)
            target.add(item)

    def frozenset_(self) -> None:
        items = self.since_mark()
        made: set[Any] = set()
        for item in items:
            self.enter(made, item)
            made.add(item)
        self.stack.append(frozenset(made))

    # ---- defaultdicts ----

    def nest(self, target: Any, value: Any) -> None:
        """Note that a defaultdict goes into another, which must be complete by then."""
        if id(target) in self.defaults:
            raise UnsafeFile("load: the file fills a defaultdict that is in another one already")
        if value.__class__ is not collections.defaultdict or id(value) in self.defaults:
            return
        inside = [self.defaults[id(v)][1] for v in value.values() if id(v) in self.defaults]
        depth = 1 + max(inside, default=0)
        if depth > _DEFAULTS_DEPTH or value is target:
            raise UnsafeFile("load: the file has defaultdicts too deep inside each other")
        self.ledger.spend(len(value))
        self.defaults[id(value)] = (value, depth)

    # ---- objects by name ----

    def global_(self) -> None:
        module = self.take_line()
        self.stack.append(find(module, self.take_line()))

    def stack_global(self) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        self.stack.append(find(module, name))

    def reduce(self) -> None:
        args = self.stack.pop()
        function = self.stack[-1]
        self.stack[-1] = (
            self.trusted(lambda: function(*args))
            if is_safe(function)
            else self.maker.make(function, args)
        )

    def newobj(self) -> None:
        args = self.stack.pop()
        kind = self.stack[-1]
        if is_safe(kind):
            self.stack[-1] = self.trusted(lambda: kind.__new__(kind, *args))
        else:
            self.stack[-1] = self.maker.make(kind, args)

    def newobj_ex(self) -> None:
        named, args = self.stack.pop(), self.stack.pop()
        kind = self.stack[-1]
        if not is_safe(kind):
            raise UnsafeFile(
                "load: the file makes an object with named arguments, which no constructor here "
                "takes"
            )
        self.stack[-1] = self.trusted(lambda: kind.__new__(kind, *args, **named))

    def build(self) -> None:
        state, thing = self.stack.pop(), self.stack[-1]
        self.ledger.spend(_entries(state))
        if is_of_safe_class(thing) and not isinstance(thing, Value):
            self.trusted(lambda: attach(thing, state))
        else:
            attach(thing, state)

    def trusted(self, act: Callable[[], Any]) -> Any:
        """Call a function of the program; any error it raises is an error of the file."""
        try:
            return act()
        except (UnsafeFile, MemoryError):
            raise
        except Exception as error:
            raise UnsafeFile(
                f"load: a class named with add_safe_globals refused the file's content: {error}"
            ) from error


OPCODES: dict[bytes, Callable[[Reader], None]] = {
    pickle.PROTO: Reader.proto,
    pickle.FRAME: Reader.frame,
    pickle.STOP: Reader.stop,
    pickle.BINPERSID: Reader.persistent,
    pickle.MARK: Reader.mark,
    pickle.POP: Reader.pop,
    pickle.POP_MARK: Reader.pop_mark,
    pickle.DUP: Reader.dup,
    pickle.MEMOIZE: Reader.memoize,
    pickle.BINPUT: Reader.binput,
    pickle.LONG_BINPUT: Reader.long_binput,
    pickle.BINGET: Reader.binget,
    pickle.LONG_BINGET: Reader.long_binget,
    pickle.NONE: Reader.none,
    pickle.NEWTRUE: Reader.true,
    pickle.NEWFALSE: Reader.false,
    pickle.BININT: Reader.number,
    pickle.BININT1: Reader.number_byte,
    pickle.BININT2: Reader.number_short,
    pickle.LONG1: Reader.long1,
    pickle.LONG4: Reader.long4,
    pickle.BINFLOAT: Reader.binfloat,
    pickle.SHORT_BINUNICODE: Reader.short_binunicode,
    pickle.BINUNICODE: Reader.binunicode,
    pickle.BINUNICODE8: Reader.binunicode8,
    pickle.SHORT_BINBYTES: Reader.short_binbytes,
    pickle.BINBYTES: Reader.binbytes,
    pickle.BINBYTES8: Reader.binbytes8,
    pickle.BYTEARRAY8: Reader.bytearray8,
    pickle.SHORT_BINSTRING: Reader.short_binstring,
    pickle.BINSTRING: Reader.binstring,
    pickle.EMPTY_TUPLE: Reader.empty_tuple,
    pickle.TUPLE1: Reader.single,
    pickle.TUPLE2: Reader.pair,
    pickle.TUPLE3: Reader.triple,
    pickle.TUPLE: Reader.tuple_,
    pickle.EMPTY_LIST: Reader.empty_list,
    pickle.LIST: Reader.list_,
    pickle.APPEND: Reader.append,
    pickle.APPENDS: Reader.appends,
    pickle.EMPTY_DICT: Reader.empty_dict,
    pickle.DICT: Reader.dict_,
    pickle.SETITEM: Reader.setitem,
    pickle.SETITEMS: Reader.setitems,
    pickle.EMPTY_SET: Reader.empty_set,
    pickle.ADDITEMS: Reader.additems,
    pickle.FROZENSET: Reader.frozenset_,
    pickle.GLOBAL: Reader.global_,
    pickle.STACK_GLOBAL: Reader.stack_global,
    pickle.REDUCE: Reader.reduce,
    pickle.NEWOBJ: Reader.newobj,
    pickle.NEWOBJ_EX: Reader.newobj_ex,
    pickle.BUILD: Reader.build,
}


# ---- the file ----


def foreign(what: str) -> str:
    return f"load: this is {what} of PyTorch in a stream that cannot seek; read it from a file"


def _as_bytes(data: Any) -> bytes:
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise TypeError(
            "load: a file opened for bytes is needed (mode 'rb'), its read() gave "
            f"{type(data).__name__}"
        )
    return bytes(data)


def _bytes_left(file: Any) -> int | None:
    """The number of bytes left in a file, where it is known for certain."""
    if type(file) is io.BytesIO:
        return max(0, len(file.getbuffer()) - file.tell())
    raw = file.raw if type(file) in (io.BufferedReader, io.BufferedRandom) else file
    if type(raw) is not io.FileIO or not raw.seekable():
        return None
    size = os.fstat(raw.fileno()).st_size
    # The system's special files report size 0.
    return max(0, size - file.tell()) if size else None


def _is_own(error: BaseException) -> bool:
    """Whether an error was raised in this module."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_globals is globals()


def _entries(state: Any) -> int:
    """The number of entries in an object's state: a file may use one state for many objects."""
    parts = state if state.__class__ is tuple and len(state) == 2 else (state,)
    return sum(len(part) for part in parts if isinstance(part, dict))


# ---- the result ----


def _children(thing: Any) -> Iterator[Any]:
    """The objects inside a container or attached to a tensor."""
    kind = thing.__class__
    if kind is list or kind is tuple:
        yield from thing
        return
    if kind in _DICTS:
        # `thing.values` may be a user's attribute.
        yield from dict.values(thing)
    yield from getattr(thing, "__dict__", {}).values()


def check_depth(result: Any) -> None:
    """Refuse nesting deeper than DEPTH; an object that contains itself counts once."""
    heights: dict[int, int] = {id(result): 0}  # 0 while it is on the path
    path: list[list[Any]] = [[id(result), _children(result), 1]]
    while path:
        top = path[-1]
        for part in top[1]:
            kind = part.__class__
            if (
                kind is not list
                and kind is not tuple
                and kind not in _DICTS
                and not isinstance(part, Value)
            ):
                continue
            height = heights.get(id(part))
            if height is None:
                heights[id(part)] = 0
                path.append([id(part), _children(part), 1])
                break
            top[2] = max(top[2], height + 1)
        else:
            path.pop()
            heights[top[0]] = top[2]
            if path:
                path[-1][2] = max(path[-1][2], top[2] + 1)
        if len(path) + (top[2] if path and path[-1] is not top else 0) > DEPTH + 1:
            raise UnsafeFile(f"load: the file nests containers more than {DEPTH} deep")
