"""Attention by cuDNN: what it takes, its parts and its cache, with a frontend that only records."""

from __future__ import annotations

import contextlib
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from rushlight.core.dtypes import bfloat16, bool_, float16, float32
from rushlight.core.errors import DeviceError
from rushlight.devices.cuda import aligned, cudnn_attention, scratch_of
from rushlight.devices.cuda.cudnn_attention import Attention, layout_of, takes
from rushlight.kernel.attend import inner_sizes, operands_of
from rushlight.kernel.shapes import Attend

FORWARD = Attend(bfloat16, "output", 64, 64, causal=True)
BACKWARD = Attend(bfloat16, "operands", 64, 64, causal=True)


def numbers_of(
    kernel: Attend, batch: int, heads: int, rows: int, keys: int, extra: int = 0
) -> list[float]:
    """Sizes, strides and scale of contiguous operands; rows lie `extra` further apart."""
    found: list[float] = [1, batch, heads, rows, keys]
    for name in operands_of(kernel):
        n, m = inner_sizes(kernel, name, rows, keys)
        step = m + extra if m > 1 else 1
        found += [0, heads * n * step if batch > 1 else 0, n * step, step, 1 if m > 1 else 0]
    return [*found, 0.125]


@pytest.mark.parametrize(
    "kernel, taken",
    [
        (FORWARD, True),
        (BACKWARD, True),
        (Attend(float16, "output", 128, 72), True),
        (Attend(float32, "output", 64, 64), False),
        (Attend(bfloat16, "query", 64, 64), False),
        (Attend(bfloat16, "output", 64, 60), False),
        (Attend(bfloat16, "output", 256, 64), False),
        (Attend(bfloat16, "output", 64, 64, bool_), False),
        (Attend(bfloat16, "output", 64, 64, dropout=True), False),
    ],
)
def test_what_it_takes(kernel: Attend, taken: bool):
    assert takes(kernel) is taken


def test_layouts_that_own_kernels_compute():
    assert layout_of(FORWARD, numbers_of(FORWARD, 2, 3, 128, 192)) is not None
    assert layout_of(FORWARD, numbers_of(FORWARD, 2, 3, 1000, 520)) is not None
    for batch, heads, rows, keys, extra in (
        (2, 3, 100, 128, 0),  # rows that 64 does not divide
        (2, 3, 1000, 504, 0),  # not all are long
        (2, 3, 1000, 1001, 0),
        (2, 3, 128, 0, 0),
        (2, 3, 128, 128, 4),  # rows that are not aligned
    ):
        assert layout_of(FORWARD, numbers_of(FORWARD, batch, heads, rows, keys, extra)) is None
    shared = numbers_of(FORWARD, 2, 3, 128, 128)
    shared[5 + 5 * list(operands_of(FORWARD)).index("k") + 2] = 0  # one key head for all
    assert layout_of(FORWARD, shared) is None


def test_backward_in_parts_of_bounded_workspaces(monkeypatch: pytest.MonkeyPatch):
    head = 4 * (8 * 64 + 1) * 1024
    for most, batch, heads, expected in (
        (1 << 40, 4, 6, (4, 6)),
        (13 * head, 4, 6, (2, 6)),
        (5 * head, 4, 6, (1, 3)),
        (49 * head, 1, 192, (1, 48)),
    ):
        monkeypatch.setattr(cudnn_attention, "MOST_WORKSPACE", most)
        found = layout_of(BACKWARD, numbers_of(BACKWARD, batch, heads, 1024, 1024))
        assert found is not None
        layout, whole = found
        assert layout.sizes == (*expected, 1024, 1024) and whole == (batch, heads)
        level = layout.strides[list(operands_of(BACKWARD)).index("level")]
        assert level == (expected[1] * 1024, 1024, 1, 1)  # packed, as cuDNN asks for
    monkeypatch.setattr(cudnn_attention, "MOST_WORKSPACE", head - 1)
    assert layout_of(BACKWARD, numbers_of(BACKWARD, 4, 6, 1024, 1024)) is None


def test_every_part_is_aligned(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cudnn_attention, "MOST_WORKSPACE", 5 * 4 * (8 * 64 + 1) * 1024)
    for extra, is_taken in ((8, True), (4, False)):
        numbers = numbers_of(BACKWARD, 4, 6, 1024, 1024)
        numbers[6::5] = [step + extra for step in numbers[6::5]]  # of the batch
        assert (layout_of(BACKWARD, numbers) is not None) == is_taken


class Graph:
    """Records the numbers of its tensors, and its executions."""

    built = 0

    def __init__(self, **_: Any) -> None:
        self.calls: list[tuple[dict[int, int], int]] = []

    def tensor(self, **given: Any) -> Any:
        return given["name"]

    def sdpa(self, **_: Any) -> tuple[Any, ...]:
        return (Tensor(), Tensor())

    def sdpa_backward(self, **given: Any) -> tuple[Any, ...]:
        assert given["use_deterministic_algorithm"]
        return (Tensor(), Tensor(), Tensor())

    def build(self, modes: list[Any]) -> None:
        Graph.built += 1

    def serialize(self) -> list[int]:
        return [7, 8]

    def deserialize(self, stored: list[int]) -> None:
        assert stored == [7, 8]

    def get_workspace_size(self) -> int:
        return 256

    def execute(self, places: dict[int, int], workspace: int, handle: Any) -> None:
        self.calls.append((places, workspace))


class Tensor:
    def __getattr__(self, name: str) -> Any:
        return lambda *_: self


@pytest.fixture
def frontend(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A frontend, a pool without memory, and a cache of code that is a dictionary."""
    stored: dict[str, bytes] = {}
    monkeypatch.setattr(cudnn_attention, "read_object", lambda _, key: stored.get(key))
    monkeypatch.setattr(
        cudnn_attention, "write_object", lambda _, key, code: stored.update({key: code})
    )
    monkeypatch.setattr(cudnn_attention, "Scratch", lambda *_: contextlib.nullcontext([1 << 30]))
    monkeypatch.setattr(Graph, "built", 0)
    kinds = SimpleNamespace(HALF=1, BFLOAT16=2, FLOAT=3)
    return SimpleNamespace(
        pygraph=Graph, data_type=kinds, heur_mode=SimpleNamespace(A=0, FALLBACK=1),
        backend_version=lambda: 91900, __version__="1", create_handle=object,
        cudnnGraphNotSupportedError=ValueError,
    )  # fmt: skip


def test_parts_move_every_operand_and_plans_are_read_again(
    frontend: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cudnn_attention, "MOST_WORKSPACE", 4 * (8 * 64 + 1) * 1024 * 6)
    copies: list[tuple[int, ...]] = []
    runtime = SimpleNamespace(memcpyAsync=lambda *n: copies.append(n[:3]), memcpyDeviceToDevice=3)
    session = SimpleNamespace(
        target="sm", runtime=runtime, card=0, await_arrival=lambda: None, use=lambda: None
    )
    own_calls: list[tuple[int, ...]] = []
    addresses = [16 * (i + 1) for i in range(len(operands_of(BACKWARD)))]
    numbers = [*addresses, *numbers_of(BACKWARD, 2, 6, 1024, 1024)]
    for _ in range(2):
        launch = Attention(
            frontend, BACKWARD, session, lambda: lambda *n: own_calls.append(n), lambda: None
        )
        launch(*numbers)
        (plan,) = launch.plans.values()
        (first, _), (second, _) = plan.graph.calls
        moved = [second[i] - first[i] for i in first]
        row = 6 * 1024 * 64 * 2
        assert list(first.values()) == addresses
        assert moved == [row] * 5 + [6 * 1024 * 4] + [row] * 3
    assert Graph.built == 1 and not own_calls
    # An operand that is not aligned is copied, a result back.
    monkeypatch.setattr(
        aligned, "Scratch", lambda _, *rooms: Blocks([1 << 20, 1 << 21], [*map(int, rooms)])
    )
    launch(addresses[0] + 2, *addresses[1:3], addresses[3] + 2, *numbers[4:])
    (places, _), _ = plan.graph.calls[-2:]
    assert list(places.values()) == [1 << 20, *addresses[1:3], 1 << 21, *addresses[4:]]
    whole = 2 * row
    assert copies == [
        (1 << 20, addresses[0] + 2, whole),
        (1 << 21, addresses[3] + 2, whole),
        (addresses[0] + 2, 1 << 20, whole),
    ]
    assert not own_calls


class Blocks(contextlib.AbstractContextManager[list[int]]):
    """Scratch at given addresses."""

    def __init__(self, places: list[int], rooms: list[int]) -> None:
        self.places = places[: len(rooms)]

    def __enter__(self) -> list[int]:
        return self.places

    def __exit__(self, *_: object) -> None:
        pass


def test_a_failure_of_the_moment_raises_and_is_not_remembered(
    frontend: Any, monkeypatch: pytest.MonkeyPatch
):
    own_calls: list[Any] = []
    session = SimpleNamespace(target="sm", card=0, await_arrival=lambda: None, use=lambda: None)
    launch = Attention(
        frontend, FORWARD, session, lambda: lambda *n: own_calls.append(n), lambda: None
    )
    numbers = [*(16 * (i + 1) for i in range(len(operands_of(FORWARD))))]
    numbers += numbers_of(FORWARD, 2, 6, 1024, 1024)  # type: ignore[arg-type]
    build = Graph.build

    def fail(self: Graph, modes: list[Any]) -> None:
        raise RuntimeError("CUDNN_STATUS_ALLOC_FAILED")

    monkeypatch.setattr(Graph, "build", fail)
    with pytest.raises(DeviceError, match="ALLOC_FAILED"):
        launch(*numbers)
    monkeypatch.setattr(Graph, "build", build)
    launch(*numbers)
    assert Graph.built == 1 and not own_calls

    def refuse(self: Graph, modes: list[Any]) -> None:
        raise frontend.cudnnGraphNotSupportedError("no engine")

    monkeypatch.setattr(Graph, "build", refuse)
    numbers[-1] = 0.5
    launch(*numbers)
    assert len(own_calls) == 1 and None in launch.plans.values()


def test_a_handle_serves_the_next_thread(frontend: Any):
    card: Any = SimpleNamespace(card=0, use=lambda: None)
    launch = Attention(frontend, FORWARD, card, lambda: None, lambda: None)  # type: ignore[arg-type,return-value]
    found: list[Any] = []
    for _ in range(2):
        thread = threading.Thread(target=lambda: found.append(launch._handle()))
        thread.start()
        thread.join()
    assert found[0] is found[1]


def test_each_card_has_handles_of_its_own(frontend: Any):
    used: list[int] = []
    cards: list[Any] = [SimpleNamespace(card=k, use=lambda k=k: used.append(k)) for k in (0, 1)]
    launches = [
        Attention(frontend, FORWARD, card, lambda: None, lambda: None)  # type: ignore[arg-type,return-value]
        for card in cards
    ]
    found = [launch._handle() for launch in launches * 2]
    assert found[0] is found[2] is not found[1] is found[3] and used == [0, 1, 0, 1]


def test_estimates_count_the_workspace(monkeypatch: pytest.MonkeyPatch):
    numbers = numbers_of(BACKWARD, 2, 6, 1024, 1024)
    monkeypatch.setattr(cudnn_attention, "frontend", lambda: object())
    assert scratch_of(BACKWARD, numbers)[0] >= 12 * 4 * (8 * 64 + 1) * 1024
    assert list(scratch_of(FORWARD, numbers_of(FORWARD, 2, 6, 1024, 1024))) == []
    monkeypatch.setattr(cudnn_attention, "frontend", lambda: None)
    assert list(scratch_of(BACKWARD, numbers)) == []
