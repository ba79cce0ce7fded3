"""pyro: SVI with two guides, HMC and NUTS of a regression; log densities as PyTorch's."""

import pyro
import pyro.distributions as dist
import torch
from common import normal, tell
from pyro.infer import HMC, MCMC, NUTS, SVI, Trace_ELBO
from pyro.infer.autoguide import AutoMultivariateNormal, AutoNormal

x = normal(20, 2)
y = x @ torch.tensor([1.0, -2.0]) + 0.1 * normal(20, seed=9)


def model(x, y=None):
    w = pyro.sample("w", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    with pyro.plate("data", len(x)):
        return pyro.sample("y", dist.Normal(x @ w, 0.5), obs=y)


numbers = {}
for kind in (AutoNormal, AutoMultivariateNormal):
    pyro.clear_param_store()
    pyro.set_rng_seed(0)
    guide = kind(model)
    svi = SVI(model, guide, pyro.optim.Adam({"lr": 0.05}), Trace_ELBO())
    losses = [svi.step(x, y) for _ in range(300)]
    found = guide.median()["w"].detach()
    numbers[kind.__name__] = [
        bool(sum(losses[-20:]) < 0.7 * sum(losses[:20])),
        bool((found - torch.tensor([1.0, -2.0])).abs().max() < 0.3),
    ]
exact = torch.linalg.solve(x.T @ x / 0.25 + torch.eye(2), x.T @ y / 0.25)
for kernel in (HMC(model, step_size=0.05, num_steps=8), NUTS(model)):
    pyro.clear_param_store()
    pyro.set_rng_seed(1)
    chain = MCMC(kernel, num_samples=120, warmup_steps=60, disable_progbar=True)
    chain.run(x, y)
    drawn = chain.get_samples()["w"]
    numbers[type(kernel).__name__] = [
        list(drawn.shape),
        bool((drawn.mean(0) - exact).abs().max() < 0.1),
        bool((drawn.std(0) > 0.03).all() and (drawn.std(0) < 0.4).all()),
    ]
kernel = HMC(model, step_size=0.05, num_steps=8, adapt_step_size=False, adapt_mass_matrix=False)
kernel.setup(0, x, y)
at = {"w": torch.tensor([0.5, 0.5], requires_grad=True)}
energy = kernel.potential_fn(at)
energy.backward()
numbers["energy"] = [energy.item(), *at["w"].grad.tolist()]
conditioned = pyro.condition(model, data={"w": torch.tensor([0.5, 0.5])})
trace = pyro.poutine.trace(conditioned).get_trace(x, y)
numbers["log density"] = trace.log_prob_sum().item()
tell(**numbers)
