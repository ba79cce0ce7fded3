"""Special ways for large inputs give the numbers, gradients and layouts of the plain ways."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight as rl
from rushlight.nn import functional as F

pytestmark = pytest.mark.usefixtures("float32_convolutions")

PADDED = {"reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


# ---- runs: flips and borders ----


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8", "int64", "bool", "complex64"])
def test_flips_of_any_type_and_layout(device, dtype):
    given = rl.tensor(numbers(3, 5, 70).astype("float32")).mul(9).to(getattr(rl, dtype))
    x, plain = given.to(device), given.numpy()
    for dims in ((2,), (0,), (1, 2), (0, 2)):
        assert np.array_equal(x.flip(dims).cpu().numpy(), np.flip(plain, dims))
        assert np.array_equal(
            x[:, ::2, 3::2].flip(dims).cpu().numpy(), np.flip(plain[:, ::2, 3::2], dims)
        )
        assert np.array_equal(
            x.transpose(1, 2).flip(dims).cpu().numpy(), np.flip(plain.transpose(0, 2, 1), dims)
        )


@pytest.mark.parametrize("mode", PADDED)
def test_borders_of_its_own_elements(device, mode):
    plain = numbers(2, 3, 20, 37).astype("float32")
    x = rl.tensor(plain, device=device)
    for left, right, up, down in ((1, 1, 1, 1), (36, 0, 0, 19), (2, 17, 5, 1)):
        wanted = np.pad(plain, ((0, 0), (0, 0), (up, down), (left, right)), PADDED[mode])
        assert np.array_equal(F.pad(x, (left, right, up, down), mode=mode).cpu().numpy(), wanted)


@pytest.mark.parametrize("mode", PADDED)
def test_borders_that_overlap_or_cut_have_their_gradients(mode):
    x = rl.tensor(numbers(2, 4, 5), requires_grad=True)
    for pad in ((4, 4, 3, 3), (-1, 2, 1, -2), (0, 3, 2, 0)):
        assert rl.autograd.gradcheck(lambda v, pad=pad: F.pad(v.unsqueeze(0), pad, mode=mode), (x,))
        assert rl.autograd.gradgradcheck(
            lambda v, pad=pad: F.pad(v.unsqueeze(0), pad, mode=mode).exp(), (x,)
        )


def test_runs_over_a_batch_of_examples():
    x = rl.tensor(numbers(4, 2, 6, 7))
    for function in (lambda v: v.flip(-1, 0), lambda v: F.pad(v, (2, 1, 0, 3), mode="reflect")):
        each = rl.stack([function(x[i]) for i in range(4)])
        assert rl.equal(rl.vmap(function)(x), each)
        assert rl.equal(
            rl.vmap(function, in_dims=1, out_dims=1)(x.transpose(0, 1).contiguous()),
            each.transpose(0, 1),
        )


# ---- images ----


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_taps_outside_read_nothing(device, mode):
    plain = numbers(1, 2, 4, 4).astype("float32")
    plain[..., 0, 0] = np.inf  # where taps outside point to
    grid = rl.tensor([[[[0.9, 0.9], [1.2, 0.6]]]], device=device)
    found = F.grid_sample(rl.tensor(plain, device=device), grid, mode=mode, align_corners=False)
    assert np.isfinite(found.cpu().numpy()).all()


def test_sampled_images_have_second_derivatives():
    image = rl.tensor(numbers(2, 2, 4, 5), requires_grad=True)
    grid = (rl.tensor(numbers(2, 3, 2, 2, seed=1)) * 0.4).requires_grad_()
    sampled = lambda x, g: F.grid_sample(x, g, align_corners=False)  # noqa: E731
    assert rl.autograd.gradcheck(sampled, (image, grid))
    assert rl.autograd.gradgradcheck(sampled, (image, grid))
    small = rl.tensor(numbers(1, 1, 3, 4), requires_grad=True)
    for mode in ("bilinear", "bicubic"):
        assert rl.autograd.gradgradcheck(
            lambda x, m=mode: F.interpolate(x, (5, 7), mode=m).exp(), (small,)
        )


# ---- sums of products ----


@pytest.mark.parametrize("case", [(1, 1, 1, 1), (2, (1, 0, 2), (1, 1, 2), 1), (1, 2, 1, 2)])
def test_volumes_by_planes(device, case):
    stride, padding, dilation, groups = case
    x, w = (
        numbers(2, 4, 6, 7, 8).astype("float32"),
        numbers(8, 4 // groups, 3, 2, 3, seed=1).astype("float32"),
    )
    bias = rl.tensor(numbers(8, seed=2).astype("float32"))
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    inputs = [rl.tensor(v, device=device, requires_grad=True) for v in (x, w)]
    # float64 goes by windows.
    plain = [rl.tensor(v, dtype=rl.float64, requires_grad=True) for v in (x, w)]
    found = F.conv3d(*inputs, bias.to(device), **options)
    wanted = F.conv3d(*plain, bias.double(), **options)
    np.testing.assert_allclose(
        found.detach().cpu().numpy(), wanted.detach().numpy(), rtol=1e-4, atol=1e-4
    )
    assert found.is_contiguous()
    for result, values in ((found, inputs), (wanted, plain)):
        grads = rl.autograd.grad(result.sin().sum(), values, create_graph=True)
        (grads[0] * grads[0]).sum().backward()
    for mine, other in zip(inputs, plain, strict=True):
        np.testing.assert_allclose(
            mine.grad.cpu().numpy(), other.grad.numpy(), rtol=1e-3, atol=2e-3
        )


def test_cross_products_by_element(device):
    a, b = numbers(4, 3, 5).astype("float32"), numbers(4, 3, 1, seed=1).astype("float32")
    x, y = (rl.tensor(v, device=device) for v in (a, b))
    np.testing.assert_allclose(
        rl.cross(x, y, dim=1).cpu().numpy(),
        np.cross(a, np.broadcast_to(b, a.shape), axis=1),
        atol=1e-6,
    )
    # No product is kept in higher precision than the other; NVIDIA's Vulkan compiler contracts them
    # anyway.
    assert rl.cross(x, x, dim=1).abs().max().item() <= (1e-6 if device == "webgpu" else 0)
    v, w = (
        rl.tensor(numbers(2, 3), requires_grad=True),
        rl.tensor(numbers(2, 3, seed=1), requires_grad=True),
    )
    assert rl.autograd.gradgradcheck(lambda p, q: rl.cross(p, q, dim=1), (v, w))
    with pytest.raises(rl.DTypeError, match="cross"):
        rl.cross(rl.ones(3, dtype=rl.bool), rl.ones(3, dtype=rl.bool), dim=0)


def test_areas_of_infinite_ends():
    y = rl.tensor([[1.0, 2.0, 4.0], [rl.inf, 1.0, 1.0]])
    assert rl.trapezoid(y, dx=0.5).tolist() == [2.25, rl.inf]
    assert rl.trapezoid(y, dim=0).tolist() == [rl.inf, 1.5, 2.5]


def test_integers_are_remainders_of_two_words(device):
    for skip in (0, 1):
        for low, high in ((0, 10), (-3, 2**40), (0, 2**63 - 1), (5, 6), (-(2**63), 2**63 - 1)):
            rl.manual_seed(7)
            rl.rand(skip)
            words = rl.randint(-(2**63), 2**63 - 1, (9,)).numpy()
            rl.manual_seed(7)
            rl.rand(skip)
            found = rl.randint(low, high, (9,), device=device).cpu().numpy()
            drawn = [(int(n) + 2**63) % 2**64 for n in words]
            assert found.tolist() == [low + n % (high - low) for n in drawn]


# ---- transforms ----


@pytest.mark.parametrize(
    "shape", [(5, 6, 15), (4, 8, 16)], ids=str
)  # powers of two have their own way
def test_transforms_of_single_and_double_precision(shape):
    x, z = numbers(*shape).astype("float32"), numbers(*shape) + 1j * numbers(*shape, seed=1)
    for norm in ("backward", "ortho", "forward"):
        for dims in ((1, 2), (2,), (0, 2)):
            half = rl.fft.rfftn(rl.tensor(x), dim=dims, norm=norm)
            assert half.dtype is rl.complex64
            np.testing.assert_allclose(
                half.numpy(), np.fft.rfftn(x, axes=dims, norm=norm), rtol=1e-4, atol=1e-4
            )
            back = rl.fft.irfftn(half, [x.shape[d] for d in dims], dims, norm)
            np.testing.assert_allclose(back.numpy(), x, rtol=1e-4, atol=1e-5)
            given = rl.tensor(z)
            whole = rl.fft.fftn(given, dim=dims, norm=norm)
            np.testing.assert_allclose(whole.numpy(), np.fft.fftn(z, axes=dims, norm=norm))
            np.testing.assert_allclose(rl.fft.ifftn(whole, dim=dims, norm=norm).numpy(), z)
            assert np.array_equal(given.numpy(), z)  # what is done in place is done in the result


def test_rows_of_transforms_do_not_depend_on_threads():
    x, count = rl.tensor(numbers(37, 1000).astype("float32")), rl.get_num_threads()
    try:
        rl.set_num_threads(3)
        several = rl.fft.rfft(x)
        rl.set_num_threads(1)
        assert rl.equal(rl.view_as_real(several), rl.view_as_real(rl.fft.rfft(x)))
    finally:
        rl.set_num_threads(count)
    one = rl.cat([rl.fft.rfft(x[i : i + 1]) for i in range(37)])
    assert rl.equal(rl.view_as_real(several), rl.view_as_real(one))


# ---- running folds ----


@pytest.mark.parametrize("rows", [1, 2, 3, 4, 7, 8])
def test_rows_that_are_folded_side_by_side_have_the_bits_of_one(rows):
    x = rl.tensor(numbers(rows, 50).astype("float32"))
    for fold in (
        lambda v: v.cumsum(-1),
        lambda v: v.cumprod(-1),
        lambda v: v.cummax(-1).values,
        lambda v: v.cummin(-1).indices,
    ):
        assert rl.equal(fold(x), rl.stack([fold(x[i]) for i in range(rows)]))
        assert rl.equal(fold(x[:, ::2]), rl.stack([fold(x[i, ::2]) for i in range(rows)]))


@pytest.mark.parametrize("name", ["gelu", "silu", "tanh", "erf", "log1p"])
def test_large_maps_whose_bodies_a_device_expands(device, name: str):
    x = rl.linspace(0.1, 3, 1 << 17)
    call = getattr(rl, name, None) or getattr(F, name)
    assert rl.allclose(call(x.to(device)).cpu(), call(x), rtol=1e-5, atol=1e-6)
