"""tensorboard's SummaryWriter: scalars, a histogram, text, read again."""

import tempfile

import torch
from common import normal, tell
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.tensorboard import SummaryWriter

with tempfile.TemporaryDirectory() as folder:
    with SummaryWriter(folder) as writer:
        for step in range(4):
            writer.add_scalar("loss", torch.tensor(1.0 / (1 + step)), step)
        writer.add_scalars("both", {"a": 1.0, "b": 2.0}, 1)
        writer.add_histogram("weights", normal(100), 1)
        writer.add_text("note", "hello", 0)
        writer.add_image("image", normal(3, 4, 4).sigmoid(), 0)
    found = EventAccumulator(folder)
    found.Reload()
    tell(
        scalars=[event.value for event in found.Scalars("loss")],
        histogram=found.Histograms("weights")[0].histogram_value.sum,
        images=len(found.Images("image")),
    )
