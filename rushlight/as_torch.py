"""`import rushlight.as_torch`, before `import torch`, makes `torch` Rushlight in this process.

For the first line of a script or a notebook. `rushlight run script.py` needs no such line.
"""

from __future__ import annotations

from rushlight.compat.hook import patch

patched = patch()
