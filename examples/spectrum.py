"""Find the tones in a noisy record, and learn a filter that keeps only them.

python examples/spectrum.py [--device webgpu]

It uses FFT, topk, least squares and complex gradients. pocketfft and LAPACK run on the host; on a
GPU a warning says so once, and the transfers are counted.
"""

from __future__ import annotations

import argparse
import math

import rushlight as torch


def record(n: int, rate: float, device: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Times, the clean signal of three tones, and the same in noise."""
    time = torch.arange(n, device=device) / rate
    tones = torch.tensor([[40.0, 1.0], [97.0, 0.6], [160.0, 0.3]], device=device)
    clean = (tones[:, 1:] * torch.sin(2 * math.pi * tones[:, :1] * time)).sum(0)
    return time, clean, clean + 0.8 * torch.randn(n, device=device)


def strongest(noisy: torch.Tensor, rate: float, count: int) -> torch.Tensor:
    """The frequencies with the largest amplitudes, ascending."""
    amplitude = torch.fft.rfft(noisy).abs()
    places = amplitude[1:].topk(count).indices + 1
    return places.sort().values * (rate / noisy.numel())


def fit(time: torch.Tensor, noisy: torch.Tensor, tones: torch.Tensor) -> torch.Tensor:
    """The amplitude of each tone, by least squares on its sine and cosine."""
    angle = 2 * math.pi * time[:, None] * tones
    waves = torch.cat([torch.sin(angle), torch.cos(angle)], 1)
    weights = torch.linalg.lstsq(waves, noisy[:, None]).solution[:, 0]
    return torch.hypot(*weights.reshape(2, -1))


def learn_filter(noisy: torch.Tensor, clean: torch.Tensor, steps: int) -> torch.Tensor:
    """A complex gain per frequency that takes the noisy record to the clean one.

    Its gradient goes through two FFTs.
    """
    spectrum = torch.fft.rfft(noisy)
    gain = torch.zeros_like(spectrum).requires_grad_()
    optimizer = torch.optim.SGD([gain], lr=0.5)
    for step in range(steps):
        optimizer.zero_grad()
        error = (torch.fft.irfft(gain * spectrum, n=clean.numel()) - clean).square().mean()
        error.backward()
        optimizer.step()
        if step % (steps // 4) == 0 or step == steps - 1:
            print(f"  step {step:3d}: mean squared error {error.item():.5f}")
    return gain.detach()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, default=60)
    options = parser.parse_args()
    torch.manual_seed(0)
    rate = 1000.0
    time, clean, noisy = record(2000, rate, options.device)
    tones = strongest(noisy, rate, 3)
    print("tones found (Hz):", [round(f, 1) for f in tones.tolist()])
    print("their amplitudes:", [round(a, 2) for a in fit(time, noisy, tones).tolist()])
    print("learning a filter:")
    gain = learn_filter(noisy, clean, options.steps)
    passed = gain.abs().topk(3).indices.sort().values * (rate / noisy.numel())
    print("frequencies it lets through (Hz):", [round(f, 1) for f in passed.tolist()])
    print("copies between host and device:", torch.memory.transfers())


if __name__ == "__main__":
    main()
