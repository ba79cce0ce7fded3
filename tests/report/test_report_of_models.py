"""`summary` and `graph`: numbers against torchinfo's, layouts that can be read."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

import rushlight as torch
from rushlight import nn
from rushlight.report.layout import lay_out
from tests.report import models

FACTS = json.loads(Path(__file__).with_name("torchinfo.json").read_text())


@pytest.mark.parametrize("name", FACTS)
def test_numbers_of_torchinfo(name, capsys):
    models.bind(torch)
    make, shape = models.MODELS[name]
    model = make()
    found = torch.summary(model, shape)
    assert str(found) in capsys.readouterr().out
    facts = FACTS[name]
    assert found.parameters == found.total_params == facts["params"]
    layers = [layer for layer in found.layers if layer.is_innermost]
    assert len(layers) == len(facts["rows"])
    for layer, (kind, size, parameters, macs) in zip(layers, facts["rows"], strict=True):
        assert (layer.kind, layer.output_shape, layer.parameters) == (kind, size, parameters)
        module = model.get_submodule(layer.name)
        if hasattr(module, "weight") and "Norm" not in kind:
            # torchinfo counts the additions of a bias too, and the scales of norms.
            outputs = 1
            for n in size:
                outputs *= n
            assert layer.macs == macs - (outputs if module.bias is not None else 0)
        else:
            assert layer.macs == 0


class Block(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)

    def forward(self, x: Any) -> Any:
        return x + self.second(self.norm(self.first(x)).relu())


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(4), Block(4)])
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(4, 3)
        self.spare = nn.Linear(2, 2)

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = block(x)
        return self.head(self.drop(x.mean((2, 3))))


def test_layers_and_saved_bytes(device):
    torch.manual_seed(0)
    model = Model().to(device)
    x = torch.randn(2, 4, 8, 8).to(device)
    buffers = [b.tolist() for b in model.buffers()]
    state = torch.get_rng_state()
    found = torch.summary(model, x)
    assert [b.tolist() for b in model.buffers()] == buffers
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.grad is None for p in model.parameters())
    labels = [layer.label for layer in found.layers]
    assert labels[:2] == ["Model", "  blocks.0: Block"] and labels[-1] == "  spare: Linear"
    by_name = {layer.name: layer for layer in found.layers}
    assert by_name["blocks.1.first"].output_shape == [2, 4, 8, 8]
    assert by_name["blocks.1.first"].output_bytes == 2 * 4 * 8 * 8 * 4
    assert by_name["blocks.1.first"].macs == 2 * 8 * 8 * 4 * 4 * 9
    # The second convolution keeps the relu's result, the first of block 0 the model's input alone.
    assert by_name["blocks.0.second"].saved_bytes == 2 * 4 * 8 * 8 * 4
    assert by_name["blocks.0.first"].saved_bytes == 0
    assert by_name["spare"].calls == 0 and "not called" in str(found)
    assert found.macs == 4 * by_name["blocks.1.first"].macs + 2 * 4 * 3
    flat = torch.summary(model, x, depth=1)
    assert [layer.name for layer in flat.layers][1:3] == ["blocks.0", "blocks.1"]
    assert flat.layers[1].macs == 2 * by_name["blocks.1.first"].macs
    assert (flat.macs, flat.parameters, flat.saved_bytes) == (
        found.macs,
        found.parameters,
        found.saved_bytes,
    )


def test_macs_of_attention_and_recurrent_layers():
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    found = torch.summary(layer, (4, 7, 32))
    rows = 4 * 7
    scores = 2 * 4 * 7 * 7 * 32
    assert found.macs == rows * (4 * 32 * 32 + 2 * 32 * 64) + scores
    found = torch.summary(nn.LSTM(8, 16, 2, batch_first=True), (4, 5, 8))
    assert found.macs == 20 * 4 * 16 * ((8 + 16) + (16 + 16))
    assert found.layers[0].output_shape == [[4, 5, 16], [[2, 4, 16], [2, 4, 16]]]


def test_summary_in_a_notebook():
    models.bind(torch)
    shown = torch.summary(models.mlp(), (1, 20))._repr_html_()
    assert shown.count("<tr>") == 1 + 4 and "<th" in shown and "MACs: 1,600" in shown
    with pytest.raises(TypeError, match="takes a model"):
        torch.summary(3)


# ---- graphs ----


def boxes_of(svg: str) -> dict[str, tuple[float, float, float]]:
    """The left end, the right end and the upper side of each box, by its text."""
    found = {}
    for number, group in enumerate(ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}g")):
        rect = group.find("{http://www.w3.org/2000/svg}rect")
        texts = [t.text for t in group.iter("{http://www.w3.org/2000/svg}text")]
        x, y, width = (float(rect.get(key)) for key in ("x", "y", "width"))
        found[f"{number} {texts[0]}"] = (x, x + width, y)
    return found


def test_graph_of_a_model(tmp_path):
    model = Model()
    # Of so few pixels a batch norm is several records, which are one box.
    loss = nn.functional.cross_entropy(model(torch.randn(2, 4, 3, 3)), torch.tensor([0, 2]))
    drawing = torch.graph(loss, tmp_path / "graph.svg")
    svg = (tmp_path / "graph.svg").read_text()
    assert svg == drawing._repr_svg_() and "prefers-color-scheme: dark" in svg
    boxes = boxes_of(svg)
    names = [name.split(" ")[1] for name in boxes]
    for name, _ in model.named_parameters():
        assert names.count(name) == (0 if name.startswith("spare") else 1)
    assert names[-1] == "result" and "batch_norm_by_batch" in names and "relu" in names
    places = list(boxes.values())
    for i, (left, right, top) in enumerate(places):  # no two boxes overlap
        for other_left, other_right, other_top in places[:i]:
            assert top != other_top or right <= other_left or other_right <= left
    root = ET.fromstring(svg)
    width = float(root.get("width"))
    assert all(left >= 0 and right <= width for left, right, _ in places)
    ends = re.findall(r' d="M([\d.]+),([\d.]+).* ([\d.]+),([\d.]+)"', svg)
    assert all(float(y0) < float(y1) for _, y0, _, y1 in ends) and len(ends) >= len(places) - 1
    assert re.search(r"<title>relu\n.*test_report_of_models.py:\d+", svg)


def test_graph_of_what_cannot_be_drawn():
    with pytest.raises(ValueError, match="has no record"):
        torch.graph(torch.ones(2))
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match=r"must end in \.svg"):
        torch.graph(x * 2, "graph.png")
    with pytest.raises(TypeError, match="takes a tensor"):
        torch.graph(3)
    shown = torch.graph(x * 2, params={"<x & y>": x}).svg
    assert "&lt;x &amp; y&gt;" in shown
    ET.fromstring(shown)


def test_large_graphs_are_cut():
    x = torch.ones(2, requires_grad=True)
    y = x
    for _ in range(3000):
        y = y * 1.5
    shown = torch.graph(y, most=50).svg
    assert "2951 earlier records are not shown" in shown
    assert shown.count("<rect") == 1 + 50 + 1


def test_layout():
    # A diamond with a long way around: 0 -> 1 -> 2 -> 4, 0 -> 3 -> 4, 0 -> 4.
    edges = [(0, 1), (1, 2), (0, 3), (2, 4), (3, 4), (0, 4)]
    laid = lay_out([40.0] * 5, edges)
    assert [box.layer for box in laid.boxes] == [0, 1, 2, 1, 3]
    assert [len(line) for line in laid.lines] == [2, 2, 2, 2, 3, 4]
    assert laid.layers == 4 and laid.width >= 40
    # Two chains that are given crossed come out apart.
    laid = lay_out([10.0] * 4, [(0, 3), (1, 2)])
    assert (laid.boxes[0].x < laid.boxes[1].x) == (laid.boxes[3].x < laid.boxes[2].x)
