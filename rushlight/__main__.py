"""`python -m rushlight run script.py`: the same as the command `rushlight`."""

from __future__ import annotations

import sys

from rushlight.cli import main

sys.exit(main())
