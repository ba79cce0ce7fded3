"""PyTorch's `torch.utils.model_zoo`: the older name of `hub.load_state_dict_from_url`."""

from __future__ import annotations

from rushlight.compat.hub import (
    load_state_dict_from_url as load_state_dict_from_url,
    tqdm as tqdm,
)

load_url = load_state_dict_from_url
