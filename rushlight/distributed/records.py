"""`record`: what a program raised, for a starter that asks for it in a file, as torchrun does."""

from __future__ import annotations

import functools
import json
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rushlight.distributed import environment


def record(fn: Callable[..., Any], error_handler: Any = None) -> Callable[..., Any]:
    """The function; what it raises is written to TORCHELASTIC_ERROR_FILE, where that is set.

    `rushlight launch` needs no such file: it prints the text of the first rank that failed.

    Args:
        fn (callable): A program's main function.
        error_handler: Has no effect.
    """

    @functools.wraps(fn)
    def recorded(*args: Any, **named: Any) -> Any:
        try:
            return fn(*args, **named)
        except Exception as error:
            path = environment.error_file()
            if path:
                more = {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}
                message = {"message": f"{type(error).__name__}: {error}", "extraInfo": more}
                Path(path).write_text(json.dumps({"message": message}))
            raise

    return recorded
