"""differentiable, capturable, fused, foreach; Adafactor, Muon; averaged weights.

Expected numbers are PyTorch 2.13's.
"""

import copy
import math

import pytest

import rushlight as rl
from rushlight import optim
from rushlight.optim import swa_utils

CLASSES = [
    (optim.SGD, {}),
    (optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    (optim.Adam, {"weight_decay": 0.1}),
    (optim.Adam, {"amsgrad": True, "maximize": True}),
    (optim.AdamW, {"weight_decay": 0.1}),
    (optim.Adadelta, {"weight_decay": 0.1}),
    (optim.Adagrad, {"weight_decay": 0.1}),
    (optim.RMSprop, {"momentum": 0.9, "centered": True}),
    (optim.Adamax, {"weight_decay": 0.1}),
    (optim.NAdam, {"weight_decay": 0.1}),
    (optim.RAdam, {"weight_decay": 0.1, "maximize": True}),
    (optim.ASGD, {"weight_decay": 0.1}),
]
IDS = [f"{cls.__name__} {' '.join(named)}" for cls, named in CLASSES]


def values(*shape):
    return rl.tensor([math.sin(1.7 * i + 0.3) for i in range(math.prod(shape))]).reshape(*shape)


def after_steps(cls, named, x, g, lr, steps=3, **more):
    """A parameter after some steps with gradients that grow."""
    p = x.clone()
    optimiser = cls([p], lr=lr, differentiable=True, **named)
    for k in range(steps):
        p.grad = g * (k + 1) + g * g
        optimiser.step()
    return p


@pytest.mark.parametrize(("cls", "named"), CLASSES, ids=IDS)
def test_a_differentiable_step_is_the_step_and_has_its_derivative(cls, named):
    x = rl.tensor([0.5, -1.5, 0.2], dtype=rl.float64, requires_grad=True)
    g = rl.tensor([0.3, 0.7, -0.4], dtype=rl.float64, requires_grad=True)
    lr = rl.tensor(0.1, dtype=rl.float64, requires_grad=True)
    assert rl.autograd.gradcheck(
        lambda x, g, lr: after_steps(cls, named, x, g, lr), (x, g, lr), atol=1e-6
    )
    plain = x.detach().clone().requires_grad_()
    optimiser = cls([plain], lr=0.1, **named)
    for k in range(3):
        plain.grad = (g * (k + 1) + g * g).detach()
        optimiser.step()
    rl.testing.assert_close(after_steps(cls, named, x, g, 0.1).detach(), plain.detach())


def test_numbers_of_differentiable_steps():
    def run(cls, **named):
        x = rl.tensor([0.5, -1.5], dtype=rl.float64, requires_grad=True)
        g = rl.tensor([0.3, 0.7], dtype=rl.float64, requires_grad=True)
        p = x.clone()
        optimiser = cls([p], lr=0.1, differentiable=True, **named)
        for k in range(3):
            p.grad = g * (k + 1)
            optimiser.step()
        return [t.tolist() for t in rl.autograd.grad((p * p).sum(), [x, g])]

    assert run(optim.SGD, weight_decay=0.1) == [
        pytest.approx([0.5944954052, -3.634071518]),
        pytest.approx([-0.3651711549, 2.2322428091]),
    ]
    assert run(optim.RMSprop, weight_decay=0.1) == [
        pytest.approx([-4.4267451203, -8.6714227816]),
        pytest.approx([1.4403639497, -0.2235363418]),
    ]
    assert run(optim.RAdam) == [
        pytest.approx([0.7242144106, -3.6434997087]),
        pytest.approx([-0.3328798302, 1.6747078579]),
    ]


def test_learning_to_learn():
    """The loss after a step differentiates the learning rate."""
    lr = rl.tensor(0.01, requires_grad=True)
    p = rl.tensor([2.0], requires_grad=True).clone()
    inner = optim.SGD([p], lr=lr, differentiable=True)
    (p.grad,) = rl.autograd.grad((p * p).sum(), p, create_graph=True)
    inner.step()
    (p * p).sum().backward()
    assert lr.grad.item() == pytest.approx(2 * (2 - 0.01 * 4) * -4)
    inner.zero_grad()
    assert p.grad is None


def test_differentiable_steps_of_complex_numbers_and_of_halves():
    z = rl.tensor([1 + 2j], dtype=rl.complex128, requires_grad=True)
    p = z.clone()
    step = optim.Adam([p], lr=0.1, differentiable=True)
    p.grad = rl.tensor([0.5 - 1j], dtype=rl.complex128)
    step.step()
    assert p.item() == pytest.approx(0.9 + 2.1j)
    half = rl.ones(2, dtype=rl.bfloat16, requires_grad=True).clone()
    optimiser = optim.SGD([half], lr=0.5, differentiable=True)
    half.grad = rl.ones(2, dtype=rl.bfloat16)
    optimiser.step()
    assert half.dtype is rl.bfloat16 and half.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("cls", [optim.SGD, optim.Adam, optim.AdamW, optim.Adagrad])
def test_what_is_refused(cls):
    p = rl.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="`fused` and `foreach` cannot be `True` together"):
        cls([p], fused=True, foreach=True)
    with pytest.raises(RuntimeError, match="`fused` does not support `differentiable`"):
        cls([p], fused=True, differentiable=True)
    with pytest.raises(ValueError, match="Tensor lr must be 1-element"):
        cls([p], lr=rl.tensor([0.1, 0.2]))
    with pytest.raises(ValueError, match="leaves"):
        cls([p * 2])
    p.grad = rl.ones(2)
    with pytest.raises(RuntimeError, match="leaf"):
        cls([p], differentiable=True).step()
    with pytest.raises(AssertionError, match="foreach"):
        q = p * 1
        q.grad = rl.ones(2)
        cls([q], differentiable=True, foreach=True).step()
    for named in ({"fused": True}, {"foreach": True}):
        cls([p], **named).step()


@pytest.mark.parametrize(
    "cls",
    [
        optim.Adam,
        optim.AdamW,
        optim.Adadelta,
        optim.RMSprop,
        optim.Adamax,
        optim.NAdam,
        optim.RAdam,
        optim.ASGD,
        optim.Rprop,
    ],
)
def test_capturable_is_for_cuda(cls):
    p = rl.ones(2, requires_grad=True)
    p.grad = rl.ones(2)
    with pytest.raises(AssertionError, match="must be on supported devices"):
        cls([p], capturable=True).step()
    assert p.tolist() == [1, 1]


def test_options_have_pytorch_s_names_and_defaults():
    p = [rl.ones(2, requires_grad=True)]
    assert set(optim.Adam(p).defaults) == {
        *(
            "lr",
            "betas",
            "eps",
            "weight_decay",
            "amsgrad",
            "maximize",
            "foreach",
            "capturable",
            "differentiable",
        ),
        *("fused", "decoupled_weight_decay"),
    }
    assert (
        optim.AdamW(p).defaults["decoupled_weight_decay"]
        and not optim.Adam(p).defaults["decoupled_weight_decay"]
    )
    assert (
        optim.ASGD(p).defaults["capturable"] is False
        and optim.Rprop(p).defaults["differentiable"] is False
    )
    one, two = (rl.ones(2, requires_grad=True) for _ in range(2))
    one.grad = two.grad = rl.tensor([1.0, -2])
    optim.Adam([one], weight_decay=0.1, decoupled_weight_decay=True).step()
    optim.AdamW([two], weight_decay=0.1).step()
    assert one.tolist() == two.tolist()
    with pytest.raises(ValueError, match="foreach=True"):
        optim.Adam(p, lr=rl.tensor(0.1), foreach=True)


# ---- matrices ----


def stepped(cls, shape, **named):
    p = values(*shape).requires_grad_()
    optimiser = cls([p], **named)
    for k in range(3):
        p.grad = (values(*shape) * (k + 1)).cos()
        optimiser.step()
    return p.detach().reshape(-1).tolist(), optimiser


@pytest.mark.parametrize(
    ("shape", "named", "expected"),
    [
        ((5,), {}, [0.27693, 0.91536, -0.54135, -0.77183, 0.72796]),
        (
            (3, 4),
            {},
            [
                0.27133,
                0.9155,
                -0.5446,
                -0.77208,
                0.72745,
                0.57587,
                -0.87297,
                -0.37739,
                0.97813,
                0.08451,
            ],
        ),
        (
            (5,),
            {"weight_decay": 0.1, "maximize": True},
            [0.31322, 0.9005, -0.51674, -0.77139, 0.72779],
        ),
        (
            (3, 4),
            {"lr": 0.5, "d": 2.0, "eps": (1e-6, 1e-2)},
            [-1.07957, 1.38555, -1.3014, -0.6292, 0.75655, 0.1424],
        ),
        (
            (2, 3, 2),
            {"beta2_decay": -0.5},
            [0.27522, 0.91467, -0.54193, -0.77109, 0.73007, 0.57289, -0.87481],
        ),
    ],
)
def test_adafactor(shape, named, expected):
    got, optimiser = stepped(optim.Adafactor, shape, **named)
    assert got[: len(expected)] == pytest.approx(expected, abs=2e-5)
    kept = set(next(iter(optimiser.state.values())))
    assert kept == ({"step", "row_var", "col_var"} if len(shape) > 1 else {"step", "variance"})


@pytest.mark.parametrize(
    ("shape", "named", "expected"),
    [
        (
            (3, 4),
            {"lr": 0.1, "momentum": 0.5, "weight_decay": 0.0},
            [0.13, 0.95, -0.6, -0.74, 0.7, 0.66, -0.76, -0.54],
        ),
        (
            (4, 3),
            {"lr": 0.1, "momentum": 0.5, "weight_decay": 0.0},
            [0.1, 0.97, -0.48, -0.62, 0.71, 0.42, -0.9, -0.58],
        ),
        (
            (4, 3),
            {"nesterov": False, "adjust_lr_fn": "match_rms_adamw"},
            [0.29, 0.91, -0.53, -0.77, 0.73, 0.58],
        ),
    ],
)
def test_muon(shape, named, expected):
    got, _ = stepped(optim.Muon, shape, **named)
    assert got[: len(expected)] == pytest.approx(expected, abs=0.02)  # it computes in bfloat16


def test_a_step_of_muon_is_nearly_orthogonal():
    p = rl.zeros(4, 8, requires_grad=True)
    p.grad = values(4, 8)
    optim.Muon([p], lr=1.0, weight_decay=0.0).step()
    sizes = rl.linalg.svdvals(p.detach())
    assert (sizes > 0.6).sum() >= 2 and sizes.max() < 1.3  # of rank 2 before noise
    with pytest.raises(ValueError, match="2D"):
        optim.Muon([rl.ones(3, requires_grad=True)])
    with pytest.raises(ValueError, match="adjust_lr_fn"):
        optim.Muon([rl.ones(3, 3, requires_grad=True)], adjust_lr_fn="mine")
    with pytest.raises(ValueError, match="clipping"):
        optim.Adafactor([p], d=0.5)


# ---- averages ----


def small_model():
    model = rl.nn.Sequential(rl.nn.Linear(2, 2), rl.nn.BatchNorm1d(2))
    with rl.no_grad():
        model[0].weight.copy_(values(2, 2))
        model[0].bias.copy_(values(2))
    return model


@pytest.mark.parametrize(
    ("named", "weight", "mean", "batches"),
    [
        ({}, [0.70186, 2.15958, -1.25836, -1.83532], [0.16338, 0.21692], 3),
        ({"use_buffers": True}, [0.70186, 2.15958, -1.25836, -1.83532], [0.09629, 0.15551], 1),
        (
            {"multi_avg_fn": swa_utils.get_ema_multi_avg_fn(0.9)},
            [0.51864, 1.59582, -0.92986, -1.3562],
            [0.16338, 0.21692],
            3,
        ),
        (
            {"avg_fn": swa_utils.get_ema_avg_fn(0.9)},
            [0.51864, 1.59582, -0.92986, -1.3562],
            [0.16338, 0.21692],
            3,
        ),
        (
            {"avg_fn": swa_utils.get_swa_avg_fn()},
            [0.70186, 2.15958, -1.25836, -1.83532],
            [0.16338, 0.21692],
            3,
        ),
    ],
)
def test_averaged_models(named, weight, mean, batches):
    model = small_model()
    average = swa_utils.AveragedModel(model, **named)
    for k in range(3):
        with rl.no_grad():
            model[0].weight.mul_(1.5)
        model(values(4, 2) * (k + 1))
        average.update_parameters(model)
    assert average.module[0].weight.flatten().tolist() == pytest.approx(weight, abs=2e-5)
    assert average.module[1].running_mean.tolist() == pytest.approx(mean, abs=2e-5)
    assert average.n_averaged == 3 and average.module[1].num_batches_tracked == batches
    again = swa_utils.AveragedModel(small_model(), **named)
    again.load_state_dict(copy.deepcopy(average.state_dict()))
    assert again(values(4, 2)).shape == (4, 2) and again.n_averaged == 3


def test_update_bn():
    model = small_model().eval()
    swa_utils.update_bn([(values(4, 2), 1), (values(4, 2) * 2, 1)], model)
    assert model[1].running_mean.tolist() == pytest.approx([0.3767, 0.88054], abs=2e-5)
    assert model[1].running_var.tolist() == pytest.approx([2.05313, 2.30176], abs=3e-5)
    assert model[1].momentum == 0.1 and not model.training


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        (
            {},
            [
                1.0,
                0.976752,
                0.909283,
                0.804198,
                0.671783,
                0.525,
                0.378217,
                0.245802,
                0.140717,
                0.073248,
                0.05,
                0.05,
            ],
        ),
        (
            {"anneal_epochs": 3, "anneal_strategy": "linear"},
            [1.0, 0.683333, 0.366667, 0.05, 0.05, 0.05],
        ),
        ({"anneal_epochs": 0}, [0.05, 0.05, 0.05]),
    ],
)
def test_swalr(named, expected):
    optimiser = optim.SGD([rl.ones(1, requires_grad=True)], lr=1.0)
    schedule, rates = swa_utils.SWALR(optimiser, 0.05, **named), []
    for _ in expected:
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        schedule.step()
    assert rates == pytest.approx(expected, abs=1e-6)


def test_bad_averages():
    with pytest.raises(ValueError, match="decay"):
        swa_utils.get_ema_avg_fn(1.5)
    optimiser = optim.SGD([rl.ones(1, requires_grad=True)], lr=1.0)
    with pytest.raises(ValueError, match="anneal_strategy"):
        swa_utils.SWALR(optimiser, 0.1, anneal_strategy="poly")
    with pytest.raises(ValueError, match="one for each group"):
        swa_utils.SWALR(optimiser, [0.1, 0.2])
