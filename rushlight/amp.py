"""Mixed precision: contractions in a lower type, decided when they are recorded."""

from __future__ import annotations

from rushlight.core.dtypes import DType, bfloat16, float16
from rushlight.core.errors import DTypeError
from rushlight.tape.state import Changed


class autocast(Changed):
    """Inside, matmul, linear and conv2d take float32 operands in `dtype`; the casts are recorded like any op."""

    def __init__(self, device_type: str = "cpu", dtype: DType = bfloat16, enabled: bool = True) -> None:
        if dtype not in (bfloat16, float16):
            raise DTypeError(f"autocast: dtype is bfloat16 or float16, got {dtype!r}")
        super().__init__(autocast=dtype if enabled else None)
