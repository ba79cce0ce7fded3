"""Locks that are renewed in a forked child, where the thread that held one does not exist."""

from __future__ import annotations

import os
import threading
from typing import Any


def lock() -> threading.Lock:
    return _renewed(threading.Lock())


def reentrant_lock() -> Any:
    """A lock that its holder may take again; the class has no public name."""
    return _renewed(threading.RLock())


def _renewed(made: Any) -> Any:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=made._at_fork_reinit)
    return made
