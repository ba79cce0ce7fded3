"""einops: rearrange, reduce, repeat, einsum and layers."""

import einops
import torch
from common import digest, normal, tell
from einops.layers.torch import Rearrange, Reduce

x = normal(2, 3, 8, 8)
net = torch.nn.Sequential(
    Rearrange("b c (h p) (w q) -> b (h w) (c p q)", p=2, q=2), Reduce("b n d -> b d", "mean")
)
tell(
    rearranged=digest(einops.rearrange(x, "b c (h p) w -> b (p c) w h", p=4)),
    reduced=digest(einops.reduce(x, "b c h w -> b c", "max")),
    repeated=digest(einops.repeat(x, "b c h w -> b c (h 2) w")),
    einsum=digest(einops.einsum(x, x, "b c h w, b d h w -> b c d")),
    layers=digest(net(x)),
)
