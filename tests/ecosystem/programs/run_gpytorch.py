"""gpytorch: exact regression: marginal likelihoods over steps, predictions."""

import gpytorch
import torch
from common import digest, normal, tell


class Model(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


x = torch.linspace(0, 1, 20)
y = torch.sin(6 * x) + 0.1 * normal(20)
likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = Model(x, y, likelihood).train()
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
loss_of = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
losses = []
for _ in range(5):
    optimizer.zero_grad()
    loss = -loss_of(model(x), y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
model.eval()
with torch.no_grad():
    told = likelihood(model(torch.linspace(0, 1, 7)))
tell(losses=losses, mean=digest(told.mean), variance=digest(told.variance))
