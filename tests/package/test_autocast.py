"""autocast: which operands are cast, on which devices, and which casts are kept."""

import threading
from contextlib import nullcontext
from functools import partial

import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight.core.errors import RushlightWarning
from rushlight.ops.create import creation
from rushlight.utils.checkpoint import checkpoint

LOWER, WIDE = rl.bfloat16, rl.float32
CLASSES = [0, 1, 2]


def _losses(x):
    y = x * 2 + 0.125  # the same numbers in both dtypes
    target = rl.tensor(CLASSES, device=x.device)
    sign = rl.ones(3, dtype=x.dtype, device=x.device)
    return {
        "binary_cross_entropy_with_logits": lambda: F.binary_cross_entropy_with_logits(x, y),
        "cosine_embedding_loss": lambda: F.cosine_embedding_loss(x, y, sign),
        "cross_entropy": lambda: F.cross_entropy(x, target),
        "cross_entropy of shares": lambda: F.cross_entropy(x, y),
        "hinge_embedding_loss": lambda: F.hinge_embedding_loss(x, y),
        "huber_loss": lambda: F.huber_loss(x, y),
        "kl_div": lambda: F.kl_div(x, y, reduction="sum"),
        "l1_loss": lambda: F.l1_loss(x, y),
        "margin_ranking_loss": lambda: F.margin_ranking_loss(x, y, y),
        "mse_loss": lambda: F.mse_loss(x, y),
        "multi_margin_loss": lambda: F.multi_margin_loss(x, target),
        "nll_loss": lambda: F.nll_loss(x, target),
        "poisson_nll_loss": lambda: F.poisson_nll_loss(x, y),
        "smooth_l1_loss": lambda: F.smooth_l1_loss(x, y),
        "soft_margin_loss": lambda: F.soft_margin_loss(x, y),
        "triplet_margin_loss": lambda: F.triplet_margin_loss(x, y, x),
        "cdist": lambda: rl.cdist(x, y),
        "prod": lambda: x.prod(),
    }


def _products(x):
    image, window = x.reshape(1, 1, 3, 3), x.reshape(1, 1, 3, 3)
    return {
        "matmul": lambda: x @ x,
        "mm": lambda: rl.mm(x, x),
        "bmm": lambda: rl.bmm(x[None], x[None]),
        "addmm": lambda: rl.addmm(x, x, x),
        "baddbmm": lambda: rl.baddbmm(x, x[None], x[None]),
        "linear": lambda: F.linear(x, x, x[0]),
        "conv2d": lambda: F.conv2d(image, window),
        "conv_transpose2d": lambda: F.conv_transpose2d(image, window),
        "einsum": lambda: rl.einsum("ij,jk->ik", x, x),
        "multi_dot": lambda: rl.linalg.multi_dot([x, x]),
        "chain_matmul": lambda: rl.chain_matmul(x, x),
        "vecdot": lambda: rl.linalg.vecdot(x, x),
        "prelu": lambda: F.prelu(x, x[0]),
        "attention": lambda: F.scaled_dot_product_attention(x, x, x),
    }


def _float32_of_cards(x):
    return {
        **{
            name: (lambda name=name: getattr(rl, name)(x))
            for name in (
                *("acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2"),
                *("log1p", "reciprocal", "rsqrt", "sinh", "tan", "sum", "norm"),
            )
        },
        "pow": lambda: x**2,
        "pow of tensors": lambda: rl.pow(x, x),
        "cumsum": lambda: x.cumsum(0),
        "cumprod": lambda: x.cumprod(0),
        "dist": lambda: rl.dist(x, x),
        "group_norm": lambda: F.group_norm(x[None], 3),
        "layer_norm": lambda: F.layer_norm(x, (3,)),
        "log_softmax": lambda: F.log_softmax(x, 1),
        "logsumexp": lambda: rl.logsumexp(x, 1),
        "softmax": lambda: F.softmax(x, 1),
        "softplus": lambda: F.softplus(x),
        "vector_norm": lambda: rl.linalg.vector_norm(x),
    }


def _made(dtype, device="cpu"):
    return (rl.arange(9.0).reshape(3, 3) / 32 + 0.03125).to(dtype).to(device)


@pytest.mark.parametrize("name", _products(_made(WIDE)))
def test_contractions_run_in_the_lower_dtype(name):
    for dtype in (WIDE, LOWER):
        call = _products(_made(dtype))[name]
        with rl.autocast("cpu"):
            assert call().dtype is LOWER
        assert call().dtype is dtype
    assert _products(_made(rl.float64))[name]().dtype is rl.float64


@pytest.mark.parametrize("name", _losses(_made(WIDE)))
def test_losses_run_in_float32(name):
    call = _losses(_made(LOWER))[name]
    with rl.autocast("cpu"):
        wide = call()
    assert wide.dtype is WIDE
    assert call().dtype is LOWER
    rl.testing.assert_close(wide, _losses(_made(LOWER).float())[name]())


@pytest.mark.parametrize("name", _float32_of_cards(_made(WIDE)))
def test_cards_have_a_longer_list(name):
    """The reference device stands for a card; its list is PyTorch's for CUDA."""
    x = _made(rl.float16, "reference")
    with rl.autocast("reference", rl.float16):
        assert _float32_of_cards(x)[name]().dtype is WIDE
    with rl.autocast("cpu", rl.float16):
        assert _float32_of_cards(_made(rl.float16))[name]().dtype is rl.float16


def test_some_ops_of_cards_take_the_widest_type():
    half, wide = _made(rl.float16, "reference"), _made(WIDE, "reference")
    with rl.autocast("reference", rl.float16):
        assert rl.addcmul(half, half, half).dtype is rl.float16
        assert rl.dot(half[0], wide[0]).dtype is WIDE
        assert rl.tensordot(half, wide, 1).dtype is WIDE
        assert rl.atan2(half, half).dtype is rl.float16


def test_binary_cross_entropy_is_refused_on_cards():
    x = _made(rl.float16)
    with rl.autocast("cpu", rl.float16):
        assert F.binary_cross_entropy(x, x).dtype is WIDE
    there = x.to("reference")
    with rl.autocast("reference", rl.float16):
        with pytest.raises(RuntimeError, match="with_logits"):
            F.binary_cross_entropy(there, there)
        with rl.autocast("reference", enabled=False):
            assert F.binary_cross_entropy(there, there).dtype is rl.float16


def test_only_the_named_device_is_cast():
    x, there = _made(WIDE), _made(WIDE, "reference")
    with rl.autocast("cuda"):
        assert (x @ x).dtype is WIDE and rl.is_autocast_enabled() and rl.is_autocast_enabled("cuda")
        assert not rl.is_autocast_enabled("cpu")
        assert rl.get_autocast_dtype("cuda") is rl.float16
        with rl.autocast("cpu"):
            assert (x @ x).dtype is LOWER and (there @ there).dtype is WIDE
            assert rl.is_autocast_enabled("cuda")
    with rl.autocast("reference"):
        assert (x @ x).dtype is WIDE and (there @ there).dtype is LOWER


def test_recurrent_layers():
    x = rl.ones(3, 2, 4)
    with rl.autocast("cpu"):
        assert rl.nn.LSTM(4, 4)(x)[0].dtype is LOWER and rl.nn.RNN(4, 4)(x)[0].dtype is LOWER
        assert rl.nn.GRU(4, 4)(x)[0].dtype is WIDE
        h, c = rl.nn.LSTMCell(4, 4)(x[0])
        assert h.dtype is WIDE and c.dtype is WIDE
    layer, there = rl.nn.GRU(4, 4).to("reference"), x.to("reference")
    with rl.autocast("reference"):
        assert layer(there)[0].dtype is LOWER


def test_writes_and_integers_are_left():
    x = _made(WIDE)
    whole = rl.ones(3, 3, dtype=rl.int64)
    with rl.autocast("cpu"):
        assert rl.mm(x, x, out=rl.empty(3, 3)).dtype is WIDE
        y = x.clone().addmm_(x, x)
        assert (whole @ whole).dtype is rl.int64
        assert F.mse_loss(x.double(), x.double()).dtype is rl.float64
    assert rl.equal(y, x.clone().addmm_(x, x))


def test_kept_casts_of_weights():
    w = _made(WIDE).requires_grad_()
    with rl.autocast("cpu"):
        first, second = rl.mm(w, w), rl.mm(w, w)
        kept = rl.amp._now().casts
        assert len(kept) == 1
        ((_, _, copy),) = kept.values()
        assert copy.dtype is LOWER
        with rl.no_grad():
            w.mul_(2)
        assert rl.equal(rl.mm(w, w), first * 4)  # another version is cast again
        with rl.autocast("cpu", enabled=False):
            assert rl.mm(w, w).dtype is WIDE
        assert len(rl.amp._now().casts) == 1
        rl.clear_autocast_cache()
        assert not kept
    assert rl.equal(first, second)
    with rl.autocast("cpu", cache_enabled=False):
        rl.mm(w, w)
        assert not rl.is_autocast_cache_enabled() and not rl.amp._now().casts
    with rl.autocast("cpu"):
        assert not rl.amp._now().casts  # of another region


def test_kept_casts_are_counted_and_freed():
    w = rl.ones(512, 512, requires_grad=True)
    rl.mm(w, w)
    with rl.autocast("cpu"):
        rl.mm(w, w)
        inside = rl.memory.allocated("cpu")
    assert inside - rl.memory.allocated("cpu") == 512 * 512 * 2


def test_kept_casts_follow_the_grad_mode():
    w = _made(WIDE).requires_grad_()
    with rl.autocast("cpu"):
        with rl.no_grad():
            assert not rl.mm(w, w).requires_grad
        out = rl.mm(w, w)
    out.float().sum().backward()
    assert w.grad.dtype is WIDE and bool((w.grad != 0).any())


def test_gradients_are_those_of_casts_by_hand():
    made = []
    for by_hand in (False, True):
        w = _made(WIDE).requires_grad_()
        x = _made(WIDE) + 1
        if by_hand:
            lower = w.to(LOWER)
            hidden = rl.exp(x.to(LOWER) @ lower)
            loss = F.mse_loss((hidden @ lower).float(), x)
        else:
            with rl.autocast("cpu"):
                loss = F.mse_loss(rl.exp(x @ w) @ w, x)
        loss.backward()
        made.append((loss.detach(), w.grad))
    assert rl.equal(made[0][0], made[1][0]) and rl.equal(made[0][1], made[1][1])


@pytest.mark.parametrize("way", ["checkpoint", "parts", "budget", "hooks"])
def test_a_weight_of_several_uses_has_the_same_bits_with_recomputation(way):
    def layers(x, w, count=4):
        for _ in range(count):
            x = rl.tanh(x @ w)
        return x

    def gradient(body, around):
        w = rl.linspace(-1, 1, 64 * 64).reshape(64, 64).requires_grad_()
        with around, rl.autocast("cpu"):
            loss = body(rl.linspace(-2, 2, 16 * 64).reshape(16, 64), w).float().sum()
            loss.backward()
        return w.grad

    def parts(x, w):
        return layers(checkpoint(layers, x, w, 2, use_reentrant=False), w, 2)

    ways = {
        "checkpoint": (partial(checkpoint, layers, use_reentrant=False), nullcontext()),
        "parts": (parts, nullcontext()),
        "budget": (layers, rl.memory.budget("1GB")),
        "hooks": (layers, rl.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x)),
    }
    assert rl.equal(gradient(*ways[way]), gradient(layers, nullcontext()))


def test_backward_inside_a_region_and_second_derivatives():
    grads = []
    for inside in (False, True):
        x = _made(rl.float16, "reference").requires_grad_()
        with rl.autocast("reference", rl.float16):
            y = (x**3).exp().sum()
            if inside:
                (g,) = rl.autograd.grad(y, x, create_graph=True)
        if not inside:
            (g,) = rl.autograd.grad(y, x, create_graph=True)
        grads.append(g)
    assert grads[0].dtype is rl.float16 and rl.equal(grads[0], grads[1])


def test_half_logits_are_read_as_they_are():
    x = _made(LOWER).requires_grad_()
    with rl.autocast("cpu"):
        loss = F.cross_entropy(x, rl.tensor(CLASSES))
    before = loss.grad_fn.next_functions[0][0]
    assert "Cast" not in type(before).__name__ and "cast" not in before.name().lower()
    loss.backward()
    wide = _made(LOWER).float().requires_grad_()
    expected = F.cross_entropy(wide, rl.tensor(CLASSES))
    expected.backward()
    rl.testing.assert_close(loss, expected)
    assert x.grad.dtype is LOWER
    rl.testing.assert_close(x.grad.float(), wide.grad, rtol=1e-2, atol=1e-3)


def test_settings():
    assert not rl.is_autocast_enabled("cpu")
    x = _made(WIDE)
    with rl.autocast("cpu"):
        rl.set_autocast_dtype("cpu", rl.float16)
        assert (x @ x).dtype is rl.float16 and rl.get_autocast_cpu_dtype() is rl.float16
        rl.set_autocast_enabled("cpu", False)
        assert (x @ x).dtype is WIDE
        rl.set_autocast_cpu_enabled(True)
        rl.set_autocast_cpu_dtype(LOWER)
        assert (x @ x).dtype is LOWER
        rl.set_autocast_cache_enabled(False)
        assert not rl.is_autocast_cache_enabled()
    assert rl.get_autocast_cpu_dtype() is LOWER and rl.is_autocast_cache_enabled()

    def by_hand():
        rl.set_autocast_enabled(True)
        rl.set_autocast_gpu_dtype(LOWER)
        assert rl.is_autocast_enabled() and rl.get_autocast_gpu_dtype() is LOWER
        assert rl.autocast_increment_nesting() == 1 and rl.autocast_decrement_nesting() == 0

    thread = threading.Thread(target=by_hand)
    thread.start()
    thread.join()
    assert not rl.is_autocast_enabled()


def test_names_of_devices():
    with pytest.raises(RuntimeError, match="toaster"):
        rl.autocast("toaster")
    with pytest.raises(ValueError, match="text"):
        rl.autocast(rl.device("cpu"))
    with pytest.warns(RushlightWarning, match="float32"), rl.autocast("cpu", WIDE):
        assert not rl.is_autocast_enabled("cpu")


def test_as_a_decorator():
    @rl.autocast("cpu")
    def product(x):
        return x @ x

    assert product(_made(WIDE)).dtype is LOWER and (_made(WIDE) @ _made(WIDE)).dtype is WIDE


def test_cuda_is_the_device_that_a_program_runs_on(monkeypatch):
    """Under `rushlight run --device webgpu` the name "cuda" means that device."""
    monkeypatch.setitem(creation.STANDS_FOR, "cuda", lambda: "reference")
    x = _made(WIDE, "reference")
    with rl.autocast("cuda"):
        assert rl.is_autocast_enabled("cuda") and rl.is_autocast_enabled("reference")
        assert (x @ x).dtype is rl.float16
        assert (_made(WIDE) @ _made(WIDE)).dtype is WIDE
    monkeypatch.setitem(creation.STANDS_FOR, "cuda", lambda: creation.HIDDEN)
    with pytest.warns(RushlightWarning, match="no device"), rl.autocast("cuda"):
        assert not rl.is_autocast_enabled("cuda")
