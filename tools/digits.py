"""Make `examples/data/digits.npz` from scikit-learn's copy of the UCI digits.

python -m tools.digits

Images are 8 by 8 with values from 0 to 16; images and labels are bytes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

PATH = Path(__file__).parent.parent / "examples" / "data" / "digits.npz"


def main() -> None:
    """Write the file."""
    from sklearn.datasets import load_digits  # type: ignore[import-not-found]

    found: Any = load_digits()
    images = found.images.astype(np.uint8)
    np.savez_compressed(PATH, images=images, labels=found.target.astype(np.uint8))


if __name__ == "__main__":
    main()
