"""amp.custom_fwd and custom_bwd: the autocast state of a user function."""

import rushlight as rl

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
    assert callable(rl.cuda.amp.custom_fwd(lambda ctx: None)) and callable(
        rl.cuda.amp.custom_bwd()(lambda ctx: None)
    )
