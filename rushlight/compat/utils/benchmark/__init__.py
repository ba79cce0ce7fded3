"""PyTorch's `torch.utils.benchmark`: times of statements, and tables of them.

Owns: timers, measurements, comparisons. Takes: a device to wait for. Gives: numbers and texts.
Never: times a device without waiting for it; counts instructions (`collect_callgrind` is refused).
"""

from rushlight.compat.utils.benchmark.compare import Compare
from rushlight.compat.utils.benchmark.measurement import Measurement, TaskSpec, select_unit
from rushlight.compat.utils.benchmark.timer import Language, Timer, timer

__all__ = ["Compare", "Language", "Measurement", "TaskSpec", "Timer", "select_unit", "timer"]
