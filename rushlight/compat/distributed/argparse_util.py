"""PyTorch's `torch.distributed.argparse_util`: options that variables of the environment set."""

from __future__ import annotations

import os
from argparse import Action
from typing import Any


class env(Action):
    """An option whose default is the variable PET_<NAME>.

    Args:
        dest (str): The option's name.
        default: Where there is no such variable.
        required (bool): Whether one of the two is needed.
    """

    def __init__(
        self, dest: str, default: Any = None, required: bool = False, **kwargs: Any
    ) -> None:
        default = os.environ.get(f"PET_{dest.upper()}", default)
        super().__init__(
            dest=dest, default=default, required=required and default is None, **kwargs
        )

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        setattr(namespace, self.dest, values)


class check_env(Action):
    """A switch that is on where the variable PET_<NAME> is not 0.

    Args:
        dest (str): The option's name.
        default (bool): Where there is no such variable.
    """

    def __init__(self, dest: str, default: Any = False, **kwargs: Any) -> None:
        found = bool(int(os.environ.get(f"PET_{dest.upper()}", int(default))))
        super().__init__(dest=dest, const=True, default=found, nargs=0, **kwargs)

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        setattr(namespace, self.dest, self.const)
