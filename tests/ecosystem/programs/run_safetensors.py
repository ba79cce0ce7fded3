"""safetensors.torch: files written and read again."""

import os
import tempfile

import torch
from common import digest, normal, tell
from safetensors.torch import load_file, load_model, save_file, save_model

state = {"a": normal(3, 4), "b": normal(5).to(torch.bfloat16), "c": torch.arange(6).reshape(2, 3)}
net, other = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "a.safetensors")
    save_file(state, path, {"format": "pt"})
    found = load_file(path)
    save_model(net, path)
    load_model(other, path)
tell(
    a=digest(found["a"]),
    b=digest(found["b"]),
    c=digest(found["c"]),
    same=[torch.equal(state[k], found[k]) for k in state] + [torch.equal(net.weight, other.weight)],
)
