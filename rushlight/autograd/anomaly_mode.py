"""PyTorch's path of anomaly detection; see `rushlight/tape/anomaly/mode.py`."""

from __future__ import annotations

from rushlight.lazy import shown
from rushlight.tape.anomaly.mode import detect_anomaly, set_detect_anomaly

__all__ = ["detect_anomaly", "set_detect_anomaly"]


def __dir__() -> list[str]:
    return shown(__name__)
