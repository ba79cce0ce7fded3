"""Hooks of `mkdocs build`: pages from elsewhere in the repository, their links, the API reference.

Pages link to files of the repository by relative paths, so they read the same in a checkout. A link
to a file that is a page of the site is rewritten to that page; one to another file that exists
becomes plain text; one to a file that does not exist stays, so that `--strict` refuses it.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "docs/site")]

import literate  # noqa: E402  (beside this file, which MkDocs loads by path)
import reference  # noqa: E402

RESULTS = "benchmarks/results"
_LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")
_FENCE = re.compile(r"(^```.*?^```$)", re.S | re.M)


def mounted() -> dict[str, str]:
    """Files outside of docs/ that are pages or files of the site, and where."""
    found = {
        "README.md": "index.md",
        "ARCHITECTURE.md": "architecture.md",
        "CHANGELOG.md": "changelog.md",
        "examples/README.md": "examples.md",
        f"{RESULTS}/README.md": "results/index.md",
    }
    for path in sorted((ROOT / RESULTS).iterdir()):
        found.setdefault(f"{RESULTS}/{path.name}", f"results/{path.name}")
    return found


def on_config(config: Any) -> Any:
    """Finish the navigation: the results under "Judging it", the reference last."""
    results = [site for site in mounted().values() if re.fullmatch(r"results/.*\.md", site)]
    named = [site if site.endswith("index.md") else {Path(site).stem: site} for site in results]
    judging = next(part["Judging it"] for part in config.nav if "Judging it" in part)
    judging.append({"Results of runs": named})
    config.nav.append({"API reference": reference.navigation()})
    return config


def on_files(files: Any, config: Any) -> Any:
    for path, site in mounted().items():
        files.append(File.generated(config, site, content=(ROOT / path).read_text()))
    walk = literate.page((ROOT / "docs/from_scratch.py").read_text())
    files.append(File.generated(config, "from_scratch.md", content=walk))
    for site, text in reference.pages().items():
        files.append(File.generated(config, site, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite links between files into links of the site, outside of code blocks."""
    here = page.file.src_uri
    if here == "index.md":
        page.meta["hide"] = ["navigation"]  # the tabs and the page's own links lead everywhere
    pieces = _FENCE.split(markdown)
    pieces[::2] = [_relinked(piece, here) for piece in pieces[::2]]
    return "".join(pieces)


def _relinked(text: str, here: str) -> str:
    sites = mounted()
    origins = {site: path for path, site in sites.items()}
    origin = PurePosixPath(origins.get(here, f"docs/{here}"))
    if here.startswith("reference/"):
        return text

    def turned(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        if "://" in target:
            return match[0]
        path = os.path.normpath(origin.parent / target)
        if path == "docs/from_scratch.py":
            site = "from_scratch.md"
        elif path in sites:
            site = sites[path]
        elif path.startswith("docs/"):
            site = path.removeprefix("docs/")
        elif (ROOT / path).exists():
            return "\0"  # a file that is not on the site
        else:
            return match[0]
        return os.path.relpath(site, os.path.dirname(here) or ".") + anchor

    return re.sub(r"\[([^\]]*)\]\(\0\)", r"\1", _LINK.sub(turned, text))
