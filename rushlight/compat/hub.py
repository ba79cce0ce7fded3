"""PyTorch's `torch.hub`: entry points of local folders, and files in its cache. No network."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlparse as urlparse

from tqdm import tqdm as tqdm

from rushlight.core.errors import RushlightError
from rushlight.io import load as _load

DEFAULT_CACHE_DIR = "~/.cache"
ENV_TORCH_HOME, ENV_XDG_CACHE_HOME = "TORCH_HOME", "XDG_CACHE_HOME"
MODULE_HUBCONF, VAR_DEPENDENCY = "hubconf.py", "dependencies"
READ_DATA_CHUNK = 128 * 1024
HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
_CHOSEN: list[str] = []


def _get_torch_home() -> str:
    base = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(base, "torch")))


def get_dir() -> str:
    """The folder of the cache: that of `set_dir`, else $TORCH_HOME/hub, else ~/.cache/torch/hub."""
    return _CHOSEN[-1] if _CHOSEN else os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Set the folder of the cache.

    Args:
        d (str): A folder.
    """
    _CHOSEN[:] = [os.path.expanduser(os.fspath(d))]


def _refuse(what: str, path: str) -> Any:
    raise RushlightError(
        f"hub: {what} is not in the cache, and nothing is downloaded; put the file at {path}"
    )


def download_url_to_file(
    url: str, dst: str, hash_prefix: str | None = None, progress: bool = True
) -> None:
    """Refuses: nothing is downloaded."""
    _refuse(url, os.fspath(dst))


def load_state_dict_from_url(
    url: str,
    model_dir: str | None = None,
    map_location: Any = None,
    progress: bool = True,
    check_hash: bool = False,
    file_name: str | None = None,
    weights_only: bool = False,
) -> dict[str, Any]:
    """The state of a file in the cache that has the name of the address.

    Args:
        url (str): The address; only its last part is used.
        model_dir (str): The folder; None for checkpoints/ in the cache.
        map_location: As of `load`.
        progress (bool): Has no effect.
        check_hash (bool): Has no effect: the file is on this machine.
        file_name (str): The name of the file; None for that of the address.
        weights_only (bool): Has no effect: files are always parsed, and run nothing.
    """
    folder = model_dir or os.path.join(get_dir(), "checkpoints")
    path = os.path.join(folder, file_name or os.path.basename(urlparse(url).path))
    if not os.path.exists(path):
        _refuse(url, path)
    state: dict[str, Any] = _load(path, map_location=map_location)
    return state


def _folder_of(repo_or_dir: str, source: str) -> Path:
    if source == "local":
        return Path(repo_or_dir)
    owner, _, name = repo_or_dir.partition("/")
    name, _, branch = name.partition(":")
    cached = sorted(Path(get_dir()).glob(f"{owner}_{name}_{branch or '*'}"))
    if not cached:
        _refuse(repo_or_dir, os.path.join(get_dir(), f"{owner}_{name}_{branch or 'main'}"))
    return cached[0]


def _entry_points(repo_or_dir: str, source: str) -> ModuleType:
    """The module `hubconf.py` of a folder."""
    path = _folder_of(repo_or_dir, source) / "hubconf.py"
    if not path.exists():
        raise RushlightError(f"hub: there is no {path}")
    spec = importlib.util.spec_from_file_location("hubconf", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.parent))
    return module


def _entry(repo_or_dir: str, model: str, source: str) -> Any:
    found = getattr(_entry_points(repo_or_dir, source), model, None)
    if not callable(found):
        raise RushlightError(f"hub: {repo_or_dir} has no entry point {model!r}")
    return found


def list(github: str, force_reload: bool = False, source: str = "github", **named: Any) -> Any:
    """The entry points of a folder, or of a repository in the cache.

    Args:
        github (str): A folder, or owner/name[:branch].
        force_reload (bool): Has no effect.
        source (str): "local" for a folder, "github" for a repository in the cache.
        named: Have no effect.
    """
    module = _entry_points(github, source)
    return [name for name, x in vars(module).items() if callable(x) and name[0] != "_"]


def help(github: str, model: str, source: str = "github", **named: Any) -> str | None:
    """The docstring of an entry point.

    Args:
        github (str): A folder, or owner/name[:branch].
        model (str): The entry point.
        source (str): "local" for a folder, "github" for a repository in the cache.
        named: Have no effect.
    """
    text: str | None = _entry(github, model, source).__doc__
    return text


def load(
    repo_or_dir: str,
    model: str,
    *args: Any,
    source: str = "github",
    trust_repo: Any = None,
    force_reload: bool = False,
    verbose: bool = True,
    skip_validation: bool = False,
    **named: Any,
) -> Any:
    """Call an entry point of a folder, or of a repository in the cache. It runs that code.

    Args:
        repo_or_dir (str): A folder, or owner/name[:branch].
        model (str): The entry point.
        args: Its arguments.
        source (str): "local" for a folder, "github" for a repository in the cache.
        trust_repo: Has no effect.
        force_reload (bool): Has no effect.
        verbose (bool): Has no effect.
        skip_validation (bool): Has no effect.
        named: Its arguments by name.
    """
    return _entry(repo_or_dir, model, source)(*args, **named)
