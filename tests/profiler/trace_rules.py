"""The rules of Chrome's trace format that viewers rely on, checked on a trace."""

from __future__ import annotations

from typing import Any

KNOWN = {"X", "M", "s", "f", "C"}


def check_trace(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """Raise AssertionError where a trace breaks a rule; return its slices."""
    assert trace["displayTimeUnit"] in ("ms", "ns")
    events = trace["traceEvents"]
    slices: list[dict[str, Any]] = []
    flows: dict[Any, dict[str, dict[str, Any]]] = {}
    for event in events:
        assert event["ph"] in KNOWN and isinstance(event["name"], str) and event["name"]
        assert type(event["pid"]) is int and type(event["tid"]) is int
        assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0 and event["cat"] and isinstance(event["args"], dict)
            slices.append(event)
        elif event["ph"] == "M":
            kinds = {"process_name": str, "thread_name": str, "process_sort_index": int}
            (value,) = event["args"].values()
            assert isinstance(value, kinds[event["name"]])
        elif event["ph"] == "C":
            assert all(isinstance(number, int) for number in event["args"].values())
        else:
            assert event["id"] not in flows or event["ph"] not in flows[event["id"]]
            flows.setdefault(event["id"], {})[event["ph"]] = event
    _check_nesting(slices)
    for flow in flows.values():
        _check_flow(flow, slices)
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in slices} <= named
    return slices


def _check_nesting(slices: list[dict[str, Any]]) -> None:
    """Slices of one track are nested or apart."""
    tracks: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for event in slices:
        tracks.setdefault((event["pid"], event["tid"]), []).append(event)
    for track in tracks.values():
        track.sort(key=lambda e: (e["ts"], -e["dur"]))
        ends: list[float] = []
        for event in track:
            end = event["ts"] + event["dur"]
            while ends and ends[-1] <= event["ts"] + 1e-6:
                ends.pop()
            assert not ends or end <= ends[-1] + 1e-6, event
            ends.append(end)


def _check_flow(flow: dict[str, dict[str, Any]], slices: list[dict[str, Any]]) -> None:
    """An arrow has two ends, each inside of a slice, and does not lead back in time."""
    assert set(flow) == {"s", "f"} and flow["f"]["bp"] == "e"
    assert flow["s"]["ts"] <= flow["f"]["ts"] + 1e-6
    for end in flow.values():
        assert any(
            (e["pid"], e["tid"]) == (end["pid"], end["tid"])
            and e["ts"] - 1e-6 <= end["ts"] <= e["ts"] + e["dur"] + 1e-6
            for e in slices
        )
