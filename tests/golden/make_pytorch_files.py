"""Writes the files `pytorch_*.pt` beside it with real PyTorch, which tests read. PyTorch 2.13."""

from __future__ import annotations

import collections
from pathlib import Path

import torch

FLOAT8 = (
    *(torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz),
    torch.float8_e8m0fnu,
)
HERE = Path(__file__).parent


def first() -> dict[str, object]:
    """What `tests/io/test_pytorchs_files.py` describes."""
    a = torch.arange(12.0).reshape(3, 4)
    return {
        "a": a,
        "v": a[1:, ::2],
        "b": torch.ones(3, dtype=torch.bfloat16),
        "c": torch.tensor([1 + 2j]),
        "i": torch.arange(3),
        "p": torch.nn.Parameter(torch.ones(2)),
        "od": collections.OrderedDict(k=torch.zeros(2)),
        "n": 3,
        "t": torch.tensor([True]),
        "u": torch.ones(2, dtype=torch.uint16),
        "f": 0.5,
        "s": "text",
    }


def more() -> dict[str, object]:
    """Attributes, sparse tensors, tensors without memory, storages, names, an optimiser's state."""
    noted = torch.ones(2)
    noted.note = ["a"]  # type: ignore[attr-defined]
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.tag = 3  # type: ignore[attr-defined]
    model = torch.nn.Linear(2, 1)
    torch.nn.init.ones_(model.weight)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    kinds = (
        "bool uint8 uint16 uint32 uint64 int8 int16 int32 int64 float16 bfloat16 float32 float64"
    )
    return {
        "noted": noted,
        "parameter": parameter,
        "buffer": torch.nn.Buffer(torch.ones(1)),
        "coo": torch.eye(3).to_sparse(),
        "csr": torch.eye(3).to_sparse_csr(),
        "meta": torch.empty(3, 2, device="meta").t(),
        "storage": torch.arange(3.0).storage(),
        "untyped": torch.tensor([1, 2, 3], dtype=torch.uint8).untyped_storage(),
        "names": [torch.float8_e5m2, torch.device("cuda", 0), torch.Size([2, 3]), torch.strided],
        "kinds": [torch.arange(3).to(getattr(torch, name)) for name in kinds.split()],
        "complex": [torch.tensor([1 - 2j], dtype=d) for d in (torch.complex64, torch.complex128)],
        "expanded": torch.ones(1).expand(1 << 40),
        "state": {"model": model.state_dict(), "optimizer": optimizer.state_dict()},
        "bytes": [b"", b"abc", bytearray(b"z")],
        "set": {1, 2},
    }


def layers() -> torch.nn.Module:
    """A module with layers of many kinds, the same in each run."""
    torch.manual_seed(0)
    model = torch.nn.ModuleDict(
        {
            "conv": torch.nn.Conv2d(1, 2, 3, padding="same", padding_mode="reflect"),
            "up": torch.nn.ConvTranspose1d(2, 1, 3),
            "norm": torch.nn.BatchNorm2d(2),
            "lstm": torch.nn.LSTM(2, 3, bidirectional=True),
            "attention": torch.nn.TransformerEncoderLayer(4, 2, 4, 0.0, torch.nn.functional.gelu),
            "pad": torch.nn.ZeroPad2d(1),
            "named": torch.nn.ParameterDict({"w": torch.ones(1)}),
            "cut": torch.nn.ReLU6(),
            "larger": torch.nn.Upsample(scale_factor=2),
        }
    )
    return model.eval()


def float8() -> dict[str, torch.Tensor]:
    """Numbers, and what they are in each float8 type: every exponent with both signs, the numbers
    half-way between neighbours and those beside them, infinities and NaNs.
    """
    codes = torch.arange(256).to(torch.uint8)
    found = {}
    for dtype in FLOAT8:
        exact = codes.view(dtype).float()
        exact = exact[exact.isfinite()].sort().values
        found[str(dtype)] = torch.cat([exact, (exact[1:].double() + exact[:-1]).div(2).float()])
    words = torch.cat(list(found.values())).view(torch.int32)
    words = torch.cat([words, words + 1, words - 1, torch.arange(0, 1 << 32, 1 << 22).int()])
    inputs = words.unique().view(torch.float32)
    return {"inputs": inputs} | {str(d).split(".")[1]: inputs.to(d) for d in FLOAT8}


def lazy() -> list[torch.Tensor]:
    """Tensors whose elements PyTorch conjugates or negates when it reads them."""
    z = torch.tensor([1 + 2j, 3 - 4j])
    other = z.clone().conj().imag
    return [z.conj(), other, other[1:]]


def main() -> None:
    torch.save(first(), HERE / "pytorch_archive.pt")
    torch.save(first(), HERE / "pytorch_older.pt", _use_new_zipfile_serialization=False)
    torch.save(more(), HERE / "pytorch_more.pt")
    torch.save(layers(), HERE / "pytorch_layers.pt")
    torch.save(float8(), HERE / "pytorch_float8.pt")
    torch.save(lazy(), HERE / "pytorch_lazy.pt")
    torch.save(torch.ones(2, dtype=torch.complex32), HERE / "pytorch_complex32.pt")


if __name__ == "__main__":
    main()
