"""From a call to machine code.

This file is prose that runs. It follows `(a * b + c).sum()` and its backward from the user's line
down to the instructions of the CPU and to the text that a GPU compiles. The tests run it.

    python docs/from_scratch.py
"""

from __future__ import annotations  # noqa: I001

import rushlight as torch
from rushlight.devices.cpu import native
from rushlight.emit.cuda import kernels
from rushlight.emit.llvm import kernels as llvm
from rushlight.emit.wgsl import kernels as wgsl
from rushlight.emit.wgsl.types import Features
from rushlight.kernel.shapes import Map
from rushlight.kernel.show import show
from rushlight.kernel.verify import verify
from rushlight.ops.pointwise import arithmetic
from rushlight.ops.family.build import built
from rushlight.ops.family.map import Formula, MapGrad
from rushlight.scalar.derive import gradients
from rushlight.scalar.ir import arg
from rushlight.tape.record.value import Leaf


def heading(text: str) -> None:
    print(f"\n{'=' * 8} {text}\n")


# --------------------------------------------------------------------------------------------------
heading("1. The call")

# Three leaves. A tensor is a handle: a *spec* (device, dtype, shape, strides; one object per
# distinct content), the *storage* that owns the bytes, and a *node*, its place on the tape. A leaf
# that wants a gradient has a `Leaf` there.
a = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
b = torch.tensor([4.0, 5.0, 6.0], requires_grad=True)
c = torch.tensor([7.0, 8.0, 9.0], requires_grad=True)
assert type(a._node) is Leaf
assert a._spec is b._spec is c._spec

# `a * b` runs the function that the declaration of `mul` in ops/pointwise/arithmetic.py made. It
# looks up a *plan* by the identity of the two specs; the first call makes the plan, every later one
# finds it.
product = a * b
plan = arithmetic.mul.op.plans[a._spec, b._spec]
print("the plan of a * b:", plan.op, plan.ins, "->", plan.outs)

# --------------------------------------------------------------------------------------------------
heading("2. The formula")

# The declaration's body is `lambda x, y: x * y`. Traced with typed leaves it is a scalar
# expression, the same for every device.
formula = plan.op.formula(plan.ins, plan.static)
print("body:", formula.body[0])
assert repr(formula.body[0]) == "mul(arg0, arg1)"

# --------------------------------------------------------------------------------------------------
heading("3. The kernel")

# Around the expression goes a loop shape. Both operands lie in a row, so it is a flat map: for
# every position p.
kernel = Map(formula.outputs, formula.inputs, formula.params, formula.body, 0, ("1", "1", "1"))
verify(kernel)
print(show(kernel))

# --------------------------------------------------------------------------------------------------
heading("4. The CPU: LLVM IR, then machine code")

ir = llvm.emit(kernel)
print("\n".join(line for line in ir.splitlines() if "fmul" in line or "define" in line)[:800])
assert "fmul <16 x float>" in ir
assembly = native.assembly(ir)
multiply = [
    line.strip()
    for line in assembly.splitlines()
    if "vmulps" in line or "mulps" in line or "fmul" in line
]
print(
    "\nof which the compiler makes, among others:",
    multiply[0] if multiply else "(no such mnemonic on this CPU)",
)

# The built kernel is a builtin function of plain numbers: addresses of outputs and inputs, then
# sizes. This is the same call that `a * b` made.
launch = built(a._spec.device, kernel)
out = torch.empty(3)
launch(out._memory.address, a._memory.address, b._memory.address, 3)
print("\nlaunched by hand:", out)
assert out.tolist() == product.tolist() == [4.0, 10.0, 18.0]

# --------------------------------------------------------------------------------------------------
heading("5. The GPUs: the same kernel as WGSL and as CUDA C")

text = wgsl.emit(kernel, Features())
print("\n".join(line for line in text.splitlines() if "@compute" in line or "*" in line)[:600])
assert "@compute" in text
assert "__global__" in kernels.emit(kernel)

# --------------------------------------------------------------------------------------------------
heading("6. The tape")

# Each call left one record. Edges lead to the records of the inputs; what the derivative needs is
# saved, nothing else: `mul` needs both inputs, `add` and `sum` need none.
shifted = product + c
total = shifted.sum()
print("total:", total)
node = total.grad_fn
assert node.edges == (shifted.grad_fn,)
assert shifted.grad_fn.edges == (product.grad_fn, c._node)
assert all(kept is value for kept, value in zip(product.grad_fn.saved, (a, b), strict=True))
assert shifted.grad_fn.saved == ()

# The sum is a rowwise kernel: one pass along an axis, in an order that depends on the length alone.
rows = total.grad_fn.plan.op.formula([shifted._spec], (True,))
print("its passes:", rows.passes)

# --------------------------------------------------------------------------------------------------
heading("7. The derivative")

# The derivative of a formula is a formula. For mul, from the instruction's own rule:
x, y, g = arg(0, torch.float32), arg(1, torch.float32), arg(2, torch.float32)
by_x, by_y = gradients([x * y], [g], [x, y])
print("by x:", by_x, "   by y:", by_y)

# Both gradients come from ONE kernel with two outputs, made once per plan and set of inputs that
# need a gradient:
fused = MapGrad(
    "mul_grad", Formula((torch.float32,) * 3, (), (torch.float32,) * 2, (g * y, g * x)), gradients=1
)
print(show(Map(fused.fixed.outputs, fused.fixed.inputs, (), fused.fixed.body, 0, ("1",) * 5)))

# --------------------------------------------------------------------------------------------------
heading("8. Backward")

# The walk starts with a gradient of 1 at the total. The sum's derivative spreads it without a copy
# (a stride of 0); add passes it on to both sides without a kernel; mul's kernel makes two
# gradients; the leaves sum what arrives.
total.backward()
print("a.grad", a.grad, "  b.grad", b.grad, "  c.grad", c.grad)
assert a.grad.tolist() == b.tolist()
assert b.grad.tolist() == a.tolist()
assert c.grad.tolist() == [1.0, 1.0, 1.0]

# What was saved is given back. A second walk says so.
try:
    total.backward()
except torch.GraphFreedError as error:
    print("\na second backward:", error)
else:
    raise AssertionError("a second backward over a freed graph must raise")
print("\nThat is the whole way down and back.")
