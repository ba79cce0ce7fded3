"""Mixed precision: autocast, its settings (Note [Autocast]), and the scaling of losses."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Mapping
from typing import Any

from rushlight.compat.torch_function import overrides, part_of
from rushlight.core.dtypes import DType, bfloat16, float16, float32, float64, int32
from rushlight.core.errors import RushlightError, RushlightWarning
from rushlight.lazy import shown
from rushlight.ops.create import creation
from rushlight.ops.create.creation import check_device, device_kind, device_name
from rushlight.ops.optim.lists import scale_by, update_all
from rushlight.ops.optim.scaled import found_in, inverse_of, next_scale
from rushlight.ops.optim.whole_steps import held_apart
from rushlight.ops.pointwise import arithmetic as e
from rushlight.ops.view.inplace import finish_all, prepare_apply
from rushlight.optim.optimizer import Optimizer
from rushlight.tape.record.autocast import Autocast
from rushlight.tape.record.state import STATE, Changed, State, no_grad
from rushlight.tensor import Tensor

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd", "is_autocast_available"]


def __dir__() -> list[str]:
    return shown(__name__)


class autocast(Changed):
    """Inside, listed ops on devices of one kind cast their operands, as in PyTorch.

    Contractions run in `dtype` (float16 for "cuda", bfloat16 for "cpu"), losses and the like in
    float32. The casts are recorded as ops; those of weights are kept until the outermost block
    ends, unless `cache_enabled` is False.
    """

    def __init__(
        self,
        device_type: str,
        dtype: DType | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ) -> None:
        if not isinstance(device_type, str):
            raise ValueError(f"autocast: device_type is text, got {type(device_type).__name__}")
        super().__init__()
        self.device = device_type
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        self._cache_enabled = (
            is_autocast_cache_enabled() if cache_enabled is None else cache_enabled
        )
        self._enabled = bool(enabled) and _can_be_used(device_type, self.fast_dtype)

    def again(self) -> Changed:
        made = super().again()
        made.__dict__.update(self.__dict__, tokens=[])
        return made

    def after(self, before: State) -> State:
        now: Autocast = before.autocast or _DEFAULT()
        kind = _kind_of(self.device)
        chosen = {name: dtype for name, dtype in now.chosen.items() if name != kind}
        if self._enabled:
            chosen[kind] = self.fast_dtype
        changed = now.with_changes(
            chosen=chosen,
            dtypes={**now.dtypes, kind: self.fast_dtype},
            caching=self._cache_enabled,
            nesting=now.nesting + 1,
        )
        return before.with_changes(autocast=changed)

    def __enter__(self) -> autocast:
        super().__enter__()
        return self


def _can_be_used(device_type: str, dtype: DType) -> bool:
    """Whether autocast can be on; if not, it is said by a warning, as in PyTorch."""
    if device_kind(device_type) is None:
        reason = f"there is no device {device_type!r}"
    elif dtype not in (bfloat16, float16) and (dtype is not float32 or device_type == "cpu"):
        reason = f"its dtype is bfloat16 or float16, got {dtype!r}"
    else:
        return True
    warnings.warn(f"autocast: {reason}; it is off in this block", RushlightWarning, stacklevel=3)
    return False


def _kind_of(device_type: Any) -> str:
    """A kind of device by name; "cuda" under `rushlight run --device webgpu` is that device."""
    kind = device_name(device_type).partition(":")[0]
    check_device(kind)
    return kind


def _now() -> Autocast:
    return STATE.get().autocast or _DEFAULT()


def _change(**changes: Any) -> None:
    STATE.set(STATE.get().with_changes(autocast=_now().with_changes(**changes)))


_DEFAULT = Autocast  # the settings of a thread in which nothing was changed


# ---- PyTorch's functions: they change the settings at once, inside a block until its end ----


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether autocast is on for a kind of device.

    Args:
        device_type (str): The kind of device: 'cpu', 'cuda', ...
    """
    return _kind_of(device_type) in _now().chosen


def set_autocast_enabled(device_type: str | bool, enabled: bool | None = None) -> None:
    """Turn autocast on or off for a kind of device; with a bool alone, for 'cuda'.

    Args:
        device_type (str): The kind of device: 'cpu', 'cuda', ...
        enabled (bool): Whether it is on.
    """
    name = device_type if isinstance(device_type, str) else "cuda"
    is_on = enabled if isinstance(device_type, str) else device_type
    kind = _kind_of(name)
    chosen = {other: dtype for other, dtype in _now().chosen.items() if other != kind}
    if is_on:
        chosen[kind] = get_autocast_dtype(name)
    _change(chosen=chosen)


def get_autocast_dtype(device_type: str) -> DType:
    """The lower dtype of autocast on a kind of device.

    Args:
        device_type (str): The kind of device: 'cpu', 'cuda', ...
    """
    own = _kind_of(device_type)
    stated = _now().dtypes.get(own)
    if stated is not None:
        return stated
    kind = device_kind(device_type)
    # Under the name "cuda" every device has the default of a card.
    return float16 if device_type == "cuda" else bfloat16 if kind is None else kind.autocast


def set_autocast_dtype(device_type: str, dtype: DType) -> None:
    """Set the lower dtype of autocast on a kind of device.

    Args:
        device_type (str): The kind of device: 'cpu', 'cuda', ...
        dtype (dtype): The dtype.
    """
    now, kind = _now(), _kind_of(device_type)
    chosen = {**now.chosen, kind: dtype} if kind in now.chosen else now.chosen
    _change(chosen=chosen, dtypes={**now.dtypes, kind: dtype})


def is_autocast_cache_enabled() -> bool:
    """Whether casts of weights are kept inside a block."""
    return _now().caching


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Keep casts of weights inside a block, or not."""
    _change(caching=bool(enabled))


def clear_autocast_cache() -> None:
    """Drop the kept casts of weights."""
    _now().casts.clear()


def autocast_increment_nesting() -> int:
    """Enter a block by hand; returns the number of blocks around."""
    _change(nesting=_now().nesting + 1)
    return _now().nesting


def autocast_decrement_nesting() -> int:
    """Leave a block by hand; returns the number of blocks around."""
    _change(nesting=_now().nesting - 1)
    return _now().nesting


def is_autocast_cpu_enabled() -> bool:
    """Whether autocast is on for the CPU."""
    return is_autocast_enabled("cpu")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    """Turn autocast on or off for the CPU."""
    set_autocast_enabled("cpu", enabled)


def get_autocast_cpu_dtype() -> DType:
    """The lower dtype of autocast on the CPU."""
    return get_autocast_dtype("cpu")


def set_autocast_cpu_dtype(dtype: DType) -> None:
    """Set the lower dtype of autocast on the CPU."""
    set_autocast_dtype("cpu", dtype)


def get_autocast_gpu_dtype() -> DType:
    """The lower dtype of autocast on a card."""
    return get_autocast_dtype("cuda")


def set_autocast_gpu_dtype(dtype: DType) -> None:
    """Set the lower dtype of autocast on a card."""
    set_autocast_dtype("cuda", dtype)


def is_autocast_available(device_type: str) -> bool:
    """Whether autocast works on a kind of device: True for all that compute.

    Args:
        device_type (str): The kind of device: 'cpu', 'cuda', ...
    """
    kind = device_kind(device_type)
    return kind is not None and kind.computes


def _cast(value: Any, kind: str, dtype: DType) -> Any:
    """Floats on a kind of device in another dtype, in any nesting; doubles stay, as in PyTorch."""
    if isinstance(value, Tensor):
        eligible = value.is_floating_point() and _kind_of(value.device) == kind
        return value.to(dtype) if eligible and value.dtype is not float64 else value
    if isinstance(value, Mapping):
        return {_cast(k, kind, dtype): _cast(v, kind, dtype) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([_cast(v, kind, dtype) for v in value])
    return value


def custom_fwd(fwd: Any = None, *, device_type: str, cast_inputs: DType | None = None) -> Any:
    """Decorates the forward of a user's Function: its backward runs in the same autocast mode.

    With `cast_inputs`, tensors are cast and autocast is off inside.

    Args:
        fwd (function): The forward; None where the decorator is called with arguments.
        device_type (str): The kind of device: 'cpu', 'cuda', ...
        cast_inputs (dtype): The dtype of the floating-point inputs; None leaves them.
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def forward(*args: Any, **named: Any) -> Any:
        is_on, dtype = is_autocast_enabled(device_type), get_autocast_dtype(device_type)
        args[0]._dtype = dtype
        args[0]._fwd_used_autocast = is_on and cast_inputs is None
        if cast_inputs is None or not is_on:
            return fwd(*args, **named)
        with autocast(device_type, enabled=False):
            cast = _cast((args[1:], named), _kind_of(device_type), cast_inputs)
            return fwd(args[0], *cast[0], **cast[1])

    return forward


def custom_bwd(bwd: Any = None, *, device_type: str) -> Any:
    """Decorates the backward of a user's Function: it runs in the autocast mode of its forward.

    Args:
        bwd (function): The backward; None where the decorator is called with arguments.
        device_type (str): The kind of device: 'cpu', 'cuda', ...
    """
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def backward(*args: Any, **named: Any) -> Any:
        ctx = args[0]
        with autocast(device_type, ctx._dtype, ctx._fwd_used_autocast):
            return bwd(*args, **named)

    return backward


def _placed(scale: float, good: int, device: Any) -> dict[str, Any]:
    """The attributes of a scaler whose scale and count of good steps are on a device."""
    made: Any = creation.full((), scale, dtype=float32, device=device)
    count: Any = creation.full((), good, dtype=int32, device=device)
    return {"_scale": held_apart(made), "_growth_tracker": held_apart(count)}


class GradScaler:
    """Scales a loss so that small gradients do not underflow in float16; the scale adapts.

    A step whose gradients have an inf or NaN is skipped and reduces the scale; after
    `growth_interval` good steps it grows. All of this is decided on the device, and the host reads
    nothing: the optimiser's step is called, and keeps parameters, state and counts where it is
    skipped. Where that cannot be (LBFGS, Adafactor, Muon, SparseAdam, sparse gradients,
    differentiable steps, SGD with momentum and dampening, an optimiser with hooks or with a `step`,
    `prepare` or `numbers` of its own, a closure, parameters on several devices), one number of each
    optimiser is read.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 65536.0,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if growth_factor <= 1 or not 0 < backoff_factor < 1:
            raise ValueError(
                "GradScaler: growth_factor must be above 1 and backoff_factor between 0 and 1, got "
                f"{growth_factor} and {backoff_factor}"
            )
        # On the device of the first loss from the first use on; until then as numbers.
        self._scale: Tensor | None = None
        self._growth_tracker: Tensor | None = None
        self._init_scale = float(init_scale)
        self._init_growth_tracker = 0
        self._growth_factor = growth_factor
        self._backoff_factor = backoff_factor
        self._growth_interval = growth_interval
        self._enabled = enabled
        # By optimiser with unscaled gradients: 1.0 where they are not all finite, on their device.
        self._found: dict[int, Tensor] = {}
        self._finite: dict[int, bool] = {}  # likewise, where the host knows
        self._stepped: set[int] = set()

    def _beside(self, value: Any) -> Tensor:
        """The scale on the device of a value; its home is that of the first one."""
        if self._scale is None:
            made = _placed(self._init_scale, self._init_growth_tracker, value.device)
            self.__dict__.update(made)
        assert self._scale is not None
        if self._scale._spec.device is part_of(value)._spec.device:
            return self._scale
        return self._scale.to(device=value.device, non_blocking=True)

    def scale(self, outputs: Any) -> Any:
        """A loss, or losses, times the scale."""
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            return outputs * self._beside(outputs)
        if isinstance(outputs, (list, tuple)):
            return type(outputs)(self.scale(v) for v in outputs)
        raise TypeError(f"GradScaler.scale: tensors are scaled, got {type(outputs).__name__}")

    def unscale_(self, optimizer: Any) -> None:
        """Divide an optimiser's gradients by the scale, in place, before clipping."""
        if not self._enabled:
            return
        key = id(optimizer)
        if key in self._found:
            raise RushlightError(
                "GradScaler.unscale_: already called for this optimiser since the last update()"
            )
        grads: list[Any] = [
            p.grad
            for group in optimizer.param_groups
            for p in group["params"]
            if p.grad is not None
        ]
        values = [g._values() if g.is_sparse else g for g in grads]  # the same memory
        if any(map(overrides, set(map(type, values)))) or len({v._spec.device for v in values}) > 1:
            self._unscale_apart(key, values)
            return
        parameters = (p for group in optimizer.param_groups for p in group["params"])
        scale = self._beside(values[0] if values else next(parameters))
        found = held_apart(found_in(values, scale))
        inverse = inverse_of(scale)
        rows = [(v.detach(), inverse) for v in values]
        update_all(scale_by, rows, (self._found.__setitem__, key, found))

    def _unscale_apart(self, key: int, values: list[Any]) -> None:
        """`unscale_` of distributed tensors, and of several devices: the host learns the answer."""
        scale = self._beside(values[0])
        factor, finite = 1.0 / self.get_scale(), True
        with no_grad():
            for v in values:
                # Checked before they change: a gradient that gets no larger stays finite.
                met = (v if abs(factor) <= 1 else v * factor).isfinite().all()
                # What is read is 0 where all is well: an estimate, which reads zeros, goes on.
                finite = finite and not bool(~met)
            found: Any = creation.full((), float(not finite), device=scale.device)
            writes = [prepare_apply(e.mul.op, part_of(v).detach(), factor) for v in values]  # type: ignore[attr-defined]
            known = (self._finite.__setitem__, key, finite)
            finish_all(writes, [known, (self._found.__setitem__, key, held_apart(found))])

    def step(self, optimizer: Any, *args: Any, **named: Any) -> Any:
        """optimizer.step(...), which changes nothing where gradients have an inf or NaN.

        After an error in that step the gradients are unscaled already, and another call continues
        from there.
        """
        if not self._enabled:
            return optimizer.step(*args, **named)
        key = id(optimizer)
        if key in self._stepped:
            raise RushlightError(
                "GradScaler.step: already called for this optimiser since the last update()"
            )
        if key not in self._found:
            self.unscale_(optimizer)
        found, finite, made = self._found[key], self._finite.get(key), None
        alone = finite is None and not args and not named
        if alone and isinstance(optimizer, Optimizer) and optimizer.leaves_out():
            optimizer.found_inf = found
            try:
                made = optimizer.step()
            finally:
                del optimizer.found_inf
        elif not found.item() if finite is None else finite:
            made = optimizer.step(*args, **named)
        self._stepped.add(key)
        return made

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Reduce the scale after a skipped step, increase it after many good ones, or set it."""
        if not self._enabled:
            return
        scale: Any = self._scale
        good: Any = self._growth_tracker
        # All of it is stored at once, since Ctrl-C may come between two calls.
        fresh: dict[str, Any] = {"_found": {}, "_finite": {}, "_stepped": set()}
        if new_scale is not None:
            number = float(new_scale)
            if scale is None:
                self.__dict__.update(fresh, _init_scale=number)
            else:
                made = creation.full((), number, dtype=float32, device=scale.device)
                self.__dict__.update(fresh, _scale=held_apart(made))
            return
        if not self._found:
            raise RushlightError(
                "GradScaler.update: no gradients have been looked at; call step() or unscale_() "
                "first"
            )
        found: Any
        found, *others = [
            f if f._spec.device is scale._spec.device else f.to(device=scale.device)
            for f in self._found.values()
        ]
        for other in others:
            found = e.maximum(found, other)
        factors = float(self._growth_factor), float(self._backoff_factor)
        following = next_scale(scale, good, found, *factors, int(self._growth_interval))
        scale, good = map(held_apart, following)
        self.__dict__.update(fresh, _scale=scale, _growth_tracker=good)

    def get_scale(self) -> float:
        """The scale, read from the device; 1 where scaling is off."""
        if not self._enabled:
            return 1.0
        return self._init_scale if self._scale is None else self._scale.item()

    def _get_growth_tracker(self) -> int:
        """The number of good steps since the scale changed, read from the device."""
        if not self._enabled:
            return 0
        good = self._growth_tracker
        return self._init_growth_tracker if good is None else int(good.item())

    def get_growth_factor(self) -> float:
        """The growth factor of the scale."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """The backoff factor of the scale."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """The number of good steps before the scale grows."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        self._growth_interval = new_interval

    def is_enabled(self) -> bool:
        """Whether scaling is on."""
        return self._enabled

    def state_dict(self) -> dict[str, Any]:
        """The state for resuming."""
        if not self._enabled:
            return {}
        return {
            "scale": self.get_scale(),
            "growth_factor": self._growth_factor,
            "backoff_factor": self._backoff_factor,
            "growth_interval": self._growth_interval,
            "_growth_tracker": self._get_growth_tracker(),
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state."""
        if not self._enabled:
            return
        if not state_dict:
            raise RushlightError(
                "GradScaler.load_state_dict: the state is empty: it was saved with scaling off"
            )
        names = ("scale", "growth_factor", "backoff_factor")
        scale, growth, backoff = [float(state_dict[name]) for name in names]
        interval, good = [int(state_dict[name]) for name in ("growth_interval", "_growth_tracker")]
        self.__dict__.update(
            {} if self._scale is None else _placed(scale, good, self._scale.device),
            _init_scale=scale,
            _init_growth_tracker=good,
            _growth_factor=growth,
            _backoff_factor=backoff,
            _growth_interval=interval,
        )

    def __getstate__(self) -> dict[str, Any]:
        """Numbers in place of tensors; not in the middle of a step."""
        if self._found:
            raise AssertionError(
                "A GradScaler instance may only be pickled at the beginning of an iteration, or at "
                "the end after scaler.update()."
            )
        numbers = {"_init_scale": self.get_scale(), "_scale": None, "_growth_tracker": None}
        good = self._get_growth_tracker()
        state = {**self.__dict__, **(numbers if self._enabled else {})}
        return {**state, "_init_growth_tracker": good}
