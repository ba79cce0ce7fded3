"""Random calls of every public function: each case is one call, made from its seed.

A case takes a function and arguments that the catalog calls it with, changes some of them
(`drawing.py`), and calls it; functions without a row get arguments by the names of their
parameters. Rules for every call:

1. It returns or refuses (Note [Finds] in `tests/fuzz/__init__.py`); its results can be read.
2. Operands are unchanged, except those that the call writes to; after a refusal, all of them.
3. When everything is dropped, as many bytes are in use as before.
4. Its bits do not depend on the content of fresh memory: some cases run twice, with fresh memory
   filled in two ways.
5. Where a Python with PyTorch is named (`--torch`), its results are compared; see `peer.py`.
"""

from __future__ import annotations

import gc
import inspect
import os
import random
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

import rushlight
from rushlight import interop
from rushlight.core.dtypes import DType
from rushlight.devices.shared.registry import pool_of
from rushlight.ops.random.random import default_generator
from rushlight.ops.registry import REGISTRY
from tests.catalog.row import Row, Sample
from tests.catalog.rows import ROWS
from tests.catalog.run import samples_of
from tests.fuzz import Find, is_refusal
from tests.fuzz.drawing import DTYPES, Draw, Operand, text_of
from tests.fuzz.peer import PLAIN, Peer, Unsaid, differences

NAMESPACES = {
    "rushlight": rushlight,
    "nn.functional": rushlight.nn.functional,
    "linalg": rushlight.linalg,
    "fft": rushlight.fft,
    "special": rushlight.special,
    "sparse": rushlight.sparse,
    "signal.windows": rushlight.signal.windows,
    "masked": rushlight.masked,
    "nn.init": rushlight.nn.init,
    "Tensor": rushlight.Tensor,
}


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


OPERATORS = words("""
    __add__ __sub__ __mul__ __truediv__ __floordiv__ __mod__ __pow__ __matmul__ __and__ __or__
    __xor__ __lshift__ __rshift__ __radd__ __rsub__ __rmul__ __rtruediv__ __rfloordiv__ __rmod__
    __rpow__ __rmatmul__ __rand__ __ror__ __rxor__ __rlshift__ __rrshift__ __iadd__ __isub__
    __imul__ __itruediv__ __ifloordiv__ __imod__ __ipow__ __iand__ __ior__ __ixor__ __ilshift__
    __irshift__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __neg__ __abs__ __invert__ __pos__ __len__
    __bool__ __int__ __float__ __index__ __complex__ __contains__ __reversed__ __repr__ __copy__
    __deepcopy__ __array__ __getitem__ __setitem__
""")
# Not calls on tensors: settings of the process, files, other processes and devices, hooks.
LEFT_OUT = words("""
    load save from_file share_memory_ set_num_threads set_num_interop_threads set_printoptions
    set_rng_state seed cuda manual_seed get_rng_state initial_seed register_hook
    register_post_accumulate_grad_hook record_stream vmap use_deterministic_algorithms
    set_default_device set_default_dtype set_default_tensor_type install
    set_deterministic_debug_mode set_float32_matmul_precision set_grad_enabled enable_grad no_grad
    data_ptr inference_mode explain autocast implied_dim get_default wrap_dim real_type fans storage
    untyped_storage typename storage_type type from_dlpack new retain_grad requires_grad_ detach_
    is_set_to pin_memory
""")
# Results whose elements are uninitialised.
UNSET = words(
    "empty empty_like empty_strided new_empty new_empty_strided empty_permuted resize_ resize_as_"
)
# Functions that write into operands though their names do not say so.
WRITING = words("""
    batch_norm instance_norm embedding embedding_bag native_batch_norm
""")


@dataclass
class Target:
    """One public function: where it is, its parameters, and the catalog's rows of calls."""

    path: str
    name: str
    function: Callable[..., Any]
    rows: list[Row]
    parameters: list[inspect.Parameter]
    own: tuple[str, ...]
    writes: bool = False


@dataclass
class Call:
    """One call before it is made."""

    target: Target
    args: list[Any]
    named: dict[str, Any]
    backward: bool = False
    operands: list[Operand] = field(default_factory=list)

    def text(self) -> str:
        shown = [text_of(a) for a in self.args]
        named = [f"{k}={text_of(v)}" for k, v in self.named.items()]
        if self.target.path == "Tensor" and shown:
            call = f"{shown[0]}.{self.target.name}({', '.join(shown[1:] + named)})"
        else:
            where = "" if self.target.path == "rushlight" else f"{self.target.path}."
            call = f"rushlight.{where}{self.target.name}({', '.join(shown + named)})"
        return call + ("  # and backward" if self.backward else "")


# ---- which functions there are ----


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return []


def _rows(path: str, name: str) -> list[Row]:
    plain = name.strip("_") if name.startswith("__") else name.rstrip("_")
    prefix = {"linalg": "linalg_", "fft": "fft_", "special": "special_"}.get(path, "")
    by_name = _rows_by_name()
    for known in (prefix + plain, plain, plain[1:] if name.startswith("__") else plain):
        if known in by_name:
            return by_name[known]
    return []


@cache
def _rows_by_name() -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    for row in ROWS:
        found.setdefault(row.name, []).append(row)
    for operator, name in {
        "truediv": "div",
        "floordiv": "floor_divide",
        "mod": "remainder",
        "invert": "bitwise_not",
    }.items():
        found[operator] = found[name]
    return found


@cache
def targets() -> list[Target]:
    """Every public function, in an order that does not change from process to process."""
    found = []
    seen: set[Any] = set()
    for path, namespace in NAMESPACES.items():
        for name in sorted(dir(namespace)):
            function = getattr(namespace, name)
            if name.startswith("_") and name not in OPERATORS:
                continue
            if inspect.isclass(function) or not callable(function) or name in LEFT_OUT:
                continue
            if path != "Tensor" and function in seen:
                continue
            if path in ("masked", "nn.init") and function.__module__ != namespace.__name__:
                continue  # what it imports
            if path == "nn.functional" and hasattr(rushlight, name) and name in REGISTRY:
                continue
            seen.add(function)
            rows = _rows(path, name)
            # Few types for each function, others for another: each is a kernel that must be built
            # once.
            turn = zlib.crc32(name.encode())
            own = ("float32",) * 5 + ("int64", "int64", DTYPES[2 + turn % 9])
            writes = (
                name in WRITING
                or path == "nn.init"
                or (name.endswith("_") and not name.startswith("__"))
            )
            writes = (
                writes or name == "__setitem__" or (name.startswith("__i") and name in OPERATORS)
            )
            parameters = _parameters(function)
            writes = writes or any(p.name == "inplace" for p in parameters)
            if REGISTRY.get(name) is not None and len(parameters) <= 2:
                parameters = _parameters(REGISTRY[name].function) or parameters
            writes = writes or any(p.name == "inplace" for p in parameters)
            writes = writes and name not in ("__index__", "__int__", "__invert__")
            found.append(Target(path, name, function, rows, parameters, own, writes))
    return found


# ---- making a call ----


@cache
def _samples(number: int, dtype: DType) -> list[Sample]:
    return samples_of(ROWS[number], dtype)


@cache
def _number_of(row_id: int) -> int:
    return next(n for n, row in enumerate(ROWS) if id(row) == row_id)


def _operands_of(value: Any, dtype: str) -> Any:
    """Arrays of a catalog sample as operands."""
    if isinstance(value, np.ndarray):
        kept = dtype if value.dtype == np.float64 else str(value.dtype)
        if kept not in DTYPES and not hasattr(rushlight, kept):
            return value
        with np.errstate(all="ignore"):
            if kept in ("float16", "bfloat16"):
                return Operand(value.astype("float32"), kept)
            return Operand(value.astype(kept), kept)
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(_operands_of(v, dtype) for v in value)
    return value


def make_call(seed: int) -> Call:
    source = random.Random(seed)
    target = targets()[int(source.random() * len(targets()))]
    draw = Draw(source, rushlight, target.own)
    if target.rows and draw.odds(0.85):
        call = _from_sample(target, draw)
    else:
        call = _from_names(target, draw)
    changes = draw.one((0, 1, 1, 1, 1, 2, 2, 3))
    for _ in range(changes):
        _change(call, draw)
    first = 1 if target.path == "Tensor" else 0
    if draw.odds(0.04) and len(call.args) > first:
        del call.args[draw.random.randrange(first, len(call.args))]
    if draw.odds(0.1) and (
        hasattr(target.function, "takes_out") or any(p.name == "out" for p in target.parameters)
    ):
        several = draw.random.randrange(2, 4) if draw.odds(0.15) else 0
        call.named["out"] = (
            tuple(draw.tensor() for _ in range(several)) if several else draw.tensor()
        )
    if draw.odds(0.15):
        call.backward = True
        for operand in _inside([call.args, call.named]):
            operand.grad = operand.dtype.startswith(("float", "bfloat", "complex")) and draw.odds(
                0.8
            )
    return call


def _from_sample(target: Target, draw: Draw) -> Call:
    row = draw.one(target.rows)
    name = draw.dtype()
    dtype = next((d for d in row.dtypes if d.name == name), row.dtypes[0])
    samples = _samples(_number_of(id(row)), dtype)
    if not samples:
        return _from_names(target, draw)
    sample = draw.one(samples)
    args = [_operands_of(a, name) for a in sample.args]
    named = {k: _operands_of(v, name) for k, v in sample.named.items()}
    if target.path == "Tensor" and not (args and isinstance(args[0], Operand)):
        args.insert(0, draw.tensor())
    return Call(target, args, named)


def _from_names(target: Target, draw: Draw) -> Call:
    args: list[Any] = []
    named: dict[str, Any] = {}
    for place, parameter in enumerate(target.parameters):
        note = str(parameter.annotation)
        if place == 0 and target.path == "Tensor":
            args.append(draw.tensor())
        elif target.name in ("__getitem__", "__setitem__") and place == 1:
            args.append(draw.index(_rank(args[0])))
        elif parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            args.extend(draw.anything() for _ in range(draw.random.randrange(3)))
        elif (
            parameter.kind is inspect.Parameter.VAR_KEYWORD
            or parameter.name == "_"
            or _left(parameter, draw)
        ):
            continue
        elif parameter.kind is inspect.Parameter.KEYWORD_ONLY or len(args) < place:
            named[parameter.name] = draw.for_parameter(parameter.name, note)
        else:
            args.append(draw.for_parameter(parameter.name, note))
    return Call(target, args, named)


def _left(parameter: inspect.Parameter, draw: Draw) -> bool:
    """Whether the parameter keeps its default this time."""
    return parameter.default is not inspect.Parameter.empty and draw.odds(0.5)


def _rank(value: Any) -> int:
    return value.array.ndim if isinstance(value, Operand) else 0


def _change(call: Call, draw: Draw) -> None:
    """One argument becomes another, or one more is given."""
    places: list[Any] = [*range(len(call.args)), *call.named]
    if places and draw.odds(0.85):
        place = draw.one(places)
        where: Any = call.args if isinstance(place, int) else call.named
        if call.target.path == "Tensor" and place == 0 and isinstance(where, list):
            where[0] = draw.laid_out(where[0]) if draw.odds(0.6) else draw.tensor()
        elif call.target.name in ("__getitem__", "__setitem__") and place == 1:
            where[1] = draw.index(_rank(where[0]))
        else:
            where[place] = draw.changed(where[place])
        return
    left = [p for p in call.target.parameters[len(call.args) :] if p.name not in call.named]
    left = [
        p
        for p in left
        if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        and p.name not in ("_", "out", "self")
    ]
    if left:
        parameter = draw.one(left)
        call.named[parameter.name] = draw.for_parameter(parameter.name, str(parameter.annotation))


def _inside(value: Any) -> Iterator[Operand]:
    if isinstance(value, Operand):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _inside(item)
    elif type(value) in (list, tuple):
        for item in value:
            yield from _inside(item)


# ---- running a call ----


class Unbuilt(Exception):
    """An operand that could not be made: no case."""


def _built(value: Any, made: list[Operand]) -> Any:
    if isinstance(value, Operand):
        made.append(value)
        return value.build(rushlight)
    if type(value) in (list, tuple):
        return type(value)([_built(item, made) for item in value])
    return value


def _tensors(value: Any, depth: int = 0) -> Iterator[Any]:
    if isinstance(value, rushlight.Tensor):
        yield value
    elif isinstance(value, (list, tuple)) and depth < 3:
        for item in value[:16]:
            yield from _tensors(item, depth + 1)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item, depth + 1)


def _bits(tensor: Any) -> bytes:
    """All elements, in order, as they are stored."""
    return interop.to_bytes(tensor.detach())


def _read(out: Any) -> list[Any]:
    """Every tensor of a result: type, shape, elements. Reading them is a part of the case."""
    read: list[Any] = []
    for tensor in _tensors(out):
        if tensor.is_sparse or getattr(tensor, "layout", None) is rushlight.sparse_csr:
            tensor = tensor.to_dense()
        if any(n < 0 for n in tensor.shape):
            raise Find(f"a result of shape {tuple(tensor.shape)}")
        if tensor.numel() <= 1 << 20:
            read.append((tensor.dtype.name, tuple(tensor.shape), _bits(tensor)))
    if not read:
        read.append(
            repr(out)[:200]
            if isinstance(out, (int, float, bool, complex, str))
            else type(out).__name__
        )
    return read


def outcome(call: Call) -> tuple[list[Any], str]:
    """The call's results, bit by bit, or its refusal. Raises Find for violations of the rules."""
    made: list[Operand] = []
    named = {k: _built(v, made) for k, v in call.named.items()}
    args = [_built(a, made) for a in call.args]
    before = [_bits(operand.base) for operand in made]
    shapes = [tuple(operand.base.shape) for operand in made]
    rushlight.manual_seed(11)
    refusal = ""
    read: list[Any] = []
    try:
        out = call.target.function(*args, **named)
        if call.target.name not in UNSET:
            read = _read(out)
        if call.backward:
            read += _backward(out, [*args, *named.values()])
        out = None
    except Exception as raised:
        if not is_refusal(raised):
            raise Find(f"{type(raised).__name__}: {raised}") from raised
        refusal = f"{type(raised).__name__}: {raised}"
    names = [p.name for p in call.target.parameters]
    by_place = "out" in names and len(call.args) > names.index("out")
    written = call.target.writes or "out" in call.named or by_place
    if (refusal and not call.backward) or not written:
        for operand, bits, shape in zip(made, before, shapes, strict=True):
            base = operand.base
            if tuple(base.shape) != shape or _bits(base) != bits:
                why = "the call refused" if refusal else "the call writes nothing"
                raise Find(
                    f"an operand was changed although {why}: {operand.text()} is now "
                    f"{base.tolist()!r:.200}"
                )
    return read, refusal


def _backward(out: Any, args: list[Any]) -> list[Any]:
    roots = [
        t
        for t in _tensors(out)
        if t.requires_grad and (t.dtype.is_floating_point or t.dtype.is_complex)
    ]
    roots = [t for t in roots if t.numel() <= 1 << 20]
    if not roots:
        return []
    total = sum((t.abs() if t.dtype.is_complex else t).sum().to(rushlight.float32) for t in roots)
    total.backward()
    grads = [leaf.grad for leaf in _tensors(args) if leaf.grad is not None]
    return _read(grads) if grads else []


TWICE = 8  # one case in so many runs twice
_counts: Counter[str] = Counter()


def counts() -> dict[str, int]:
    """The counts since the last request."""
    counted = dict(_counts)
    _counts.clear()
    return counted


# ---- against PyTorch ----

NOTES: list[str] = []
_peer = Peer(os.environ["RUSHLIGHT_FUZZ_TORCH"]) if os.environ.get("RUSHLIGHT_FUZZ_TORCH") else None


def notes() -> list[str]:
    """Differences from PyTorch since the last request."""
    noted, NOTES[:] = NOTES[:], []
    return noted


def _said(value: Any) -> tuple[str, Any]:
    """An argument as a plain tuple that PyTorch's side understands."""
    if isinstance(value, Operand):
        return "tensor", (value.array, value.dtype, value.view, value.grad)
    if isinstance(value, DType):
        return "dtype", value.name
    if type(value) in (list, tuple):
        return type(value).__name__, [_said(v) for v in value]
    if type(value) not in PLAIN and not isinstance(value, np.generic):
        raise Unsaid
    return "value", value


def _compare(call: Call, read: list[Any], refusal: str) -> None:
    """Record where PyTorch gives something else, or where only one of the two refuses."""
    assert _peer is not None
    try:
        args, named = [_said(a) for a in call.args], {k: _said(v) for k, v in call.named.items()}
        how, theirs = _peer.ask(call.target.path, call.target.name, args, named, call.target.writes)
    except Unsaid:
        return
    if how == "missing" or call.backward:
        return
    _counts["compared"] += 1
    if how == "error":
        kind, what = ("", "") if refusal else ("takes", f"PyTorch refuses: {theirs}")
    elif refusal:
        kind, what = "refuses", f"PyTorch takes it; here {refusal}"
    else:
        ours = [
            np.frombuffer(r[2], _kind(r[0])).reshape(r[1]) for r in read if isinstance(r, tuple)
        ]
        ours = [_wide(a) if r[0] == "bfloat16" else a for a, r in zip(ours, read, strict=False)]
        what = differences(ours, theirs)
        kind = "differs" if what else ""
    if kind:
        _counts[kind] += 1
        NOTES.append(f"{kind}: {' '.join(what.split())[:300]}\n    {call.text()[:1500]}")


def _kind(name: str) -> str:
    return "uint16" if name == "bfloat16" else name


def _wide(words: np.ndarray) -> np.ndarray:
    return (words.astype(np.uint32) << 16).view(np.float32)


# ---- cases ----


def _check_again(call: Call, read: list[Any], refusal: str) -> None:
    """Run it again with other bytes in fresh memory: the results must not depend on them."""
    device: Any = pool_of("cpu").device
    if not hasattr(device, "poison"):
        return
    before, device.poison = device.poison, device.poison ^ 0x5F
    try:
        again = outcome(call)
    finally:
        device.poison = before
    if again[0] != read or again[1].split(":")[0] != refusal.split(":")[0]:
        differ = next(
            (pair for pair in zip(read, again[0], strict=False) if pair[0] != pair[1]), None
        )
        raise Find(
            f"a result depends on what lay in fresh memory: {differ or (refusal, again[1])!r:.300}"
        )


def case(seed: int) -> None:
    call = make_call(seed)
    before = rushlight.memory.allocated()
    rushlight.manual_seed(11)
    position = default_generator.position
    try:
        read, refusal = outcome(call)
        if seed % TWICE == 0:
            _check_again(call, read, refusal)
        if (
            _peer is not None
            and position == default_generator.position
            and call.target.name not in UNSET
        ):
            _compare(call, read, refusal)
    finally:
        for operand in _inside([call.args, call.named]):
            operand.base = None
        call.args.clear()  # a call may have put results into them
        call.named.clear()
    _counts["refused" if refusal else "returned"] += 1
    after = rushlight.memory.allocated()
    # An error may hold its operands in a cycle; the youngest are collected at once.
    for generation in (
        0,
        1,
        2,
    ):
        if after == before:
            break
        gc.collect(generation)
        after = rushlight.memory.allocated()
    if after > before:
        raise Find(f"{after - before} bytes stay in use after the call")


def describe(seed: int) -> str:
    return make_call(seed).text()
