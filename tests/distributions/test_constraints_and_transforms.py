"""biject_to and transform_to, composed transforms, LKJCholesky and GeneralizedPareto.

Expected numbers are PyTorch 2.13's.
"""

import math

import pytest

import rushlight as rl
from rushlight import distributions as D
from rushlight.distributions import constraints as C, utils


def values(*shape):
    made = [math.sin(1.7 * i + 0.3) for i in range(math.prod(shape))]
    return rl.tensor(made, dtype=rl.float64).reshape(*shape)


def flat(t):
    return t.reshape(-1).tolist()


SETS = {
    "real": C.real,
    "real_vector": C.real_vector,
    "positive": C.positive,
    "greater_than": C.greater_than(2.0),
    "greater_than_eq": C.greater_than_eq(-1.0),
    "less_than": C.less_than(3.0),
    "unit_interval": C.unit_interval,
    "interval": C.interval(-1.0, 2.0),
    "interval of tensors": C.interval(
        rl.zeros(3, dtype=rl.float64), rl.ones(3, dtype=rl.float64) * 2
    ),
    "half_open_interval": C.half_open_interval(0.0, 5.0),
    "simplex": C.simplex,
    "corr_cholesky": C.corr_cholesky,
    "cat": C.cat([C.positive, C.unit_interval], -1, [2, 1]),
    "stack": C.stack([C.positive, C.real, C.unit_interval], -1),
    "independent": C.independent(C.positive, 1),
}


@pytest.mark.parametrize("name", SETS)
def test_bijections_lead_into_the_set_and_back_and_know_their_jacobian(name):
    constraint = SETS[name]
    transform = D.biject_to(constraint)
    x = values(2, 3)
    y = transform(x)
    assert transform.bijective and C.everywhere(constraint.check(y))
    assert tuple(y.shape) == tuple(transform.forward_shape((2, 3)))
    assert transform.inverse_shape(tuple(y.shape)) == (2, 3)
    rl.testing.assert_close(transform.inv(y), x)
    if name == "corr_cholesky":
        one = x[:, :1]
        assert transform.log_abs_det_jacobian(one, transform(one)).tolist() == pytest.approx(
            [math.log(1 - math.tanh(v.item()) ** 2) for v in one]
        )
    free = y.shape[-1] != 3 or name == "corr_cholesky"  # the number of free elements of the result

    def chosen(row):
        made = transform(row.unsqueeze(0))[0]
        if name == "corr_cholesky":
            return utils.tril_matrix_to_vec(made, -1)
        return made[..., :-1] if free else made

    jacobians = [rl.autograd.functional.jacobian(chosen, row) for row in x]
    want = [rl.linalg.slogdet(j)[1].item() for j in jacobians]
    got = transform.log_abs_det_jacobian(x, y)
    got = got.sum(-1) if got.dim() > 1 else got
    assert got.tolist() == pytest.approx(want, abs=1e-9)


@pytest.mark.parametrize(
    "name", [*SETS, "lower_cholesky", "positive_definite", "positive_semidefinite"]
)
def test_transforms_lead_into_the_set(name):
    constraint = SETS.get(name) or getattr(C, name)
    x = values(2, 3, 3) if name not in SETS else values(2, 3)
    transform = D.transform_to(constraint)
    y = transform(x)
    assert C.everywhere(constraint.check(y))
    rl.testing.assert_close(transform(transform.inv(y)), y)


def test_numbers_of_transforms():
    x = values(2, 3)
    assert flat(D.biject_to(C.greater_than(2.0))(x)) == pytest.approx(
        [3.34382524, 4.48257773, 2.58870143, 2.46173484, 4.07294239, 3.79484235]
    )
    assert flat(D.biject_to(C.less_than(3.0))(x))[:3] == pytest.approx(
        [1.65617476, 0.51742227, 2.41129857]
    )
    assert flat(D.transform_to(C.interval(-1.0, 2.0))(x))[:3] == pytest.approx(
        [0.72004109, 1.13856912, 0.11166532]
    )
    assert flat(D.biject_to(C.simplex)(x))[:4] == pytest.approx(
        [0.30936448, 0.38249339, 0.11418364, 0.19395849]
    )
    assert flat(D.transform_to(C.simplex)(x))[:3] == pytest.approx(
        [0.30436998, 0.56229197, 0.13333805]
    )
    factor = D.CorrCholeskyTransform()(values(2, 6))
    assert flat(factor)[8:16] == pytest.approx(
        [0.72079487, -0.33635432, 0.60606974, 0.0, -0.64853408, 0.47378797, 0.31350623, 0.50659881]
    )
    assert isinstance(D.biject_to(C.unit_interval), D.SigmoidTransform)
    assert D.biject_to(C.stack([C.positive, C.real], -1)).event_dim == 1


def test_sets_without_a_rule_and_rules_of_one_s_own():
    with pytest.raises(NotImplementedError, match="Cannot transform"):
        D.biject_to(C.boolean)
    with pytest.raises(NotImplementedError, match="Cannot transform"):
        D.biject_to(C.lower_cholesky)
    with pytest.raises(TypeError, match="Constraint subclass or instance"):
        D.biject_to.register(3, lambda c: c)

    class Even(C.Constraint):
        """Made up."""

    @D.transform_to.register(Even)
    @D.biject_to.register(Even())
    def rule(constraint):
        return D.ExpTransform()

    assert isinstance(D.biject_to(Even()), D.ExpTransform) and isinstance(
        D.transform_to(Even()), D.ExpTransform
    )


# ---- composition ----


def test_transforms_of_parts():
    x = values(4, 3)
    cat = D.CatTransform([D.ExpTransform(), D.identity_transform], 0, [3, 1])
    y = cat(x)
    assert rl.equal(y[:3], x[:3].exp()) and rl.equal(y[3], x[3])
    rl.testing.assert_close(cat.inv(y), x)
    assert rl.equal(
        cat.log_abs_det_jacobian(x, y), rl.cat([x[:3], rl.zeros(1, 3, dtype=rl.float64)])
    )
    stack = D.StackTransform([D.ExpTransform(), D.identity_transform, D.SigmoidTransform()], 1)
    y = stack(x)
    assert rl.equal(y[:, 0], x[:, 0].exp()) and rl.equal(y[:, 1], x[:, 1])
    rl.testing.assert_close(stack.inv(y), x)
    assert stack.with_cache()._cache_size == 1 and stack == D.StackTransform(stack.transforms, 1)
    with pytest.raises(AssertionError, match="length 3"):
        stack(values(3, 2))
    with pytest.raises(AssertionError, match="lengths"):
        D.CatTransform([D.ExpTransform()], 0, [1, 2])


def test_ranks_are_a_transform():
    transform = D.CumulativeDistributionTransform(D.Normal(0.5, 2.0))
    x = values(5)
    y = transform(x)
    assert flat(y) == pytest.approx(
        [0.5 * (1 + math.erf((v - 0.5) / 2 / math.sqrt(2))) for v in flat(x)]
    )
    rl.testing.assert_close(transform.inv(y), x, atol=1e-6, rtol=1e-6)
    # A Gaussian copula.
    copula = D.TransformedDistribution(
        D.MultivariateNormal(rl.zeros(2), scale_tril=D.LKJCholesky(2).sample()),
        [D.CumulativeDistributionTransform(D.Normal(0.0, 1.0))],
    )
    sample = copula.sample((10,))
    assert bool(((sample >= 0) & (sample <= 1)).all()) and copula.log_prob(sample).shape == (10,)


def test_triangles_as_vectors():
    for diag in (0, -1, -2):
        matrix = values(2, 4, 4).tril(diag)
        vector = utils.tril_matrix_to_vec(matrix, diag)
        assert rl.equal(utils.vec_to_tril_matrix(vector, diag), matrix)
    with pytest.raises(ValueError, match="no triangle"):
        utils.vec_to_tril_matrix(values(4))
    with pytest.raises(ValueError, match="triangle"):
        D.CorrCholeskyTransform().forward_shape((5,))

    class Thing:
        calls = 0

        @utils.lazy_property
        def answer(self):
            self.calls += 1
            return 42

    thing = Thing()
    assert thing.answer == thing.answer == 42 and thing.calls == 1


# ---- distributions ----


@pytest.mark.parametrize(
    ("dim", "concentration", "expected"),
    [
        (2, 1.0, [-0.69314718, -0.69314718]),
        (3, 0.7, [-1.80096522, -1.94905987]),
        (4, 3.0, [-5.24107452, -6.01088868]),
    ],
)
def test_densities_of_correlations(dim, concentration, expected):
    factor = D.CorrCholeskyTransform()(values(2, dim * (dim - 1) // 2))
    d = D.LKJCholesky(dim, rl.tensor(concentration, dtype=rl.float64))
    assert d.log_prob(factor).tolist() == pytest.approx(expected)
    assert d.event_shape == (dim, dim) and d.expand((4,)).sample((3,)).shape == (3, 4, dim, dim)


@pytest.mark.parametrize("concentration", [1.0, 2.0])
def test_correlations_drawn_are_distributed_as_the_density_says(concentration):
    """Every correlation is 2 b - 1 with b of Beta(a, a), a = concentration + (dim - 2) / 2.

    Its variance is 1 / (2 a + 1).
    """
    rl.manual_seed(3)
    factors = D.LKJCholesky(4, concentration).sample((20000,))
    assert C.everywhere(C.corr_cholesky.check(factors))
    correlations = factors @ factors.mT
    want = 1 / (2 * (concentration + 1) + 1)
    for i in range(4):
        for j in range(i):
            assert correlations[:, i, j].var().item() == pytest.approx(want, abs=0.008)
            assert abs(correlations[:, i, j].mean().item()) < 0.02


@pytest.mark.parametrize(
    ("concentration", "density", "cdf", "mean", "variance"),
    [
        (
            0.0,
            [-0.74314718, -1.19314718, -1.94314718],
            [0.04877058, 0.39346934, 0.7134952],
            3.0,
            4.0,
        ),
        (
            0.3,
            [-0.7576645, -1.29878226, -2.07311335],
            [0.04841733, 0.37241311, 0.65406779],
            3.85714286,
            20.40816327,
        ),
        (
            -0.4,
            [-0.72345124, -1.02786251, -1.73286795],
            [0.04925251, 0.4275666, 0.8232233],
            2.42857143,
            1.13378685,
        ),
        (
            0.7,
            [-0.7766935, -1.42197262, -2.21976821],
            [0.04795683, 0.34865827, 0.59262143],
            7.66666667,
            math.nan,
        ),
    ],
)
def test_generalized_pareto(concentration, density, cdf, mean, variance):
    numbers = [rl.tensor(v, dtype=rl.float64) for v in (1.0, 2.0, concentration)]
    d = D.GeneralizedPareto(*numbers)
    x = rl.tensor([1.1, 2.0, 3.5], dtype=rl.float64)
    assert d.log_prob(x).tolist() == pytest.approx(density) and d.cdf(x).tolist() == pytest.approx(
        cdf
    )
    assert d.mean.item() == pytest.approx(mean) and d.variance.item() == pytest.approx(
        variance, nan_ok=True
    )
    assert d.icdf(d.cdf(x)).tolist() == pytest.approx(x.tolist())
    assert (
        d.entropy().item() == pytest.approx(math.log(2) + concentration + 1) and d.mode.item() == 1
    )
    sample = d.rsample((200,))
    assert C.everywhere(d.support.check(sample)) and sample.mean().item() == pytest.approx(
        mean, rel=0.6
    )


def test_what_is_refused():
    with pytest.raises(ValueError, match="at least 2"):
        D.LKJCholesky(1)
    with pytest.raises(ValueError, match="support"):
        D.GeneralizedPareto(1.0, 2.0, -0.4).log_prob(rl.tensor(7.0))
    with pytest.raises(ValueError, match="concentration"):
        D.LKJCholesky(3, -1.0)


@pytest.mark.parametrize("rows", [1, 40])  # elements that are read, and too many for that
def test_a_set_holds_values_whatever_their_number(rows):
    between, simplex = C.integer_interval(0, 3), C.simplex
    assert between.holds(rl.tensor([[0, 3, 1]] * rows))
    assert not between.holds(rl.tensor([[0, 4, 1]] * rows))
    assert not between.holds(rl.tensor([[0, -1, 1]] * rows))
    assert not between.holds(rl.tensor([[0.5, 0, 1]] * rows))
    assert between.holds(rl.zeros(0, dtype=rl.int64))
    assert simplex.holds(rl.tensor([[0.25, 0.75]] * rows))
    assert not simplex.holds(rl.tensor([[0.25, 0.5]] * rows))
    assert not simplex.holds(rl.tensor([[-0.25, 1.25]] * rows))
    assert not simplex.holds(rl.tensor([[float("nan"), 1.0]] * rows))


def test_a_set_of_ones_own_says_what_it_holds():
    class Even(C.integer_interval):
        def check(self, value):
            return value % 2 == 0

    assert Even(0, 9).holds(rl.tensor([2, 100]))
    assert not Even(0, 9).holds(rl.tensor([3]))


def test_a_transform_may_be_a_module() -> None:
    """`__init__` goes on to the classes beside it, so that layers may be assigned after it."""

    class Learned(D.Transform, rl.nn.Module):
        domain = codomain = C.real
        bijective = True

        def __init__(self) -> None:
            super().__init__(cache_size=1)
            self.log_scale = rl.nn.Parameter(rl.zeros(()))
            self.inner = rl.nn.Linear(1, 1)

        def _call(self, x):
            return x * self.log_scale.exp()

        def _inverse(self, y):
            return y / self.log_scale.exp()

        def log_abs_det_jacobian(self, x, y):
            return self.log_scale.expand(x.shape)

    learned = Learned()
    assert [name for name, _ in learned.named_parameters()] == [
        "log_scale",
        "inner.weight",
        "inner.bias",
    ]
    base = D.Normal(rl.tensor(0.0), 1.0)
    made = D.TransformedDistribution(base, [learned])
    made.log_prob(rl.tensor(0.5)).backward()
    assert learned.log_scale.grad.item() == -0.75
