"""The optimisers beside SGD and Adam, and the schedules: PyTorch's numbers, state dicts, errors.

MINIMA and RATES were made by PyTorch 2.13.0: `python tests/optim/cases.py` prints them.
"""

from __future__ import annotations

import copy

import pytest

import rushlight
from rushlight import nn
from rushlight.optim import lr_scheduler
from tests.optim.cases import OPTIMISERS, SCHEDULES, minimised, rates

MINIMA = {
    "adadelta": [0.9901277644013612, -0.4901096655968269, 0.2401070888442098],
    "adadelta decay": [1.0073947316318668, -0.5073850332385536, 0.2573835156141516],
    "adagrad": [0.7147607810009302, -0.17063814757011797, -0.07884686150477901],
    "adagrad decay": [0.7553949754780505, -0.21418866550560134, -0.035344027698366275],
    "adamax": [0.6825047203689905, -0.174482011506374, -0.07672269909169102],
    "nadam": [0.7848112844979356, -0.27153221796570337, 0.021487331234036133],
    "nadam decay": [0.7621771212771338, -0.26099985943560866, 0.01812139146531464],
    "radam": [0.740367622990045, 0.5798690708420298, -0.868280200711825],
    "radam decay": [0.7076788127314649, 0.46729412879144877, -0.8171628818300947],
    "rmsprop": [0.6518740341811256, 0.2918805876965404, -0.5790599628124112],
    "rmsprop centred": [1.905711017415178, -4.613440890977654, 4.231119874495194],
    "asgd": [0.6574118653428451, 0.011890438634485617, -0.6203068803745667],
    "rprop": [0.644375, 0.3062500000000001, -0.5562500000000001],
    "lbfgs": [0.7738550290266174, 0.06243330075302388, -0.34082257904769475],
    "lbfgs wolfe": [0.6482422973238211, 0.2942494045649816, -0.5879341408015815],
}
RATES = {
    "multiplicative": (
        [0.1, 0.09, 0.081, 0.0729, 0.06561, 0.059049, 0.0531441, 0.04782969, 0.043046721],
        0.9,
    ),
    "multistep": ([0.1, 0.1, 0.05, 0.05, 0.05, 0.0125, 0.0125, 0.0125, 0.0125], 0.9),
    "exponential": (
        [0.1, 0.09, 0.081, 0.0729, 0.06561, 0.059049, 0.0531441, 0.04782969, 0.043046721],
        0.9,
    ),
    "constant": ([0.05, 0.05, 0.05, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1], 0.9),
    "linear": ([0.02, 0.0375, 0.055, 0.0725, 0.09, 0.09, 0.09, 0.09, 0.09], 0.9),
    "polynomial": ([0.1, 0.064, 0.036, 0.016, 0.004, 0.0, 0.0, 0.0, 0.0], 0.9),
    "cosine": ([0.1, 0.0775, 0.0325, 0.01, 0.0325, 0.0775, 0.1, 0.0775, 0.0325], 0.9),
    "restarts": (
        [0.1, 0.055, 0.1, 0.086819805, 0.055, 0.023180195, 0.1, 0.096574579, 0.086819805],
        0.9,
    ),
    "cyclic": (
        [0.01, 0.073333333, 0.136666667, 0.2, 0.105, 0.01, 0.041666667, 0.073333333, 0.105],
        [0.9, 0.866666667, 0.833333333, 0.8, 0.85, 0.9, 0.883333333, 0.866666667, 0.85],
    ),
    "cyclic range": (
        [0.01, 0.067, 0.1126, 0.14851, 0.093106, 0.0473977, 0.01, 0.040292137, 0.064525847],
        0.9,
    ),
    "one cycle": (
        [
            0.012,
            0.156,
            0.3,
            0.28514539,
            0.243523696,
            0.183378607,
            0.116622593,
            0.056477504,
            0.01485581,
        ],
        [
            0.95,
            0.9,
            0.85,
            0.854951557,
            0.86882551,
            0.888873953,
            0.911126047,
            0.93117449,
            0.945048443,
        ],
    ),
    "one cycle of three": (
        [0.012, 0.204, 0.204, 0.012, 0.0100002, 0.0080004, 0.0060006, 0.0040008, 0.002001],
        [0.95, 0.883333333, 0.883333333, 0.95, 0.95, 0.95, 0.95, 0.95, 0.95],
    ),
    "sequential": ([0.01, 0.01, 0.1, 0.09, 0.081, 0.1, 0.075, 0.025, 0.0], 0.9),
    "chained": (
        [0.01, 0.009, 0.0081, 0.0729, 0.06561, 0.059049, 0.0531441, 0.04782969, 0.043046721],
        0.9,
    ),
    "plateau": ([0.1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01, 0.01, 0.001], 0.9),
    "plateau of largest": ([0.1, 0.1, 0.05, 0.03, 0.03, 0.03, 0.03, 0.03, 0.03], 0.9),
}


@pytest.mark.parametrize("case", OPTIMISERS)
def test_minima_are_pytorchs(case):
    name, options = OPTIMISERS[case]
    # PyTorch keeps ASGD's rates and NAdam's product in float32; here they are in float64.
    close = 1e-6 if name in ("ASGD", "NAdam") else 1e-10
    assert minimised(rushlight, name, options) == pytest.approx(MINIMA[case], rel=close, abs=close)


@pytest.mark.parametrize(
    "case", [case for case in OPTIMISERS if case.endswith("decay") or case in ("rprop", "asgd")]
)
def test_kernels_on_other_devices(case, device):
    """One step in float32, from the formula the CPU has."""
    name, options = OPTIMISERS[case]

    def stepped(where):
        p = rushlight.tensor([1.0, -2.0, 0.5], device=where, requires_grad=True)
        optimiser = getattr(rushlight.optim, name)([p], **options)
        for _ in range(2):
            p.grad = rushlight.tensor([0.5, 1.0, -0.25], device=where)
            optimiser.step()
        return p.detach().tolist()

    assert stepped(device) == pytest.approx(stepped("cpu"), rel=1e-5)


@pytest.mark.parametrize("case", OPTIMISERS)
def test_states_travel(case):
    name, options = OPTIMISERS[case]

    def run(interrupted):
        p = nn.Parameter(rushlight.tensor([1.0, -0.5], dtype=rushlight.float64))
        optimiser = getattr(rushlight.optim, name)([p], **options)

        def closure():
            optimiser.zero_grad()
            loss = (p.sin() * 2 + p**2).sum()
            loss.backward()
            return loss

        for i in range(4):
            optimiser.step(closure)
            if i == 1 and interrupted:
                state = copy.deepcopy(optimiser.state_dict())
                optimiser = getattr(rushlight.optim, name)([p])
                optimiser.load_state_dict(state)
        return p.tolist()

    assert run(True) == run(False)


@pytest.mark.parametrize("case", SCHEDULES)
def test_rates_are_pytorchs(case):
    wanted, momenta = RATES[case]
    seen = rates(rushlight, case)
    assert [rate for rate, _ in seen] == pytest.approx(wanted, abs=1e-8)
    assert [momentum for _, momentum in seen] == pytest.approx(
        momenta if isinstance(momenta, list) else [momenta] * 9
    )


@pytest.mark.parametrize("case", [case for case in SCHEDULES if not case.startswith("plateau")])
def test_schedules_travel(case):
    def make():
        optimiser = rushlight.optim.SGD([nn.Parameter(rushlight.zeros(1))], lr=0.1, momentum=0.9)
        return optimiser, SCHEDULES[case](lr_scheduler, optimiser)

    optimiser, schedule = make()
    for _ in range(3):
        schedule.step()
    states = copy.deepcopy((optimiser.state_dict(), schedule.state_dict()))
    later, again = make()
    again.load_state_dict(states[1])
    later.load_state_dict(states[0])
    for _ in range(4):
        schedule.step()
        again.step()
        assert (
            later.param_groups[0]["lr"]
            == optimiser.param_groups[0]["lr"]
            == schedule.get_last_lr()[0]
        )


def test_jumps_to_an_epoch():
    optimiser = rushlight.optim.SGD([nn.Parameter(rushlight.zeros(1))], lr=1.0)
    schedule = lr_scheduler.StepLR(optimiser, 3, 0.5)
    schedule.step(7)
    assert optimiser.param_groups[0]["lr"] == 0.25
    restarts = lr_scheduler.CosineAnnealingWarmRestarts(optimiser, 2, 2)
    restarts.step(2.0)
    assert optimiser.param_groups[0]["lr"] == restarts.base_lrs[0]


@pytest.mark.parametrize("keep", [0.3, 0.4, 0.6, 2 / 3])
def test_radam_is_never_rectified_where_it_forgets_fast(keep):
    p = rushlight.tensor([1.0, -2.0], requires_grad=True)
    optimiser = rushlight.optim.RAdam([p], lr=0.1, betas=(0.0, keep))
    for _ in range(8):
        p.grad = rushlight.tensor([1.0, -1.0])
        optimiser.step()
    assert p.tolist() == pytest.approx([0.2, -1.2])


def test_hooks_of_optimisers():
    p, met = nn.Parameter(rushlight.ones(1)), []
    p.grad = rushlight.ones(1)
    optimiser = rushlight.optim.Rprop([p])
    optimiser.register_step_pre_hook(lambda *_: met.append("before"))
    handle = optimiser.register_step_post_hook(lambda *_: met.append("after"))
    optimiser.step()
    handle.remove()
    optimiser.step()
    assert met == ["before", "after", "before"]
    optimiser.register_state_dict_post_hook(lambda _, state: {**state, "more": 1})
    optimiser.register_load_state_dict_pre_hook(lambda _, state: met.append(state["more"]))
    optimiser.load_state_dict(optimiser.state_dict())
    assert met[-1] == 1


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda p, _: rushlight.optim.Rprop([p], etas=(2, 3)), "etas"),
        (lambda p, _: rushlight.optim.Adadelta([p], rho=2), "rho"),
        (lambda p, _: rushlight.optim.RAdam([p], betas=(1.0, 0.9)), "betas"),
        (lambda p, _: rushlight.optim.RMSprop([p], momentum=-1), "momentum"),
        (
            lambda p, _: rushlight.optim.LBFGS(
                [{"params": [p]}, {"params": [nn.Parameter(p * 1)]}]
            ),
            "one group",
        ),
        (lambda p, _: rushlight.optim.LBFGS([p], line_search_fn="newton"), "'newton'"),
        (lambda _, o: lr_scheduler.OneCycleLR(o, 0.1), "total_steps"),
        (lambda _, o: lr_scheduler.ReduceLROnPlateau(o, factor=2.0), "factor"),
        (
            lambda _, o: lr_scheduler.SequentialLR(o, [lr_scheduler.StepLR(o, 2)], [1]),
            "0 milestones",
        ),
        (
            lambda _, o: lr_scheduler.ChainedScheduler([lr_scheduler.ReduceLROnPlateau(o)]),
            "ReduceLROnPlateau",
        ),
        (lambda _, o: lr_scheduler.CyclicLR(o, 0.1, 0.2), "cycle_momentum=False"),
        (lambda _, o: lr_scheduler.CosineAnnealingWarmRestarts(o, 0), "positive"),
        (lambda _, o: lr_scheduler.LinearLR(o, 0.0), "above 0"),
    ],
)
def test_bad_options(make, match):
    p = nn.Parameter(rushlight.ones(1))
    with pytest.raises((ValueError, RuntimeError), match=match):
        make(p, rushlight.optim.Adagrad([p]))
