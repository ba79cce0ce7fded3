"""The page of a recording: one HTML file with its data, which loads nothing.

The data is JSON in a script element that no browser runs. `<`, `>` and `&` are written as escapes
there, so no name can end the element; the script writes names as text only.
"""

from __future__ import annotations

import json
from pathlib import Path

from rushlight.memory.account import Account
from rushlight.memory.data import VERSION, as_data

_MOST = 6000  # moments of a device
_ESCAPES = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})
_TEMPLATE = Path(__file__).with_name("page.html")


def as_page(accounts: list[Account]) -> str:
    """The text of the page."""
    data = {"version": VERSION, "devices": [as_data(account, _MOST) for account in accounts]}
    text = json.dumps(data, separators=(",", ":")).translate(_ESCAPES)
    return _TEMPLATE.read_text("utf-8").replace("{{data}}", text)
