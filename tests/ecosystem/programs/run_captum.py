"""captum: attributions of a small network."""

import torch
from captum.attr import DeepLift, IntegratedGradients, Occlusion, Saliency
from common import digest, fill, normal, tell

net = fill(torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)), 0.5)
x = normal(4, 6)
tell(
    integrated=digest(IntegratedGradients(net).attribute(x, target=1, n_steps=20)),
    saliency=digest(Saliency(net).attribute(x, target=2)),
    deeplift=digest(DeepLift(net).attribute(x, target=1)),
    occlusion=digest(Occlusion(net).attribute(x, sliding_window_shapes=(2,), target=0)),
)
