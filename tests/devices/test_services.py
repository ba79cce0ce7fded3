"""Every service of `services.py` on every device; half precision, large indices, host transfers."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import memory
from rushlight.devices.shared.registry import pool_of
from tests.devices.services import NEEDS_FLOAT64, SERVICES, got


def bits(*tensors: rl.Tensor | None) -> list[bytes | None]:
    return [None if t is None else got(t).tobytes() for t in tensors]


def crossed(device: str) -> int:
    """Bytes copied from devices to the host so far."""
    pool_of(device).device.synchronize()
    return memory.transfers()["bytes_to_host"]


@pytest.mark.parametrize("name", list(SERVICES))
def test_every_service_runs(name, device):
    if name in NEEDS_FLOAT64 and rl.float64 not in pool_of(device).device.limits.dtypes:
        pytest.skip("limit: no float64")
    SERVICES[name](device)


def test_there_are_75_services():
    assert len(SERVICES) == 75


def test_half_precision_matmul_is_half_precision(device):
    """Operands are rounded to half precision; sums are float32."""
    x = rl.full((2, 4096), 1 + 2.0**-12, device=device, requires_grad=True)  # a half rounds it to 1
    y = rl.ones(4096, 3, device=device)
    with rl.autocast(device, dtype=rl.float16):
        product = x @ y
    assert product.dtype == rl.float16
    # Sums in float16 would stop at 2048; in float32 of x: 4097.
    assert got(product).tolist() == [[4096.0] * 3] * 2
    product.sum().backward()
    assert x.grad.dtype == rl.float32
    assert got(x.half() @ y.half()).tolist() == [[4096.0] * 3] * 2
    large = rl.full((1, 2), 300.0, device=device).half()
    assert got(large @ large.t()).tolist() == [[np.inf]]  # 180000 is no half


def test_dropout_returns_another_mask_on_every_call(device):
    x = rl.ones(500, device=device)
    masks = {bits(F.dropout(x, 0.5))[0] for _ in range(4)} | {
        bits(rl.nn.Dropout(0.5)(x))[0] for _ in range(4)
    }
    assert len(masks) == 8


def test_indices_above_2_to_the_24_are_exact(device):
    """float32 does not hold every integer above 2^24."""
    place = 2**24 + 1  # a float32 has 2^24 and 2^24 + 2 next to it
    x = rl.zeros(2**24 + 4, dtype=rl.uint8, device=device)
    x[place] = 7
    index = rl.tensor([place - 1, place, place + 1], device=device)
    assert got(x[index]).tolist() == [0, 7, 0]
    assert got(x.index_select(0, index)).tolist() == [0, 7, 0]
    assert got(x.gather(0, index)).tolist() == [0, 7, 0]
    assert x.argmax().item() == place
    assert got(x.nonzero()).tolist() == [[place]]
    assert got(index + 1).tolist() == [place, place + 1, place + 2]


def test_the_inf_nan_check_does_not_download_the_buffer(device):
    p = rl.ones(1 << 16, device=device, requires_grad=True)
    optimizer = rl.optim.SGD([p], lr=0.1)
    scaler = rl.amp.GradScaler(device, init_scale=4.0)
    before = crossed(device)
    assert not bool((p / 0.0).isfinite().all())
    assert bool(p.isfinite().all())
    scaler.scale((p * rl.inf).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert crossed(device) - before <= 64
    assert got(p).tolist() == [1.0] * (1 << 16)  # the step was left out


@pytest.mark.parametrize("other", ["webgpu", "cuda"])
def test_several_devices_in_one_process(other, require_device):
    require_device(other)
    assert len(SERVICES) == 75
    x = rl.ones(4, requires_grad=True)
    y = (x * 2).to(other)
    (y * rl.full((4,), 3.0, device=other)).sum().backward()
    assert x.grad.device == rl.device("cpu")
    assert x.grad.tolist() == [6.0] * 4


def test_every_dtype(device):
    for dtype in pool_of(device).device.limits.dtypes:
        x = rl.ones(3, dtype=dtype, device=device)
        assert (
            got((x + x if dtype is not rl.bool else x | x).to(rl.float32)).tolist()
            == [1.0 if dtype is rl.bool else 2.0] * 3
        )
