"""`rushlight.ops.aten`: PyTorch's native names for the calls that the tape records.

# Note [Native names]
1. `aten.mm.default` stands for a kind of recorded call. A policy of selective checkpointing is
   asked about such objects (`op_of`), and compares them with those of its own list.
2. A name stands for the calls that are recorded under it. Where PyTorch records another name than
   this package, or several, `_CALLS` maps all of them to one, and they compare equal. Overloads of
   a name compare equal as well. Each is one object, so that `is` tells them too.
3. A name that is neither an op here nor in `_CALLS` is an AttributeError.
"""

from __future__ import annotations

import functools
from typing import Any

from rushlight.core.dtypes import ALL, COMPLEX
from rushlight.ops.registry import REGISTRY
from rushlight.tape.record.op import Plan
from rushlight.tensor import Tensor

_CALLS: dict[str, str] = {
    other: name
    for name, others in {
        "mm": "matmul mv dot",
        "bmm": "einsum",
        "addmm": "linear",
        "convolution": (
            "conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
            "cudnn_convolution mkldnn_convolution _convolution"
        ),
        "_scaled_dot_product_flash_attention": (
            "scaled_dot_product_attention _scaled_dot_product_efficient_attention "
            "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_cudnn_attention "
            "_scaled_dot_product_attention_math _scaled_dot_product_fused_attention_overrideable "
            "_flash_attention_forward _efficient_attention_forward"
        ),
        "_softmax": "softmax _safe_softmax",
        "_log_softmax": "log_softmax",
        "native_layer_norm": (
            "norm layer_norm group_norm batch_norm native_group_norm native_batch_norm "
            "_native_batch_norm_legit cudnn_batch_norm batch_norm_by_batch"
        ),
        "rms_norm": "_fused_rms_norm",
        "native_dropout": "dropout",
        "gelu": "gelu_exact gelu_tanh",
        "max_pool2d_with_indices": "max_pool2d",
        "view": "reshape _unsafe_view unsqueeze squeeze flatten unflatten",
        "permute": "t transpose",
        "_to_copy": f"to_device {' '.join(f'to_{dtype.name}' for dtype in (*ALL, *COMPLEX))}",
    }.items()
    for other in (name, *others.split())
}


# PyTorch's names of calls that nothing here records, which libraries have in their tables.
_OTHERS = frozenset(
    (
        "alias",
        "index",
        "slice",
        "_pin_memory",
        "_sparse_addmm",
        "_sparse_mm_reduce_impl",
        "convolution_backward",
        "_scaled_dot_product_flash_attention_backward",
    )
)


class OpOverloadPacket:
    """`aten.<name>`, with an overload for each attribute: `aten.mm.default`."""

    def __init__(self, name: str) -> None:
        self.__name__ = name
        self.call = _CALLS.get(name, name)  # the calls it stands for

    def __getattr__(self, overload: str) -> OpOverload:
        if overload[:1] == "_":
            raise AttributeError(f"{self} has no attribute {overload!r}", name=overload)
        found = self.__dict__[overload] = OpOverload(self, overload)
        return found

    def __call__(self, *args: Any, **named: Any) -> Any:
        entry = REGISTRY.get(self.__name__)
        if entry is None:
            raise NotImplementedError(
                f"{self} names recorded calls; it is no function here: use the public one"
            )
        return entry.function(*args, **named)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpOverloadPacket) and other.call == self.call

    def __hash__(self) -> int:
        return hash(self.call)

    def __str__(self) -> str:
        return f"aten.{self.__name__}"

    def __repr__(self) -> str:
        return f"<OpOverloadPacket(op='{self}')>"


class OpOverload:
    """`aten.<name>.<overload>`: a kind of recorded call. See Note [Native names]."""

    def __init__(self, packet: OpOverloadPacket, overload: str) -> None:
        self.overloadpacket = packet
        self._overloadname = overload
        self.namespace = "aten"

    def name(self) -> str:
        """As PyTorch writes it: `aten::mm`."""
        return f"aten::{self.overloadpacket.__name__}"

    def __call__(self, *args: Any, **named: Any) -> Any:
        return self.overloadpacket(*args, **named)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpOverload) and other.overloadpacket == self.overloadpacket

    def __hash__(self) -> int:
        return hash((OpOverload, self.overloadpacket))

    def __str__(self) -> str:
        return f"{self.overloadpacket}.{self._overloadname}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='aten.{self.overloadpacket.__name__}', overload='default')>"


@functools.cache
def packet(name: str) -> OpOverloadPacket:
    """The one object of a name."""
    return OpOverloadPacket(name)


class Aten:
    """The namespace `aten`: packets by name."""

    def __getattr__(self, name: str) -> OpOverloadPacket:
        known = name in _CALLS or name in REGISTRY or name in _OTHERS
        if known or (name[:2] != "__" and hasattr(Tensor, name)):
            return packet(name)
        raise AttributeError(
            f"rushlight.ops.aten has no {name!r}: no call here is recorded under it", name=name
        )


aten = Aten()


def op_of(plan: Plan) -> OpOverload:
    """The native name of a recorded call. A product with a batch is `bmm`, a linear map without a
    bias `mm`.
    """
    name = _CALLS.get(plan.op.name, plan.op.name)
    if plan.op.name == "matmul" and len(plan.ins[1].shape) > 2:
        name = "bmm"
    if plan.op.name == "linear" and len(plan.ins) < 3:
        name = "mm"
    found: OpOverload = packet(name).default
    return found
