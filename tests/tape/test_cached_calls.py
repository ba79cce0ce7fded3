"""A memo does what its function does: the same values, records and errors. See Note [Memo]."""

import pytest

import rushlight as rl
from rushlight.nn import functional as F
from rushlight.utils.checkpoint import checkpoint


def made(*shape):
    return rl.arange(float(rl.zeros(shape).numel())).reshape(shape) / 7 - 1


def _whole(x, numbers):
    return rl.tensor(numbers, device=x.device)


CALLS = {
    "sum": lambda x: x.sum(1),
    "sum of all": lambda x: x.sum(),
    "mean": lambda x: x.mean(0, keepdim=True),
    "std": lambda x: x.std(1),
    "max": lambda x: x.max(1).values,
    "softmax": lambda x: rl.softmax(x, 1),
    "clamp": lambda x: x.clamp(-0.5, 0.25),
    "view": lambda x: x.view(2, 6) * 2,
    "chain of views": lambda x: x.t().unsqueeze(0).expand(2, 4, 3).reshape(-1) * 3,
    "split": lambda x: x.split(2, 1)[1],
    "cat": lambda x: rl.cat([x, x * 2], 0),
    "stack": lambda x: rl.stack([x, x * x], 1),
    "matmul": lambda x: x @ x.t(),
    "tril": lambda x: rl.tril(x),
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "cross_entropy": lambda x: F.cross_entropy(x, rl.tensor([1, 0, 3], device=x.device)),
    "sort": lambda x: rl.sort(x, 1, descending=True).values,
    "topk": lambda x: x.topk(2, 0)[0],
    "scatter": lambda x: x.scatter(1, _whole(x, [[0, 0], [3, 1]]), x * 2),
    "scatter a number": lambda x: x.scatter(1, _whole(x, [[0, 0], [3, 1]]), 1.5),
    "scatter_reduce": lambda x: x.scatter_reduce(
        0, _whole(x, [[0, 2, 1, 1]] * 3), x * x, "amax", include_self=False
    ),
    "index_add": lambda x: x.index_add(0, _whole(x, [1, 1, 0]), x, alpha=2),
    "index_copy": lambda x: x.index_copy(0, _whole(x, [1, 1, 0]), x * 3),
    "index_fill": lambda x: x.index_fill(0, _whole(x, [-1, 0]), 2.0),
    "index_put": lambda x: x.index_put((_whole(x, [0, -1]),), x[:2] * 2, accumulate=True),
    "put": lambda x: x.put(_whole(x, [-1, 3]), x[0, :2]),
    "take": lambda x: x.take(_whole(x, [-1, 3])),
    "einsum": lambda x: rl.einsum("ij,kj->ik", x, x + 1),
    "normalize": lambda x: F.normalize(x),
    "huber_loss": lambda x: F.huber_loss(x, x * x),
    "kl_div": lambda x: F.kl_div(x, rl.softmax(x, 1), reduction="sum"),
    "conv1d": lambda x: F.conv1d(x.unsqueeze(0), x.t()[:2].unsqueeze(-1) * 2, padding=1),
    "max_pool1d": lambda x: F.max_pool1d(x.unsqueeze(0), 2),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x.unsqueeze(0), (2, 3)),
    "interpolate": lambda x: F.interpolate(x.unsqueeze(0), scale_factor=1.5, mode="linear"),
    "pad": lambda x: F.pad(x, (1, 2), value=3.0),
    "index_select": lambda x: x.index_select(1, rl.tensor([2, 2, 0], device=x.device)),
}


@pytest.mark.parametrize("name", CALLS)
def test_later_calls_are_the_first(name, device):
    act = CALLS[name]
    results = []
    for _ in range(3):
        x = made(3, 4).to(device).requires_grad_(True)
        out = act(x)
        (first,) = rl.autograd.grad(out, x, rl.ones_like(out), create_graph=True)
        results.append((out.detach().cpu(), first.detach().cpu()))
    with rl.no_grad():
        plain = [act(made(3, 4).to(device)) for _ in range(3)]
    for out, gradient in results[1:]:
        assert rl.equal(out, results[0][0]) and rl.equal(gradient, results[0][1])
    for out in plain:
        assert rl.equal(out.cpu(), results[0][0]) and not out.requires_grad


def test_arguments_that_are_equal_but_not_the_same():
    x = made(3, 4)
    for _ in range(2):
        assert x.std(0).shape == (4,) and x.std(False).shape == ()
    whole = rl.arange(6)
    for _ in range(2):
        assert whole.clamp(1, 2).dtype is rl.int64 and whole.clamp(1.0, 2.0).dtype is rl.float32


def test_a_tensor_given_twice_is_not_two_tensors():
    a, b = made(3, 4), made(3, 4) * 2
    assert F.mse_loss(a, a) == 0 and F.mse_loss(a, b) != 0
    twice, both = rl.cat([b, b]), rl.cat([a, b])
    assert rl.equal(twice[:3], b) and rl.equal(both[:3], a) and rl.equal(both[3:], b)


def test_sizes_in_a_tuple_are_not_sizes_in_a_row():
    for _ in range(2):
        assert rl.zeros((2,)).shape == (2,) and rl.zeros(2, 1).shape == (2, 1)
        assert rl.zeros(()).shape == () and rl.zeros(0).shape == (0,)
        assert rl.zeros((3, 2)).shape == (3, 2) and rl.zeros(3, 2, 2).shape == (3, 2, 2)
        assert rl.full((2,), 1).dtype is rl.int64 and rl.full((2,), 1.0).dtype is rl.float32


def test_an_error_stays_an_error():
    x = made(3, 4)
    for _ in range(3):
        with pytest.raises(IndexError):
            x.sum(2)
        assert x.sum(1).shape == (3,)
        with pytest.raises(RuntimeError):
            rl.cat([x, made(2, 2)], 0)


def test_a_view_made_by_a_program_shares_memory_and_history():
    for _ in range(2):
        base = made(3, 4) * 1
        seen = base.view(12)
        base.mul_(2)
        assert rl.equal(seen, base.reshape(-1))
        source = rl.ones(3, 4, requires_grad=True)
        grown = source * 3
        part = grown.view(12)
        grown.mul_(part.detach().view(3, 4))
        part.sum().backward()
        assert rl.equal(source.grad, rl.full((3, 4), 9.0))


def test_autocast_is_not_bypassed():
    a, b = made(4, 4), made(4, 4)
    for _ in range(2):
        assert (a @ b).dtype is rl.float32
        with rl.autocast("cpu", dtype=rl.bfloat16):
            assert (a @ b).dtype is rl.bfloat16


def test_inside_a_checkpoint():
    for _ in range(2):
        x = made(3, 4).requires_grad_(True)
        checkpoint(
            lambda v: rl.softmax(v.t().reshape(3, 4), 1).std(1).sum(), x, use_reentrant=False
        ).backward()
        again = made(3, 4).requires_grad_(True)
        rl.softmax(again.t().reshape(3, 4), 1).std(1).sum().backward()
        assert rl.equal(x.grad, again.grad)


def test_a_choice_by_what_is_recorded_is_not_learned():
    x = rl.randn(7, 7, dtype=rl.float64)
    # Without a record only singular values are computed, which has no derivative.
    rl.norm(x, "nuc")
    x.requires_grad_()
    rl.norm(x, "nuc").backward()
    u, _, vh = rl.linalg.svd(x.detach())
    assert rl.allclose(x.grad, u @ vh)


def test_zeros_of_both_signs_are_two_numbers():
    mask = rl.tensor([True, False])

    def signs(number):
        x = rl.ones(2)
        made = [
            rl.full((2,), number),
            rl.full_like(x, number),
            x.masked_fill(mask, number),
            rl.clamp(x - 2, min=number),
        ]
        return [(1 / v)[0].item() for v in made]

    for _ in range(3):  # the function, then its cached program
        assert signs(0.0) == [float("inf")] * 4
        assert signs(-0.0) == [float("-inf")] * 4


def test_a_number_of_another_class_is_another_call():
    x = rl.ones(2, 3)
    assert x.sum(1).tolist() == x.sum(dim=1).tolist() == [3.0, 3.0]
    for other in (True, 1.0):
        with pytest.raises(TypeError):
            x.sum(other)
        with pytest.raises(TypeError):
            x.sum(dim=other)
    assert x.sum((1,)).tolist() == x.sum([1]).tolist() == [3.0, 3.0]
    for other in (True, 1.0):
        with pytest.raises(TypeError):
            x.sum((other,))
