"""kornia: filters, colours, geometry."""

import kornia as k
import torch
from common import digest, normal, tell

x = normal(2, 3, 16, 16).sigmoid()
angle = torch.tensor([10.0, 40.0])
tell(
    blur=digest(k.filters.gaussian_blur2d(x, (5, 5), (1.2, 1.2))),
    sobel=digest(k.filters.sobel(x)),
    hsv=digest(k.color.rgb_to_hsv(x)),
    lab=digest(k.color.rgb_to_lab(x)),
    rotate=digest(k.geometry.transform.rotate(x, angle)),
    resize=digest(k.geometry.transform.resize(x, (9, 9))),
    canny=digest(k.filters.canny(x)[0]),
    ssim=digest(k.losses.ssim_loss(x, x.flip(-1), 5)),
)
