"""Each line is an error, of the codes that its comment names."""

from __future__ import annotations

import rushlight as torch
import rushlight.nn.functional as F

x = torch.randn(2, 3)
torch.randn("a")  # arg-type
torch.nothing(x)  # attr-defined
_ = x.nothing  # attr-defined
x.sum(dim="0")  # arg-type
torch.exp(x, 2)  # arg-type call-arg
torch.exp(x, base=2)  # call-arg
torch.add("a", x)  # arg-type
torch.zeros(2, dtype="float32")  # arg-type
_ = x.topk(2).nothing  # attr-defined
x.max(dim=0).item()  # attr-defined
F.cross_entropy(x)  # call-arg
F.relu(x, inplac=True)  # call-arg
torch.linalg.nothing(x)  # attr-defined
text: str = x.shape[0]  # assignment
x.add_()  # call-arg
_ = x + "a"  # operator
torch.cat(x, "0")  # arg-type
torch.nn.Linear("2", 3)  # arg-type
torch.optim.SGD(x.parameters(), 0.1)  # attr-defined
