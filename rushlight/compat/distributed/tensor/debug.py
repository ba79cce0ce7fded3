"""PyTorch's `torch.distributed.tensor.debug`: which collectives a block makes."""

from __future__ import annotations

from typing import Any, NoReturn

from rushlight.core.errors import RushlightError
from rushlight.distributed.counting import traffic
from rushlight.distributed.tensor.dtensor import DTensor

__all__ = ["CommDebugMode", "visualize_sharding"]


class CommDebugMode:
    """A block that counts the collectives this process makes, by name.

    PyTorch's keys are ops of `torch.ops.c10d_functional`; here they are names of
    `torch.distributed`: "all_reduce".
    """

    def __init__(self) -> None:
        self._before: dict[str, int] = {}
        self._counts: dict[str, int] = {}

    def __enter__(self) -> CommDebugMode:
        self._counts = {}
        self._before = {name: one.calls for name, one in traffic().items()}
        return self

    def __exit__(self, *_: object) -> None:
        self._counts = self._since()
        self._before = {}

    def _since(self) -> dict[str, int]:
        found = {name: one.calls - self._before.get(name, 0) for name, one in traffic().items()}
        return {name: count for name, count in found.items() if count}

    def get_comm_counts(self) -> dict[str, int]:
        """How often each collective was called; inside of the block, so far."""
        return self._since() if self._before else dict(self._counts)

    def get_total_counts(self) -> int:
        """How many collectives were called."""
        return sum(self.get_comm_counts().values())

    def generate_comm_debug_tracing_table(self, noise_level: int = 3) -> str:
        """The counts as lines.

        Args:
            noise_level (int): Has no effect: counts are of the whole block, not of its modules.
        """
        counts = self.get_comm_counts()
        return "\n".join(f"{name}: {counts[name]}" for name in sorted(counts))

    def log_comm_debug_tracing_table_to_file(
        self, file_name: str = "comm_mode_log.txt", noise_level: int = 3
    ) -> None:
        """Write the counts to a file.

        Args:
            file_name (str): The file.
            noise_level (int): Has no effect.
        """
        with open(file_name, "w", encoding="utf-8") as file:
            file.write(self.generate_comm_debug_tracing_table(noise_level))

    def _refuse(self, *args: Any, **named: Any) -> NoReturn:
        """Refused: collectives are not told apart by module."""
        raise RushlightError("CommDebugMode: collectives are counted by name, not by module")

    get_parameter_info = get_sharding_info = generate_json_dump = _refuse


def visualize_sharding(dtensor: DTensor, header: str = "", use_rich: bool = False) -> None:
    """Print which part of a tensor this rank has, and how the tensor is placed.

    Args:
        dtensor (DTensor): The tensor.
        header (str): A first line.
        use_rich (bool): Has no effect.
    """
    pieces = ", ".join(f"{p.start}:{p.start + p.length}" for p in dtensor._layout.pieces())
    lines = [header] if header else []
    print("\n".join([*lines, f"[{pieces}] of {tuple(dtensor.shape)}, {dtensor.placements}"]))
