"""botorch: a Gaussian process is fitted, acquisition functions and their best point."""

import numpy as np
import torch
from botorch.acquisition import LogExpectedImprovement, UpperConfidenceBound
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from common import digest, tell
from gpytorch.mlls import ExactMarginalLogLikelihood

x = torch.from_numpy(np.random.default_rng(0).random((12, 2)))
y = x.sin().sum(-1, keepdim=True) - x[:, :1] ** 2
model = SingleTaskGP(x, y)
middle = torch.tensor([[[0.5, 0.5]]], dtype=torch.float64)
improvement = LogExpectedImprovement(model, best_f=y.max())(middle).item()
bound = UpperConfidenceBound(model, beta=0.2)
square = torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
found, value = optimize_acqf(bound, bounds=square, q=1, num_restarts=2, raw_samples=8)
fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
told = model.posterior(torch.tensor([[0.3, 0.4], [0.9, 0.1]], dtype=torch.float64))
tell(
    improvement=improvement,
    bound=bound(middle).item(),
    best=value.item(),
    mean=digest(told.mean),
    variance=digest(told.variance),
)
