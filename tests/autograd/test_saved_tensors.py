"""saved_tensors_hooks: arguments, freed memory, the same bits, writes, regions, second order."""

from __future__ import annotations

import gc
import io

import pytest

import rushlight as rl
import rushlight.nn.functional as F
from rushlight import DeviceError, GraphFreedError, InplaceError, RushlightError, autograd
from rushlight.autograd import Function, grad, gradients, graph
from rushlight.tape.walk.saves import saves_of
from rushlight.utils.checkpoint import checkpoint


def leaf(*numbers: float, device: str = "cpu") -> rl.Tensor:
    return rl.tensor(list(numbers) or [1.0, 2.0], requires_grad=True, device=device)


def same(tensor):
    return tensor


class Noted:
    """Hooks that record their arguments and keep copies."""

    def __init__(self):
        self.packed, self.unpacked = [], []
        self.hooks = graph.saved_tensors_hooks(self.pack, self.unpack)

    def pack(self, tensor):
        assert not tensor.requires_grad
        assert not rl.is_grad_enabled()
        self.packed.append(tensor.tolist())
        return tensor.clone()

    def unpack(self, copy):
        assert not rl.is_grad_enabled()
        self.unpacked.append(copy.tolist())
        return copy


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        out = x * x * x
        ctx.save_for_backward(x, out)
        return out

    @staticmethod
    def backward(ctx, g):
        x, out = ctx.saved_tensors
        return g * 3 * out / x


def network(x, w):
    h = (x @ w).sigmoid()
    h = h.softmax(1) * h.exp()
    return (h[:, 1:].t() + h.view(-1)[:4].sum()).tanh().sum()


# ---- arguments ----


def test_inputs_and_results_are_packed_when_recorded(device):
    x = leaf(device=device)
    noted = Noted()
    with noted.hooks:
        y = x * x
        z = y.exp()
    w = z * z  # outside
    assert noted.packed[:2] == [[1, 2], [1, 2]]
    assert noted.packed[2] == z.tolist()
    assert len(noted.packed) == 3
    assert noted.unpacked == []
    w.sum().backward()
    assert sorted(map(str, noted.unpacked)) == sorted(map(str, noted.packed))


def test_each_pass_unpacks_and_a_freed_graph_is_gone():
    x = leaf()
    noted = Noted()
    with noted.hooks:
        y = x.exp()
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    assert len(noted.unpacked) == 2
    with pytest.raises(GraphFreedError):
        y.sum().backward()
    assert len(noted.unpacked) == 2


def test_nothing_is_packed_where_nothing_is_saved():
    x = leaf()
    noted = Noted()
    with noted.hooks:
        y = (x + 1).view(2, 1).sum()
        with rl.no_grad():
            x.exp()
        rl.ones(2).exp()
    y.backward()
    assert noted.packed == []


def test_the_innermost_hooks_alone():
    x = leaf()
    outer, inner = Noted(), Noted()
    with outer.hooks:
        a = x.exp()
        with inner.hooks:
            b = a.sin()
        c = b.exp()
    c.sum().backward()
    assert (len(outer.packed), len(inner.packed)) == (2, 1)
    assert (len(outer.unpacked), len(inner.unpacked)) == (2, 1)


def test_functions_of_the_user():
    x = leaf()
    noted = Noted()
    with noted.hooks:
        y = Cube.apply(x)
    assert noted.packed == [[1, 2], [1, 8]]
    (g,) = grad(y.sum(), x, create_graph=True)
    assert g.tolist() == [3, 12]
    assert grad(g.sum(), x)[0].tolist() == [6, 12]


def test_writes_in_place_pack_the_old_and_the_new_bits():
    x = leaf()
    noted = Noted()
    with noted.hooks:
        h = x * 1
        h.mul_(h)
        h.exp_()
    h.sum().backward()
    assert noted.packed[-1] == h.tolist()
    plain = leaf()
    (want,) = grad((plain * plain).exp().sum(), plain)
    assert x.grad.tolist() == want.tolist()


# ---- the same bits ----


def test_the_same_bits_to_second_order(device):
    rl.manual_seed(0)
    x = rl.randn(4, 3, device=device, requires_grad=True)
    w = rl.randn(3, 5, device=device, requires_grad=True)

    def first_and_second():
        parts = grad(network(x, w), (x, w), create_graph=True)
        return [*parts, *grad([p.square().sum() for p in parts], (x, w))]

    want = [g.tolist() for g in first_and_second()]
    with graph.saved_tensors_hooks(lambda t: t.clone(), same):
        got = [g.tolist() for g in first_and_second()]
    assert got == want
    with graph.saved_tensors_hooks(
        lambda t: t.cpu().numpy().copy(), lambda a: rl.tensor(a, device=device)
    ):
        got = [g.tolist() for g in first_and_second()]
    assert got == want


def test_the_same_bits_by_several_threads():
    rl.manual_seed(0)
    x = rl.randn(64, 512, requires_grad=True)
    weights = [rl.randn(512, 64, requires_grad=True) for _ in range(4)]

    def run(workers):
        with graph.saved_tensors_hooks(lambda t: t.clone(), same):
            y = sum((x @ w).sigmoid().exp().sum() for w in weights)
        found = gradients(y, retain_graph=True, workers=workers)
        autograd.backward(y, workers=workers)
        grads = [t.grad.tolist() for t in (x, *weights)]
        assert [found[t].tolist() for t in (x, *weights)] == grads
        for t in (x, *weights):
            t.grad = None
        return grads

    assert run(1) == run(2) == run(3)


def test_another_layout_than_the_saved_one():
    x = rl.arange(6.0).view(2, 3).requires_grad_()
    y = rl.arange(6.0).view(3, 2) + 1

    def run():
        (g,) = grad((x.t() * y).exp().sum(), x)
        return g.tolist()

    want = run()
    with graph.saved_tensors_hooks(lambda t: t.tolist(), lambda rows: rl.tensor(rows)):
        assert run() == want
    with graph.saved_tensors_hooks(lambda t: t.t().clone(), lambda t: t.t()):
        assert run() == want
    assert run() == want


def order(tensor):
    """The dimensions as they lie in memory, the outermost first."""
    dims = [d for d in range(tensor.ndim) if tensor.shape[d] > 1]
    return sorted(dims, key=lambda d: -tensor.stride(d))


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t.t(),
        lambda t: t[:, :1].expand(4, 5),
        lambda t: t[1:, 1:],
        lambda t: t[:0].t(),
        lambda t: t[0],
    ],
)
def test_what_comes_back_lies_as_it_lay(view):
    x = rl.randn(4, 5)
    y = rl.ones(view(x).shape, requires_grad=True)
    with graph.saved_tensors_hooks(
        lambda t: t.tolist(), lambda rows: rl.tensor(rows).reshape(view(x).shape)
    ):
        z = y * view(x)
    (seen,) = saves_of(z.grad_fn)[1]
    assert seen.tolist() == view(x).tolist()
    assert order(seen) == order(view(x))
    z.sum().backward()
    assert y.grad.tolist() == view(x).tolist()


# ---- memory ----


def test_the_original_memory_is_free():
    x = rl.ones(1 << 16, requires_grad=True)
    gc.collect()
    before = rl.memory.allocated("cpu")

    def grown(hooks):
        with hooks:
            y = (x.exp().sin() * 2).cos().sum()
        used = rl.memory.allocated("cpu") - before
        y.backward()
        x.grad = None
        return used

    plain = grown(graph.saved_tensors_hooks(same, same))
    halved = grown(graph.saved_tensors_hooks(lambda t: t.half(), lambda t: t.float()))
    outside = grown(
        graph.saved_tensors_hooks(lambda t: t.numpy().tobytes(), lambda b: frombuffer(b))
    )
    # exp's result, which sin needs too, and cos's operand.
    assert 2 * x.nbytes < plain < 2.1 * x.nbytes
    assert 1.5 * x.nbytes < halved < 1.6 * x.nbytes  # three of half the size
    assert outside < 4096
    assert rl.memory.allocated("cpu") == before


def frombuffer(data: bytes) -> rl.Tensor:
    return rl.frombuffer(bytearray(data), dtype=rl.float32)


def test_save_on_cpu_frees_the_device_and_counts_its_copies(require_device):
    device = require_device("webgpu")
    x = rl.ones(1 << 16, requires_grad=True, device=device)
    size = x.nbytes

    def step(hooks):
        gc.collect()
        before = rl.memory.allocated(device)
        with hooks:
            h = x.exp()
            y = (h * h).sin().sum()  # h is saved three times: by exp, and twice by mul
            del h
        used = rl.memory.allocated(device) - before
        copies = rl.memory.transfers()
        y.backward()
        back = rl.memory.transfers()["to_device"] - copies["to_device"]
        gradient, x.grad = x.grad.tolist()[:3], None
        return used, back, gradient

    used, back, want = step(graph.saved_tensors_hooks(same, same))
    assert used >= 2 * size
    assert back == 0
    start = rl.memory.transfers()
    used, back, got = step(graph.save_on_cpu(pin_memory=True))
    assert used < size
    assert rl.memory.transfers()["bytes_to_host"] - start["bytes_to_host"] >= 2 * size
    assert 2 <= back <= 4
    assert got == want


def test_save_on_cpu_on_the_cpu_changes_nothing():
    x = leaf()
    with graph.save_on_cpu():
        y = (x * x).exp()
    y.sum().backward()
    plain = leaf()
    (plain * plain).exp().sum().backward()
    assert x.grad.tolist() == plain.grad.tolist()


# ---- writes ----


def test_a_write_to_what_was_packed_as_it_is_is_found():
    for pack, unpack in [
        (same, same),
        (lambda t: ("kept", t), lambda p: p[1]),
        (lambda t: t.view(2, 1), lambda t: t.view(2)),
    ]:
        x = leaf()
        with graph.saved_tensors_hooks(pack, unpack):
            h = x * 2
            y = h * h
        h.add_(1)
        with pytest.raises(InplaceError, match=r"mul.*test_saved_tensors.py"):
            y.sum().backward()


def test_a_write_to_a_packed_copy_is_found_and_one_to_the_original_does_no_harm():
    x = leaf()
    kept = []

    def pack(t):
        kept.append(t.clone())
        return kept[-1]

    with graph.saved_tensors_hooks(pack, same):
        h = x * 2
        y = h.exp()
    y.add_(1)  # exp saved its result: the copy has it
    y.sum().backward(retain_graph=True)
    assert x.grad.tolist() == pytest.approx([2 * 2.718281828**2, 2 * 2.718281828**4], rel=1e-5)
    kept[-1].zero_()
    with pytest.raises(InplaceError):
        y.sum().backward()


def test_a_pack_hook_must_not_write():
    x = leaf()
    with (
        graph.saved_tensors_hooks(lambda t: t.add_(1), same),
        pytest.raises(InplaceError, match="pack hook wrote"),
    ):
        (x * 2).exp()


def test_what_is_saved_may_be_written_to_where_that_is_allowed(device):
    x = leaf(device=device)
    with graph.allow_mutation_on_saved_tensors():
        h = x * 2
        y = h * h
        h.sin_()
        z = h.exp()
        z.add_(1)
        total = (y + z).sum()
        (g,) = grad(total, x, retain_graph=True)
        with rl.no_grad():
            x.add_(0)
    plain = leaf(device=device)
    u = plain * 2
    (want,) = grad((u * u + u.sin().exp()).sum(), plain)
    assert g.tolist() == want.tolist()
    assert grad(total, x)[0].tolist() == want.tolist()


def test_a_write_after_the_stretch_is_an_error_again():
    x = leaf()
    with graph.allow_mutation_on_saved_tensors() as stretch:
        h = x * 2
        y = h * h
    h.add_(1)
    with pytest.raises(InplaceError):
        y.sum().backward()
    with graph.allow_mutation_on_saved_tensors() as stretch:
        h = x * 2
        y = h * h
        stretch.clear()
        h.add_(1)
        with pytest.raises(InplaceError):
            y.sum().backward()


def test_an_optimiser_s_step_where_writes_are_allowed():
    w = leaf()
    steps = rl.optim.SGD([w], lr=0.5)
    with graph.allow_mutation_on_saved_tensors():
        y = (w * w).sum()
        y.backward(retain_graph=True)
        steps.step()
        steps.step()
        w.grad = None
        y.backward()
    assert w.grad.tolist() == [2, 4]


# ---- regions ----


def test_in_a_checkpoint_what_is_inside_is_dropped_not_packed(device):
    x = leaf(device=device)
    outer, inner = Noted(), Noted()
    (want,) = grad((x * 2).sin().exp().sum(), x)

    def inside(t):
        return t.sin().exp()

    def hooked(t):
        with inner.hooks:
            return t.sin().exp()

    with outer.hooks:
        y = checkpoint(inside, x * 2)
    assert outer.packed == []
    (g,) = grad(y.sum(), x, create_graph=True)
    assert g.tolist() == want.tolist()
    y = checkpoint(hooked, x * 2)
    assert len(inner.packed) == 2
    (g,) = grad(y.sum(), x)
    assert g.tolist() == want.tolist()
    assert len(inner.unpacked) == 2


def test_in_a_budget():
    x = rl.linspace(0, 1, 1 << 14).requires_grad_()

    def run():
        y = x
        for _ in range(8):
            y = (y * y).sin().exp()
        return grad(y.sum(), x)[0].tolist()

    want = run()
    with rl.memory.budget(rl.memory.allocated("cpu") + 20 * x.nbytes, device="cpu"):
        with graph.saved_tensors_hooks(lambda t: t.numpy().tobytes(), frombuffer):
            assert run() == want
        limit = rl.memory.get_budget("cpu")
        with graph.saved_tensors_hooks(lambda t: t * 1, same), pytest.raises(rl.BudgetError):
            y = x
            kept = []
            for _ in range(30):
                y = (y * y).sin().exp()
                kept.append(y.grad_fn)
                assert rl.memory.allocated("cpu") <= limit
    assert run() == want


def test_a_limit_binds_what_an_unpack_hook_made():
    """Blocks of other sizes are cached up to the limit, and the gradient takes one of them."""
    x = rl.ones(1 << 14, requires_grad=True)
    mask = x.detach() > 0.5
    rl.memory.empty_cache()
    limit = rl.memory.reserved("cpu") + 8 * x.nbytes
    with rl.memory.budget(limit, device="cpu"):
        with graph.saved_tensors_hooks(same, lambda t: t.clone()):
            total = x.masked_fill(mask, 0.0).sum()
        rl.ones((limit - rl.memory.reserved("cpu")) // 4 - 1024)  # freed, and cached
        total.backward()
        assert rl.memory.reserved("cpu") <= limit


def test_explaining_a_graph_whose_saves_are_elsewhere():
    x = leaf()
    with graph.saved_tensors_hooks(lambda t: t.tolist(), lambda rows: rl.tensor(rows)):
        y = x.exp().sum()
    text = io.StringIO()
    rl.explain(y, file=text)
    assert "hooks for saved tensors" in text.getvalue()
    rl.explain(checkpoint(lambda t: t.sin().exp(), x).sum(), file=text)
    assert "dropped, to be made again" in text.getvalue()


# ---- errors ----


def test_what_unpack_gives_is_checked(require_device):
    require_device("webgpu")
    for unpack, error in [
        (lambda t: 3, TypeError),
        (lambda t: t[:1], rl.ShapeError),
        (lambda t: t.double(), rl.DTypeError),
        (lambda t: t.to("webgpu"), DeviceError),
    ]:
        x = leaf()
        with graph.saved_tensors_hooks(same, unpack):
            y = x.exp()
        with pytest.raises(error, match="exp: an unpack hook"):
            y.sum().backward()


def test_an_unpack_hook_that_raises_once():
    x = leaf()
    fails = [True]

    def unpack(t):
        if fails.pop():
            raise ZeroDivisionError
        return t

    with graph.saved_tensors_hooks(same, unpack):
        y = x.exp()
    with pytest.raises(ZeroDivisionError):
        y.sum().backward()
    fails.append(False)
    y.sum().backward()
    assert x.grad.tolist() == y.tolist()


@pytest.mark.parametrize(
    "write", [lambda h: h.exp_(), lambda h: h.mul_(h * 2), lambda h: h[1:].exp_()]
)
def test_a_pack_hook_that_raises_in_a_write_leaves_bits_and_record(write):
    x = leaf()
    h = x * 1
    before, record = h.tolist(), h.grad_fn

    def fail(t):
        raise ZeroDivisionError

    with graph.saved_tensors_hooks(fail, same), pytest.raises(ZeroDivisionError):
        write(h)
    assert h.tolist() == before
    assert h.grad_fn is record
    h.sum().backward()
    assert x.grad.tolist() == [1.0] * x.numel()


def test_hooks_can_be_refused():
    with graph.disable_saved_tensors_hooks("not here"):
        with pytest.raises(RushlightError, match="not here"), graph.saved_tensors_hooks(same, same):
            pass
        with pytest.raises(RushlightError, match="not here"), graph.save_on_cpu():
            pass
    noted = Noted()
    with (
        noted.hooks,
        pytest.raises(RushlightError, match="nor here"),
        graph.disable_saved_tensors_hooks("nor here"),
    ):
        pass
    with graph.saved_tensors_hooks(same, same):
        pass


@pytest.mark.parametrize("name", ["group_norm", "grid_sample"])
def test_unpacked_rows_that_lie_apart(name: str):
    """A derivative looks at a save as rows; the layout that a hook gives it has no such view."""
    grid = rl.rand(1, 4, 4, 2)
    functions = {
        "group_norm": lambda x: F.group_norm(x, 2, rl.ones(4), rl.ones(4)),
        "grid_sample": lambda x: F.grid_sample(x, grid, align_corners=False),
    }
    function = functions[name]
    x = rl.randn(1, 4, 4, 4, requires_grad=True)
    slope = rl.randn(*function(x).shape)
    (want,) = rl.autograd.grad(function(x), x, slope)
    with rl.autograd.graph.saved_tensors_hooks(
        lambda s: rl.cat([s, s], -1), lambda s: s[..., : s.shape[-1] // 2]
    ):
        made = function(x)
    (found,) = rl.autograd.grad(made, x, slope)
    assert rl.allclose(found, want, rtol=1e-4, atol=1e-5)
