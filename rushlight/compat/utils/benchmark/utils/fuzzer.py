"""PyTorch's `torch.utils.benchmark.utils.fuzzer`: tensors of random sizes and layouts."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy

from rushlight import testing
from rushlight.core.dtypes import DType, float32

__all__ = ["FuzzedParameter", "FuzzedTensor", "Fuzzer", "ParameterAlias", "dtype_size", "prod"]

_ATTEMPTS = 1000  # draws of which each breaks a constraint, before it is an error


def dtype_size(dtype: DType) -> int:
    """The bytes of an element.

    Args:
        dtype (dtype): The type.
    """
    return dtype.itemsize


def prod(values: Sequence[Any], base: Any = 1) -> int:
    """The product of ints.

    Args:
        values (sequence): The factors.
        base (int): One more.
    """
    return functools.reduce(lambda x, y: int(x) * int(y), values, base)


class ParameterAlias:
    """A value that is that of another parameter.

    Args:
        alias_to (str): The other parameter's name.
    """

    def __init__(self, alias_to: str) -> None:
        self.alias_to = alias_to

    def __repr__(self) -> str:
        return f"ParameterAlias[alias_to: {self.alias_to}]"


class FuzzedParameter:
    """A number that is drawn for each sample.

    Args:
        name (str): Its name.
        minval (number): The least value.
        maxval (number): The largest value.
        distribution (str or dict): "uniform", "loguniform", or the probability of each value.
        strict (bool): Whether no other parameter's value may take its place.
    """

    def __init__(
        self,
        name: str,
        minval: float | None = None,
        maxval: float | None = None,
        distribution: Any = None,
        strict: bool = False,
    ) -> None:
        self._name, self._minval, self._maxval, self.strict = name, minval, maxval, strict
        if distribution is None:
            raise ValueError("FuzzedParameter: a distribution is needed")
        if isinstance(distribution, dict):
            weights = {value: float(weight) for value, weight in distribution.items() if weight > 0}
            if not math.isclose(sum(weights.values()), 1, rel_tol=1e-3):
                raise ValueError("FuzzedParameter: the probabilities of a distribution sum to 1")
            distribution = weights
        elif distribution not in ("uniform", "loguniform"):
            raise ValueError(f"Unknown distribution: {distribution}")
        elif minval is None or maxval is None:
            raise ValueError(f"FuzzedParameter: {distribution} needs minval and maxval")
        self._distribution = distribution

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    def sample(self, state: Any) -> Any:
        """A value.

        Args:
            state (RandomState): NumPy's generator.
        """
        if isinstance(self._distribution, dict):
            values = list(self._distribution)
            weights = numpy.array(list(self._distribution.values()))
            return values[state.choice(len(values), p=weights / weights.sum())]
        low: Any = self._minval
        high: Any = self._maxval
        whole = isinstance(low, int) and isinstance(high, int)
        if self._distribution == "uniform":
            return state.randint(low, high + 1) if whole else state.uniform(low, high)
        if low == high:
            return low
        drawn = 2 ** state.uniform(math.log2(low), math.log2(high + whole))
        return int(min(drawn, high)) if whole else drawn


class FuzzedTensor:
    """A tensor whose shape and layout are drawn.

    Args:
        name (str): Its name.
        size (tuple): Its sizes: ints and names of parameters.
        steps (tuple): The steps of its slices: ints and names; all 1 without it.
        probability_contiguous (float): How likely its dimensions lie in their order.
        min_elements (int): The fewest elements.
        max_elements (int): The most elements.
        max_allocation_bytes (int): The most bytes, steps included.
        dim_parameter (str): The parameter that says how many of the sizes are looked at.
        roll_parameter (str): The parameter by which sizes are turned around.
        dtype (dtype): The type of elements.
        cuda (bool): Whether it lies on the card.
        tensor_constructor (callable): Makes it of `size` and `dtype` and the parameters.
    """

    def __init__(
        self,
        name: str,
        size: tuple[str | int, ...],
        steps: tuple[str | int, ...] | None = None,
        probability_contiguous: float = 0.5,
        min_elements: int | None = None,
        max_elements: int | None = None,
        max_allocation_bytes: int | None = None,
        dim_parameter: str | None = None,
        roll_parameter: str | None = None,
        dtype: DType = float32,
        cuda: bool = False,
        tensor_constructor: Callable[..., Any] | None = None,
    ) -> None:
        self._name, self._size, self._dtype, self._cuda = name, size, dtype, cuda
        self._steps = steps
        self._probability_contiguous = probability_contiguous
        self._elements = (min_elements, max_elements)
        self._max_allocation_bytes = max_allocation_bytes
        self._dim_parameter, self._roll_parameter = dim_parameter, roll_parameter
        self._constructor = tensor_constructor or self.default_tensor_constructor

    @property
    def name(self) -> str:
        """Its name."""
        return self._name

    @staticmethod
    def default_tensor_constructor(size: Any, dtype: DType, **named: Any) -> Any:
        """A tensor of random elements.

        Args:
            size (tuple): The shape.
            dtype (dtype): The type.
            **named: Have no effect.
        """
        return testing.make_tensor(tuple(size), dtype=dtype, device="cpu")

    def _shape(self, params: dict[str, Any]) -> tuple[tuple[int, ...], tuple[int, ...], Any]:
        """The sizes, the sizes in memory and the steps."""
        dim = params.get(self._dim_parameter or "", len(self._size))

        def numbers(given: Any) -> list[int]:
            found = [int(params.get(one, one)) for one in given][:dim]
            turns = params.get(self._roll_parameter or "", 0)
            return found[turns:] + found[:turns]

        size = numbers(self._size)
        steps = numbers(self._steps or (1,) * len(self._size))
        return tuple(size), tuple(a * b for a, b in zip(size, steps, strict=True)), steps

    def satisfies_constraints(self, params: dict[str, Any]) -> bool:
        """Whether its numbers of elements and bytes are allowed.

        Args:
            params (dict): The parameters' values.
        """
        size, held, _ = self._shape(params)
        fewest, most = self._elements
        bytes_held = prod(held, dtype_size(self._dtype))
        return not (
            (fewest is not None and prod(size) < fewest)
            or (most is not None and prod(size) > most)
            or (self._max_allocation_bytes is not None and bytes_held > self._max_allocation_bytes)
        )

    def _make_tensor(self, params: dict[str, Any], state: Any) -> tuple[Any, dict[str, Any]]:
        size, held, steps = self._shape(params)
        order = numpy.arange(len(size))
        if len(size) > 1 and state.uniform() > self._probability_contiguous:
            order = state.permutation(len(size))
        raw = self._constructor(size=[held[n] for n in order], dtype=self._dtype, **params)
        raw = raw.to("cuda") if self._cuda else raw
        made = raw.permute(tuple(int(n) for n in numpy.argsort(order)))
        made = made[tuple(slice(0, n * k, k) for n, k in zip(size, steps, strict=True))]
        return made, {
            "numel": int(made.numel()),
            "order": order,
            "steps": steps,
            "is_contiguous": made.is_contiguous(),
            "dtype": str(self._dtype),
        }


class Fuzzer:
    """Samples of parameters and the tensors that are made of them.

    Args:
        parameters (list): FuzzedParameters, and lists of them.
        tensors (list): FuzzedTensors, and lists of them.
        constraints (list): Functions of the parameters, true where a sample is allowed.
        seed (int): Of the draws.
    """

    def __init__(
        self,
        parameters: list[Any],
        tensors: list[Any],
        constraints: list[Callable[..., bool]] | None = None,
        seed: int | None = None,
    ) -> None:
        self._seed = int(numpy.random.RandomState().randint(0, 2**32 - 1)) if seed is None else seed
        self._parameters: list[FuzzedParameter] = _flat(parameters)
        self._tensors: list[FuzzedTensor] = _flat(tensors)
        self._constraints = constraints or []
        names = [one.name for one in self._parameters] + [one.name for one in self._tensors]
        if len(set(names)) < len(names):
            raise ValueError(f"Fuzzer: names are not unique: {names}")
        self._drawn = self._refused = 0

    def take(self, n: int) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
        """Samples: the tensors, facts of each, and the parameters.

        Args:
            n (int): How many.
        """
        state = numpy.random.RandomState(self._seed)
        for _ in range(n):
            params = self._sample(state)
            made = {one.name: one._make_tensor(params, state) for one in self._tensors}
            tensors = {name: tensor for name, (tensor, _) in made.items()}
            facts = {name: fact for name, (_, fact) in made.items()}
            yield tensors, facts, params

    @property
    def rejection_rate(self) -> float:
        """The share of draws that broke a constraint."""
        return self._refused / self._drawn if self._drawn else 0.0

    def _sample(self, state: Any) -> dict[str, Any]:
        for _ in range(_ATTEMPTS):
            drawn = {one.name: one.sample(state) for one in self._parameters}
            params = {name: _resolved(value, drawn) for name, value in drawn.items()}
            self._drawn += 1
            if all(rule(**params) for rule in self._constraints) and all(
                one.satisfies_constraints(params) for one in self._tensors
            ):
                return params
            self._refused += 1
        raise ValueError(f"Fuzzer: none of {_ATTEMPTS} draws satisfies the constraints")


def _flat(given: list[Any]) -> list[Any]:
    rows = [one if isinstance(one, (list, tuple)) else [one] for one in given]
    return list(itertools.chain.from_iterable(rows))


def _resolved(value: Any, drawn: dict[str, Any]) -> Any:
    for _ in drawn:
        if not isinstance(value, ParameterAlias):
            return value
        value = drawn[value.alias_to]
    if isinstance(value, ParameterAlias):
        raise ValueError(f"Fuzzer: {value} is an alias of itself")
    return value
