"""From IR text to machine code in this process: verify, optimise, emit, load."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import llvmlite
import llvmlite.binding as llvm

from rushlight.core.interrupts import Uninterrupted
from rushlight.devices.shared.cache import read_object, write_object

CACHE_VERSION = 2
LONG = 27_000  # characters above which combining instructions takes more time than it saves
# Characters above which a formula is emitted in half the time, as code a tenth to a half slower.
LONGEST = 45_000


@dataclass(frozen=True)
class Machine:
    """The processor that code is generated for."""

    target: llvm.TargetMachine
    brief: llvm.TargetMachine  # without instruction scheduling
    tuning: llvm.PipelineTuningOptions
    identity: str  # everything besides the text on which the object code depends


@cache
def machine() -> Machine:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    triple = llvm.get_process_triple()
    target, brief = (
        llvm.Target.from_triple(triple).create_target_machine(
            cpu=cpu, features=features, opt=level, reloc="pic", codemodel="small"
        )
        for level in (1, 0)
    )
    tuning = llvm.create_pipeline_tuning_options(speed_level=1)
    version = (
        f"{CACHE_VERSION} llvmlite {llvmlite.__version__} llvm {llvm.llvm_version_info} {triple}"
    )
    return Machine(target, brief, tuning, f"{version} {cpu} {features}")


def optimised(text: str, combine: bool | None = None) -> llvm.ModuleRef:
    """The module, verified (LLVM ends the process on invalid IR) and optimised."""
    host = machine()
    module = llvm.parse_assembly(text)
    module.verify()
    module.triple = host.target.triple
    module.data_layout = str(host.target.target_data)
    # The text is vectorised, unrolled and hoisted already; the standard pipeline takes 10 to 50 ms
    # for nothing.
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_simplify_cfg_pass()
    if len(text) < LONG if combine is None else combine:
        passes.add_instruction_combine_pass()
    passes.add_loop_rotate_pass()
    passes.run(module, llvm.create_pass_builder(host.target, host.tuning))
    return module


@cache
def emitters() -> str:
    """A digest of the sources that turn a kernel into text: part of an object's key."""
    home = Path(__file__).parents[2]
    found = hashlib.sha256()
    for folder in ("core", "scalar", "kernel", "emit", "devices/cpu"):
        for path in sorted((home / folder).rglob("*.py")):
            found.update(path.read_bytes())
    return found.hexdigest()


@dataclass(frozen=True)
class Source:
    """IR text that is written only if its object is not on disk.

    `key` covers all it is made from.
    """

    key: str
    text: Callable[[], str]
    combine: bool | None = (
        None  # whether to combine instructions; None decides by the length of the text
    )
    formula: bool = False  # a formula for every element and nothing else: rare ones are long


def object_code(source: Source) -> bytes:
    """Machine code for the source, from the disk cache where it is there."""
    key = hashlib.sha256(f"{machine().identity}\n{emitters()}\n{source.key}".encode()).hexdigest()
    found = read_object("cpu", key)
    if found is None:
        text = source.text()
        host = machine()
        target = host.brief if source.formula and len(text) >= LONGEST else host.target
        found = target.emit_object(optimised(text, source.combine))
        write_object("cpu", key, found)
    return found


def assembly(text: str) -> str:
    """The assembly text."""
    listing: str = machine().target.emit_assembly(optimised(text))
    return listing


def load(source: Source, *names: str) -> list[int]:
    """The addresses of functions and variables of the source, loaded as machine code.

    The code stays in memory until the process ends: worker threads may be in it. Ctrl-C is
    deferred: freeing a half-made engine would free the target too.
    """
    with Uninterrupted():
        return _load(source, names)


def _load(source: Source, names: Sequence[str]) -> list[int]:
    # What can fail comes before the engine.
    code = llvm.object_file.ObjectFileRef.from_data(object_code(source))
    # One block for all sections: LLVM's own manager may put them more than 2 GiB apart, where
    # relative addresses of 32 bits do not reach, and LLVM ends the process.
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine().target, use_lmm=True)
    engine.add_object_file(code)
    # Asking for an address finalises the object. `finalize_object` would compile the empty module
    # too: half a millisecond.
    found = [
        engine.get_global_value_address(name) or engine.get_function_address(name) for name in names
    ]
    engine.detach()
    assert all(found), f"{names} are at {found}"
    return found


def fill(table: int, pointers: list[int]) -> None:
    """Write addresses into a table of a loaded module."""
    for i, pointer in enumerate(pointers):
        ctypes.c_void_p.from_address(table + i * ctypes.sizeof(ctypes.c_void_p)).value = pointer
