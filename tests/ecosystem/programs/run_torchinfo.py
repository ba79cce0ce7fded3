"""torchinfo: the summary of a model."""

import torch
from common import tell
from torchinfo import summary

net = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3),
    torch.nn.BatchNorm2d(8),
    torch.nn.ReLU(),
    torch.nn.Flatten(),
    torch.nn.Linear(8 * 14 * 14, 10),
)
found = summary(net, (2, 3, 16, 16), verbose=0)
tell(
    parameters=found.total_params,
    macs=int(found.total_mult_adds),
    shapes=[layer.output_size for layer in found.summary_list],
)
