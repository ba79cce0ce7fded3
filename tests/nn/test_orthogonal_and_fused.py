"""Orthogonal weights, fused batch norms, custom_fwd and custom_bwd, the accelerator, ways of attention: as in PyTorch 2.13."""

import math

import pytest

import rushlight as rl
from rushlight import nn
from rushlight.nn import utils
from rushlight.nn.attention import SDPBackend, sdpa_kernel
from rushlight.nn.utils import parametrizations


def values(*shape):
    made = [math.sin(1.7 * i + 0.3) for i in range(math.prod(shape))]
    return rl.tensor(made, dtype=rl.float64).reshape(*shape)


def layer_of(shape):
    layer = nn.Linear(shape[1], shape[0], dtype=rl.float64)
    with rl.no_grad():
        layer.weight.copy_(values(*shape))
    return layer


def assert_orthogonal(w):
    gram = w @ w.mT if w.shape[0] <= w.shape[1] else w.mT @ w
    rl.testing.assert_close(gram, rl.eye(min(w.shape), dtype=w.dtype), atol=1e-10, rtol=0)


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (2, 4)])
@pytest.mark.parametrize("kind", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("based", [True, False])
def test_orthogonal_weights_stay_orthogonal(shape, kind, based):
    layer = parametrizations.orthogonal(layer_of(shape), orthogonal_map=kind, use_trivialization=based)
    assert_orthogonal(layer.weight)
    layer(values(2, shape[1])).square().sum().backward()
    original = layer.parametrizations.weight.original
    assert original.grad.isfinite().all()
    with rl.no_grad():
        original -= 0.1 * original.grad
    assert_orthogonal(layer.weight)
    wanted = rl.eye(*shape, dtype=rl.float64)
    if based:
        layer.weight = wanted
        rl.testing.assert_close(layer.weight.detach(), wanted)
    elif kind != "householder":
        with pytest.raises(NotImplementedError, match="use_trivialization"):
            layer.weight = wanted


def test_orthogonal_weights_are_pytorch_s():
    nearest = [0.244712, 0.742451, 0.623605, -0.639904, 0.606868, -0.471417, -0.72845, -0.283686, 0.623605]
    layer = parametrizations.orthogonal(layer_of((3, 3)))
    assert layer.weight.flatten().tolist() == pytest.approx(nearest, abs=1e-6)
    layer.parametrizations.weight.original.data = values(3, 3) * 0.3
    assert layer.weight.flatten().tolist()[:3] == pytest.approx([-0.102122, 0.686132, 0.720274], abs=1e-6)
    layer = parametrizations.orthogonal(layer_of((4, 2)), orthogonal_map="cayley", use_trivialization=False)
    assert layer.weight.flatten().tolist()[:4] == pytest.approx([0.472362, 0.104785, -0.593229, 0.747308], abs=1e-6)
    layer = parametrizations.orthogonal(layer_of((2, 4)), use_trivialization=False)
    assert layer.weight.flatten().tolist()[:4] == pytest.approx([0.220756, 0.679253, -0.395792, -0.577262], abs=1e-6)


def test_orthogonal_refuses():
    with pytest.raises(ValueError, match="one of"):
        parametrizations.orthogonal(nn.Linear(2, 2), orthogonal_map="qr")
    with pytest.raises(ValueError, match="matrix"):
        parametrizations.orthogonal(nn.Linear(2, 2), "bias")
    with pytest.raises(ValueError, match="no parameter"):
        parametrizations.orthogonal(nn.Linear(2, 2), "scale")


# ---- batch norms in the layer before ----


def norm_of(kind, features):
    norm = kind(features, dtype=rl.float64).eval()
    with rl.no_grad():
        norm.running_mean.copy_(values(features))
        norm.running_var.copy_(values(features).abs() + 0.5)
        norm.weight.copy_(values(features) + 2)
        norm.bias.copy_(values(features) * 3)
    return norm


@pytest.mark.parametrize("bias", [True, False])
def test_fused_layers_do_what_both_did(bias):
    cases = [
        (nn.Conv2d(2, 3, 2, bias=bias, dtype=rl.float64), nn.BatchNorm2d, values(1, 2, 4, 4), False),
        (nn.ConvTranspose2d(2, 3, 2, bias=bias, dtype=rl.float64), nn.BatchNorm2d, values(1, 2, 3, 3), True),
        (nn.Conv1d(2, 3, 2, bias=bias, dtype=rl.float64), nn.BatchNorm1d, values(1, 2, 4), False),
    ]
    for layer, kind, x, transpose in cases:
        norm = norm_of(kind, 3)
        layer.eval()
        rl.testing.assert_close(utils.fuse_conv_bn_eval(layer, norm, transpose)(x), norm(layer(x)))
    linear, norm = nn.Linear(2, 3, bias=bias, dtype=rl.float64).eval(), norm_of(nn.BatchNorm1d, 3)
    rl.testing.assert_close(utils.fuse_linear_bn_eval(linear, norm)(values(4, 2)), norm(linear(values(4, 2))))
    with pytest.raises(AssertionError, match="eval"):
        utils.fuse_linear_bn_eval(linear.train(), norm)


def test_skip_init_and_layouts():
    made = utils.skip_init(nn.Linear, 3, 4)
    assert made.weight.shape == (4, 3) and made.weight.device.type == "cpu" and made.weight.requires_grad
    made.load_state_dict(nn.Linear(3, 4).state_dict())
    with pytest.raises(RuntimeError, match="device"):
        utils.skip_init(nn.ReLU)
    net = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Linear(2, 2))
    before = net[0].weight.detach().clone()
    utils.convert_conv2d_weight_memory_format(net, rl.channels_last)
    assert net[0].weight.is_contiguous(memory_format=rl.channels_last) and rl.equal(net[0].weight, before)


# ---- mixed precision in functions of one's own ----


SEEN = []


class Product(rl.autograd.Function):
    """Notes under which types it ran."""

    @staticmethod
    @rl.amp.custom_fwd(device_type="cpu")
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        out = a @ b
        SEEN.append(out.dtype)
        return out

    @staticmethod
    @rl.amp.custom_bwd(device_type="cpu")
    def backward(ctx, g):
        a, b = ctx.saved_tensors
        SEEN.append((g.float() @ b.T).dtype)
        return g.float() @ b.T, a.T @ g.float()


class Exact(rl.autograd.Function):
    """Takes float32 whatever autocast says."""

    @staticmethod
    @rl.amp.custom_fwd(device_type="cpu", cast_inputs=rl.float32)
    def forward(ctx, a, b):
        assert a.dtype is rl.float32 and (a @ b).dtype is rl.float32
        return a @ b

    @staticmethod
    @rl.amp.custom_bwd(device_type="cpu")
    def backward(ctx, g):
        assert (g @ g).dtype is g.dtype
        return g, g


def test_a_backward_runs_as_its_forward_did():
    SEEN.clear()
    a, b = (rl.ones(2, 2, requires_grad=True) for _ in range(2))
    with rl.autocast("cpu", rl.bfloat16):
        out = Product.apply(a, b)
    out.float().sum().backward()
    assert [rl.bfloat16, rl.bfloat16] == SEEN
    Product.apply(a, b).sum().backward()
    assert SEEN[2:] == [rl.float32, rl.float32]


def test_inputs_are_cast_and_autocast_is_off():
    a, b = (rl.ones(2, 2, dtype=rl.bfloat16, requires_grad=True) for _ in range(2))
    with rl.autocast("cpu", rl.bfloat16):
        out = Exact.apply(a, b)
        assert out.dtype is rl.float32
        out.sum().backward()
    assert a.grad.dtype is rl.bfloat16
    assert rl.amp.is_autocast_available("cpu") and not rl.amp.is_autocast_available("toaster")
    assert callable(rl.cuda.amp.custom_fwd(lambda ctx: None)) and callable(rl.cuda.amp.custom_bwd()(lambda ctx: None))


# ---- devices and ways ----


def test_ways_of_attention_give_one_result():
    q = rl.randn(1, 2, 4, 8)
    plain = nn.functional.scaled_dot_product_attention(q, q, q)
    for way in (SDPBackend.MATH, [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION]):
        with sdpa_kernel(way):
            assert rl.equal(nn.functional.scaled_dot_product_attention(q, q, q), plain)
    with pytest.raises(AssertionError, match="SDPBackend"), sdpa_kernel("math"):
        pass


def test_the_accelerator_is_a_gpu_or_none():
    found = rl.accelerator.current_accelerator()
    assert rl.accelerator.is_available() == (found is not None) == bool(rl.accelerator.device_count())
    device = found.type if rl.accelerator.is_available() else "cpu"
    assert rl.ones(2, device=device).sum() == 2
    assert found is None or found.type in ("cuda", "webgpu")
    rl.accelerator.synchronize()
    rl.accelerator.set_device_index(0)
    assert rl.accelerator.current_device_index() == 0
