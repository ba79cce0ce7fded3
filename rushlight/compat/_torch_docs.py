"""PyTorch's `torch._torch_docs`: arguments' descriptions, cut out of one text."""

from __future__ import annotations

import re
from typing import Any


def parse_kwargs(desc: str) -> dict[str, str]:
    """The descriptions of arguments by name.

    Args:
        desc (str): Entries "name (type): text", each indented by four spaces.
    """
    entries = [entry.strip() for entry in re.split(r"\n\s{4}(?=\S)", desc)]
    return {entry.split(" ")[0]: entry for entry in entries if entry}


def merge_dicts(*dicts: dict[str, Any]) -> dict[str, Any]:
    """One dict of several; later entries go before earlier ones.

    Args:
        *dicts (dict): The dicts.
    """
    return {key: value for one in dicts for key, value in one.items()}
