"""Environments without PyTorch: one for each library, with pinned versions."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

# What Rushlight needs, and what most libraries do.
BASE = ["numpy", "llvmlite", "ml_dtypes", "opt_einsum", "wgpu", "tqdm"]
BASE += ["packaging", "typing_extensions"]
_HUB = "huggingface_hub==2.4.0 safetensors==0.8.0"
_HUGGING = f"transformers==5.22.2 tokenizers==0.23.3 {_HUB}"
_HUGGING_NEEDS = (
    "regex pyyaml requests filelock packaging fsspec typing_extensions typer hf-xet httpx httpx2 "
    "click jinja2"
)
# By library: what is installed without its dependencies, and other packages that it needs.
LIBRARIES: dict[str, tuple[str, str]] = {
    "accelerate": (f"accelerate==1.15.0 {_HUGGING}", f"{_HUGGING_NEEDS} psutil"),
    "architectures": (_HUGGING, _HUGGING_NEEDS),
    "botorch": (
        "botorch==0.18.1 gpytorch==1.15.2 linear_operator==0.6.1 pyro-ppl==1.9.2 pyro-api==0.1.2",
        "jaxtyping scikit-learn mpmath<1.4 multipledispatch scipy pyre-extensions",
    ),
    "captum": ("captum==0.9.0", "matplotlib packaging"),
    "diffusers": (
        f"diffusers==0.42.1 {_HUGGING}",
        f"{_HUGGING_NEEDS} pillow importlib_metadata",
    ),
    "einops": ("einops==0.8.2", ""),
    "gpytorch": ("gpytorch==1.15.2 linear_operator==0.6.1", "jaxtyping scikit-learn mpmath<1.4"),
    "kornia": ("kornia==0.9.0 kornia_rs", "packaging pillow"),
    "lightning": (
        "lightning==2.6.6 pytorch-lightning==2.6.6 torchmetrics==1.9.0 lightning-utilities==0.15.3",
        "pyyaml packaging fsspec typing_extensions requests rich setuptools<80",
    ),
    "monai": ("monai==1.6.1", "scipy"),
    "peft": (f"peft==0.21.2 accelerate==1.15.0 {_HUGGING}", f"{_HUGGING_NEEDS} psutil"),
    "pyro": ("pyro-ppl==1.9.2 pyro-api==0.1.2", "typing_extensions"),
    "safetensors": ("safetensors==0.8.0", "packaging"),
    "sentence_transformers": (
        f"sentence-transformers==6.2.0 {_HUGGING}",
        f"{_HUGGING_NEEDS} scikit-learn scipy pillow",
    ),
    "skorch": ("skorch==1.4.0", "scikit-learn tabulate"),
    "tensorboard": ("tensorboard==2.21.0", "pillow protobuf absl-py grpcio markdown werkzeug"),
    "timm": (f"timm==1.0.30 torchvision==0.28.0 {_HUB}", f"{_HUGGING_NEEDS} pillow"),
    "torch_geometric": (
        "torch-geometric==2.8.1",
        "aiohttp fsspec jinja2 psutil pyparsing requests xxhash",
    ),
    "torchdiffeq": ("torchdiffeq==0.2.5", "scipy"),
    "torchinfo": ("torchinfo==1.8.0", ""),
    "torchmetrics": ("torchmetrics==1.9.0 lightning-utilities==0.15.3", "packaging setuptools<80"),
    "torchvision": ("torchvision==0.28.0", "pillow"),
    "transformers": (_HUGGING, _HUGGING_NEEDS),
}


def python_for(library: str, folder: Path) -> Path:
    """The Python of a library's environment, which is made where it is not there."""
    home = folder / library
    python = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    done = home / "done"
    if not done.exists():
        venv.create(home, with_pip=True, clear=True)
        pinned, others = LIBRARIES[library]
        for words in ([*BASE, *others.split()], ["--no-deps", *pinned.split()]):
            install = [str(python), "-m", "pip", "install", "-q", *words]
            subprocess.run(install, check=True, stdout=sys.stderr)
        done.touch()
    return python
