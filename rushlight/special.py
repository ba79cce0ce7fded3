"""PyTorch's `special`: the same ops under the names of mathematics."""

from __future__ import annotations

from rushlight.ops.nn import softmax as _normalise
from rushlight.ops.registry import REGISTRY as _REGISTRY

_SAME = (
    "airy_ai",
    "bessel_j0",
    "bessel_j1",
    "bessel_y0",
    "bessel_y1",
    "chebyshev_polynomial_t",
    "chebyshev_polynomial_u",
    "chebyshev_polynomial_v",
    "chebyshev_polynomial_w",
    "digamma",
    "entr",
    "erf",
    "erfc",
    "erfcx",
    "erfinv",
    "exp2",
    "expm1",
    "hermite_polynomial_h",
    "hermite_polynomial_he",
    "i0",
    "i0e",
    "i1",
    "i1e",
    "laguerre_polynomial_l",
    "legendre_polynomial_p",
    "log1p",
    "log_ndtr",
    "logit",
    "logsumexp",
    "modified_bessel_i0",
    "modified_bessel_i1",
    "modified_bessel_k0",
    "modified_bessel_k1",
    "ndtr",
    "ndtri",
    "polygamma",
    "round",
    "scaled_modified_bessel_k0",
    "scaled_modified_bessel_k1",
    "shifted_chebyshev_polynomial_t",
    "shifted_chebyshev_polynomial_u",
    "shifted_chebyshev_polynomial_v",
    "shifted_chebyshev_polynomial_w",
    "sinc",
    "spherical_bessel_j0",
    "xlog1py",
    "xlogy",
    "zeta",
)
_RENAMED = {
    "expit": "sigmoid",
    "gammainc": "igamma",
    "gammaincc": "igammac",
    "gammaln": "lgamma",
    "multigammaln": "mvlgamma",
    "psi": "digamma",
}

globals().update({name: _REGISTRY[name].function for name in _SAME})
globals().update({name: _REGISTRY[old].function for name, old in _RENAMED.items()})
softmax, log_softmax = _normalise.softmax, _normalise.log_softmax
__all__ = sorted([*_SAME, *_RENAMED, "log_softmax", "softmax"])


def __getattr__(
    name: str,
) -> object:  # for type checkers, which do not see the names from the registry
    raise AttributeError(f"rushlight.special has no {name!r}")
