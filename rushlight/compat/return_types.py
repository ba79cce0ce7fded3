"""PyTorch's `torch.return_types`: the named tuples that functions give, by the functions' names."""

from __future__ import annotations

from rushlight.lazy import Names

_NAMES = Names(__name__)
_PLACES = {
    "linalg.decompositions": (
        "QR=linalg_qr QR=qr Geqrf=geqrf LinalgSVD=linalg_svd SVD=svd CholeskyEx=linalg_cholesky_ex"
    ),
    "linalg.eigenvalues": "Eig=linalg_eig Eigh=linalg_eigh",
    "linalg.matrix_functions": (
        "Lstsq=linalg_lstsq LDLFactor=linalg_ldl_factor LDLFactorEx=linalg_ldl_factor_ex"
    ),
    "linalg.solve": (
        "InvEx=linalg_inv_ex LU=linalg_lu LU=lu_unpack LUFactor=linalg_lu_factor "
        "LUFactorEx=linalg_lu_factor_ex SLogDet=linalg_slogdet SLogDet=slogdet "
        "SolveEx=linalg_solve_ex TriangularSolve=triangular_solve"
    ),
    "pointwise.special": "Frexp=frexp",
    "reduce.cumulative": "CumMax=cummax CumMin=cummin",
    "reduce.statistics": "Max=max Min=min MinMax=aminmax",
    "sort.histogram": "Histogram=histogram HistogramDD=histogramdd",
    "sort.ranking": "KthValue=kthvalue Median=median Mode=mode NanMedian=nanmedian",
    "sort.sort": "Sorted=sort TopK=topk",
}
for _ending in ("", "_out"):  # calls with `out=` have types of their own names in PyTorch
    _NAMES.defined(
        {
            f"rushlight.ops.{place}": " ".join(f"{word}{_ending}" for word in words.split())
            for place, words in _PLACES.items()
        }
    )
__all__ = sorted(_NAMES.sources)


def __getattr__(name: str) -> object:
    return _NAMES.find(name)


def __dir__() -> list[str]:
    return _NAMES.listed()
