"""PyTorch's `torch.utils.flop_counter`: the multiplications and additions of the launches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from rushlight.compat.aten import OpOverloadPacket, aten, op_of, packet
from rushlight.core.errors import RushlightError
from rushlight.profiler.recorder import Launch, Recorder

__all__ = ["FlopCounterMode", "register_flop_formula"]

_WHOLE = "Global"
# Kinds of calls whose derivatives have a name of their own; those of others are `mm` and `bmm`.
_BACKWARD = {
    aten.convolution: "convolution_backward",
    aten._scaled_dot_product_flash_attention: "_scaled_dot_product_flash_attention_backward",
}
_UNITS = ("", "K", "M", "B", "T", "Q")
Formula = TypeVar("Formula", bound=Callable[..., Any])


def register_flop_formula(targets: Any, get_raw: bool = False) -> Callable[[Formula], Formula]:
    """Accepted: what a custom op launches is counted, so it needs no formula."""
    return lambda formula: formula


class _Modules(Recorder):
    """A recording whose paths of modules begin with the class of the outermost one."""

    def path_of(self, chain: Any) -> str:
        path = super().path_of(chain)
        if chain is None:
            return path
        while chain[0] is not None:
            chain = chain[0]
        root = type(chain[1]()).__name__
        return root if path == root else f"{root}.{path}"


class FlopCounterMode:
    """Counts the multiplications and additions of products, convolutions and attention in a block.

    They are those of the kernels that run, forward, backward and recomputed, on every device and
    on `meta`; those of a backward pass count for the module of the call that is differentiated.

    Args:
        mods: Accepted; modules are found by themselves.
        depth (int): Levels of modules in the table; None for all.
        display (bool): Print the table at the end of the block.
        custom_mapping: Refused: kernels are counted, not calls.
    """

    def __init__(
        self,
        mods: Any = None,
        depth: int | None = 2,
        display: bool = True,
        custom_mapping: dict[Any, Any] | None = None,
    ) -> None:
        if custom_mapping:
            raise RushlightError(
                "FlopCounterMode: custom_mapping has no use, for the kernels that a function "
                "launches are counted; leave it out"
            )
        self.depth, self.display = depth, display
        self.flop_counts: dict[str, dict[OpOverloadPacket, int]] = {}
        self._recorder: Recorder | None = None

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts = defaultdict(lambda: defaultdict(int))
        self._recorder = _Modules(devices=False)
        self._recorder.start()
        return self

    def __exit__(self, *_: object) -> None:
        recorder, self._recorder = self._recorder, None
        if recorder is None:
            return
        recorder.stop()
        self._count(recorder)
        if self.display:
            print(self.get_table(self.depth))

    def _count(self, recorder: Recorder) -> None:
        for launch in recorder.called():
            if launch.plan.products:
                kind, path = _kind_and_module(launch)
                for name in (_WHOLE, *_around(path)):
                    self.flop_counts[name][kind] += 2 * launch.plan.products

    def get_total_flops(self) -> int:
        """Of the whole block."""
        return sum(self.flop_counts.get(_WHOLE, {}).values())

    def get_flop_counts(self) -> dict[str, dict[OpOverloadPacket, int]]:
        """By module ("Global", "Net", "Net.layer") and kind of call; an inner module's count for
        those around it.
        """
        return {name: dict(counts) for name, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """Modules down to a depth, each with its share and its kinds of calls."""
        depth = self.depth if depth is None else depth
        whole = self.get_total_flops()
        rows = [("Module", "FLOP", "% Total")]
        for name, counts in sorted(self.flop_counts.items(), key=lambda item: item[0] != _WHOLE):
            level = 0 if name == _WHOLE else name.count(".") + 1
            if depth is not None and level > depth:
                continue
            rows.append(_row(" " * level + name, sum(counts.values()), whole))
            rows += [_row(f"{' ' * level} - {kind}", n, whole) for kind, n in counts.items()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            f"{name:<{widths[0]}}  {count:>{widths[1]}}  {share:>{widths[2]}}"
            for name, count, share in rows
        ]
        return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def _kind_and_module(launch: Launch) -> tuple[OpOverloadPacket, str]:
    """The native name and the module of a launch; of a derivative, those of the call before."""
    kind = op_of(launch.plan).overloadpacket
    if launch.derived is None:
        return kind, launch.module
    call, _, path = launch.derived
    if call == launch.plan.op.name or kind in (aten.mm, aten.bmm, aten.addmm):
        return kind, path
    return packet(_BACKWARD.get(packet(call), kind.__name__)), path


def _around(path: str) -> Iterator[str]:
    """The modules on a path: Net, Net.layers, Net.layers.0."""
    parts = path.split(".") if path else []
    return (".".join(parts[: i + 1]) for i in range(len(parts)))


def _row(name: str, count: int, whole: int) -> tuple[str, str, str]:
    size, shown = float(count), str(count)
    for unit in _UNITS:
        shown = f"{size:.3f}{unit}" if unit else str(count)
        if size < 1000:
            break
        size /= 1000
    return name, shown, f"{100 * count / whole:.2f}%" if whole else "-"
