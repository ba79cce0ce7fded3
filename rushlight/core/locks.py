"""Locks of the process that a fork leaves open: in the child whoever held one is not there to let it go."""

from __future__ import annotations

import os
import threading
from typing import Any


def lock() -> threading.Lock:
    return _renewed(threading.Lock())


def reentrant_lock() -> Any:
    """A lock that its holder may take again; its class has no public name."""
    return _renewed(threading.RLock())


def _renewed(made: Any) -> Any:
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=made._at_fork_reinit)
    return made
