"""Notes: each is written once, and each that is named anywhere exists."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
TITLE = re.compile(r"^ *(?:# )?Note \[([^\]]+)\]$", re.MULTILINE)
MENTION = re.compile(r"Note\s+(?:# )?\[([^\]]+)\]")


def test_every_note_exists_once():
    folders = ("rushlight", "tests", "docs", "benchmarks", "tools")
    files = [f for folder in folders for f in (ROOT / folder).rglob("*.*")] + [*ROOT.glob("*.md")]
    kept = [f for f in files if f.suffix in (".py", ".md") and f != Path(__file__)]
    texts = {f: f.read_text() for f in kept}
    titles = Counter(title for text in texts.values() for title in TITLE.findall(text))
    assert [title for title, count in titles.items() if count > 1] == []
    for file, text in texts.items():
        named = {re.sub(r"\s+(# )?", " ", name) for name in MENTION.findall(text)}
        assert named <= titles.keys(), (file, named - titles.keys())
