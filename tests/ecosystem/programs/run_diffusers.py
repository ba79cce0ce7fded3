"""diffusers: a small UNet, its loss and a sampling loop."""

import torch
from common import digest, fill, normal, tell, train
from diffusers import DDIMScheduler, DDPMScheduler, UNet2DModel

torch.manual_seed(0)
net = fill(
    UNet2DModel(
        sample_size=8,
        in_channels=1,
        out_channels=1,
        layers_per_block=1,
        block_out_channels=(16, 32),
        norm_num_groups=8,
        down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"),
    ),
    0.1,
)
x, noise, at = normal(2, 1, 8, 8), normal(2, 1, 8, 8, seed=4), torch.tensor([3, 40])
schedule = DDPMScheduler(num_train_timesteps=100)
noisy = schedule.add_noise(x, noise, at)
numbers = {"noisy": digest(noisy), "net": digest(net(noisy, at).sample)}
numbers["losses"] = train(
    net, lambda: torch.nn.functional.mse_loss(net(noisy, at).sample, noise), 3, 1e-3
)
sampler = DDIMScheduler(num_train_timesteps=100)
sampler.set_timesteps(5)
sample = x
with torch.no_grad():
    for t in sampler.timesteps:
        sample = sampler.step(net(sample, t).sample, t, sample).prev_sample
numbers["sample"] = digest(sample)
tell(**numbers)
