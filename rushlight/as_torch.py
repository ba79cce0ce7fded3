"""`import rushlight.as_torch`, before `import torch`, makes `torch` Rushlight in this process.

For the first line of a script or a notebook. `rushlight run script.py` needs no such line.
It refuses where PyTorch is loaded: PyTorch imports parts of itself late, by the same names.
"""

from __future__ import annotations

from rushlight.compat.failing import end_at_users_line
from rushlight.compat.hook import patch, refuse_pytorch

end_at_users_line()  # first, for the error of a device that is not there
refuse_pytorch()
patched = patch()
