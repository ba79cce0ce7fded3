"""The command `rushlight`: run PyTorch programs, check them, show devices and versions."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rushlight import compat, launch
from rushlight.compat import scan, shim, version as torch_version
from rushlight.compat.hook import CHOICES, is_choice
from rushlight.core import config
from rushlight.core.errors import DeviceUnavailable, RushlightError
from rushlight.devices.shared.registry import count_of, kind_of, names, numbered, pool_of
from rushlight.memory.budget import parse_bytes
from rushlight.version import __version__

_RUN = """\
Run a PyTorch program. Inside, `import torch` and every `torch.*` is Rushlight, also in child
processes; PyTorch need not be installed, and is not imported where it is.

  rushlight run train.py --epochs 3
  rushlight run --device webgpu --budget 2GiB train.py
  rushlight run -m package.module arguments
"""
_RUN_NOTES = """\
devices:
  auto    "cuda" is a CUDA card, else a WebGPU GPU; torch.cuda.is_available() is false without one
  cpu     torch.cuda.is_available() is false: programs take their way for the CPU
  cuda    "cuda" is the CUDA card; an error where there is none
  webgpu  "cuda" is the WebGPU adapter, also a software one
New tensors are made on the CPU unless the program says otherwise, as with PyTorch.

Options before script.py are rushlight's; all that follows its name is the script's, as with python.
A `--` before it ends the options. A script named `-` is read from the standard input.
"""
_CHECK = """\
List the names of torch that a script, a folder or an installed package uses and Rushlight lacks.
Nothing of it is run. The exit status is 1 where a name is missing or a file is no Python.
"""
_SHIM = """\
Put a small distribution named torch into this Python environment, or take it out again. It
satisfies pip's requirements of torch and makes `import torch` Rushlight, without `rushlight run`.
It refuses where PyTorch is installed.
"""


def _add_run(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command `run` with its options."""
    run = commands.add_parser(
        "run",
        help="run a PyTorch program unchanged",
        usage="rushlight run [options] script.py [args] | [options] -m package.module [args]",
        description=_RUN,
        epilog=_RUN_NOTES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.add_argument(
        "--device",
        type=_device,
        metavar="|".join(CHOICES),
        default="auto",
        help='what "cuda" means; webgpu:1 is the second adapter of `rushlight devices`',
    )
    run.add_argument(
        "--budget", metavar="2GiB", help="the most bytes on each device; cuda=6GiB,cpu=2GiB by name"
    )
    run.add_argument(
        "--report",
        metavar="out.html",
        help="write a page of the program's memory at its end (.html, .json, .txt or .pickle)",
    )
    run.add_argument(
        "--profile",
        metavar="trace.json",
        help="write a trace of every launch for Perfetto, and print tables by op and line",
    )
    run.add_argument(
        "--check",
        action="store_true",
        help="check every kernel's reads and writes against its memory, guard every block, and "
        "compare one launch in a hundred with another device's result",
    )
    run.add_argument("-m", dest="module", metavar="package.module", help="run a module")
    run.add_argument("program", nargs=argparse.REMAINDER, help="the script and its arguments")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="rushlight",
        description="Tensors and autograd with PyTorch's names, inside a byte budget.",
    )
    parser.add_argument("--version", action="version", version=f"rushlight {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    plain = argparse.RawDescriptionHelpFormatter
    _add_run(commands)
    check = commands.add_parser(
        "check",
        help="list the torch names that a program uses and Rushlight lacks",
        description=_CHECK,
        formatter_class=plain,
    )
    check.add_argument("path", help="a script, a folder, or the name of an installed package")
    check.add_argument("--all", action="store_true", help="list the names that exist, too")
    commands.add_parser("launch", help="run a program in several processes")
    shims = commands.add_parser(
        "torch-shim",
        help="a distribution named torch, for pip and for programs started without `run`",
        description=_SHIM,
        formatter_class=plain,
    )
    shims.add_argument("action", choices=("install", "remove"))
    commands.add_parser(
        "devices",
        help="list the devices",
        description="List the devices of Rushlight, and why one cannot be used.",
    )
    commands.add_parser(
        "info",
        help="versions, adapters, the cache folder",
        description="Print what a report of a fault should contain: versions, adapters, settings.",
    )
    return parser


# ---- run ----

_VALUED = ("--device", "--budget", "--report", "--profile", "-m")  # options with a value


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The options of `run`, and the program with its arguments."""
    own: list[str] = []
    rest = list(words)
    while rest and rest[0].startswith("-") and rest[0] not in ("--", "-"):
        own.append(rest.pop(0))
        if own[-1] in _VALUED and rest:
            own.append(rest.pop(0))
        if own[-2:-1] == ["-m"] or (own[-1].startswith("-m") and own[-1] != "-m"):
            return own, rest  # what follows the module is the module's
    return own, rest[1:] if rest[:1] == ["--"] else rest


def _program(
    parser: argparse.ArgumentParser, words: Sequence[str]
) -> tuple[list[str], dict[str, str]]:
    """The command that the words of `run` name, and its environment."""
    own, program = _split(words)
    given = parser.parse_args(["run", *own])
    if given.module is not None:
        command = ["-m", given.module, *program]
    elif program:
        command = list(program)
        if command[0] != "-" and not Path(command[0]).exists():
            parser.error(f"run: there is no file {command[0]!r}")
    else:
        parser.error("run: name a script, or -m and a module; `rushlight run --help` tells more")
    return [sys.executable, *command], _environment(parser, given)


def _environment(parser: argparse.ArgumentParser, given: argparse.Namespace) -> dict[str, str]:
    """The environment of the program: the hook of its children, and the options."""
    made = dict(os.environ)
    folder = str(Path(compat.__file__).parent / "child")
    made["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, made.get("PYTHONPATH")]))
    made["RUSHLIGHT_TORCH"] = given.device
    if given.budget is not None:
        for word in given.budget.split(","):
            name, _, size = word.rpartition("=")
            try:
                if name != "offload":
                    parse_bytes(size)
            except ValueError as error:
                parser.error(f"run: --budget {given.budget}: {error}")
        made["RUSHLIGHT_BUDGET"] = given.budget
    if given.report is not None:
        if Path(given.report).suffix not in (".html", ".htm", ".json", ".txt", ".pickle", ".pkl"):
            parser.error("run: --report: the file must end in .html, .json, .txt or .pickle")
        made["RUSHLIGHT_REPORT"] = _writable(parser, "--report", given.report)
    if given.profile is not None:
        if not given.profile.endswith((".json", ".json.gz")):
            parser.error("run: --profile: the file must end in .json or .json.gz")
        made["RUSHLIGHT_PROFILE"] = _writable(parser, "--profile", given.profile)
    if given.check:
        made["RUSHLIGHT_CHECK"] = "1"
        made.setdefault("RUSHLIGHT_SHADOW", "0.01")
    return made


def _writable(parser: argparse.ArgumentParser, option: str, path: str) -> str:
    """The whole path of a file that is written when the program ends: checked before it begins."""
    whole = os.path.abspath(path)
    if not os.path.isdir(os.path.dirname(whole)):
        parser.error(f"run: {option} {path}: there is no folder {os.path.dirname(whole)}")
    if os.path.isdir(whole):
        parser.error(f"run: {option} {path}: this is a folder")
    if not os.access(whole if os.path.exists(whole) else os.path.dirname(whole), os.W_OK):
        parser.error(f"run: {option} {path}: the file cannot be written")
    return whole


def _start(command: list[str], environment: dict[str, str]) -> int:
    """Run Python in the place of this process; where the system cannot do that, below it."""
    sys.stdout.flush()
    if os.name == "posix":
        os.execve(command[0], command, environment)
    return subprocess.run(command, env=environment, check=False).returncode


# ---- check, devices, info ----


def _check(parser: argparse.ArgumentParser, path: str, all_names: bool) -> int:
    files = scan.files_of(path)
    if not files:
        parser.error(f"check: {path!r} is no file, no folder and no installed package")
    found, unread = scan.names_in(files)
    missing = [use for use in found if use.nearest is not None]
    if all_names:
        for name in sorted({use.name for use in found if use.nearest is None}):
            print(f"  {name}")
    for use in missing:
        near = f"; the nearest is {use.nearest}" if use.nearest else ""
        guard = " (in a try or behind a test)" if use.guarded else ""
        print(f"{use.path}:{use.line}: {use.name} is missing{near}{guard}")
    count, lacking = len({use.name for use in found}), len({use.name for use in missing})
    for fault in unread:
        print(f"{fault.path}:{fault.line}: not read: {fault.reason}")
    read = f", {len(unread)} could not be read" if unread else ""
    print(f"{len(files)} files use {count} names of torch; {lacking} are missing{read}")
    return int(bool(missing or unread))


def _shim(parser: argparse.ArgumentParser, action: str) -> int:
    try:
        if action == "remove":
            print("torch-shim: removed" if shim.remove() else "torch-shim: there is none here")
        else:
            print(f"torch-shim: torch {torch_version.__version__} at {shim.install()}")
    except RushlightError as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"torch-shim: this environment cannot be written: {error}")
    return 0


def _device(word: str) -> str:
    """A device of `run`, as argparse takes it."""
    if not is_choice(word):
        raise argparse.ArgumentTypeError(f"invalid choice: {word!r} ({', '.join(CHOICES)})")
    return word


def _devices() -> None:
    """A line for each device that users may choose."""
    for name in names():
        if not kind_of(name).public:
            continue
        for number in range(count_of(name) or 1):
            own = numbered(name, number)
            try:
                limits = pool_of(own).device.limits
                software = ", in software" if limits.software else ""
                print(f"{own:<9} {limits.description}{software}")
            except DeviceUnavailable as error:
                print(f"{own:<9} not available: {error}")


def _tell() -> None:
    """Versions, settings and devices."""
    print(f"rushlight {__version__}, names of PyTorch {torch_version.FOLLOWED}")
    print(f"python    {platform.python_version()}, {platform.platform()}")
    for name in ("numpy", "llvmlite", "ml_dtypes", "wgpu", "cupy-cuda13x", "cupy-cuda12x"):
        try:
            print(f"{name:<9} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    print(f"cache     {config.cache_folder() or 'off'}")
    print(f"threads   {config.thread_count()}")
    _devices()


def main(words: Sequence[str] | None = None) -> int:
    """Run the command; the result is the exit status."""
    words = list(sys.argv[1:] if words is None else words)
    parser = _parser()
    if words[:1] == ["run"]:
        return _start(*_program(parser, words[1:]))
    if words[:1] == ["launch"]:
        given, rest = launch.parse(words[1:])
        return launch.start(given, *_program(parser, rest))
    given = parser.parse_args(words)
    if given.command == "check":
        return _check(parser, given.path, given.all)
    if given.command == "torch-shim":
        return _shim(parser, given.action)
    if given.command == "devices":
        _devices()
    else:
        _tell()
    return 0
