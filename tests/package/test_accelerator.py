"""rushlight.accelerator: the GPU that is there, or none."""

import rushlight as rl
from rushlight.devices.shared.registry import accelerators


def test_the_accelerator_is_a_gpu_or_none():
    found = rl.accelerator.current_accelerator()
    assert (
        rl.accelerator.is_available() == (found is not None) == bool(rl.accelerator.device_count())
    )
    device = found.type if rl.accelerator.is_available() else "cpu"
    assert rl.ones(2, device=device).sum() == 2
    assert found is None or found.type in accelerators() == ["cuda", "webgpu"]
    rl.accelerator.synchronize()
    rl.accelerator.set_device_index(0)
    assert rl.accelerator.current_device_index() == 0


def test_a_block_with_another_one():
    for number in (0, None):
        before = rl.accelerator.current_device_index()
        with rl.accelerator.device_index(number):
            assert rl.accelerator.current_device_index() == before
        assert rl.accelerator.current_device_index() == before
