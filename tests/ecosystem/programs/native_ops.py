"""torchvision's native ops for PyTorch, where its C++ library does not load: by formulas.

`nms` is a loop over boxes, `roi_align` torchvision's own text for compilers. Under Rushlight
nothing is done: its ops are what is measured.
"""

import importlib

import torch

if "rushlight" not in torch.__version__:
    shown = "Tensor input, Tensor rois, float scale, int height, int width, int ratio, bool aligned"
    for name in ("nms", "qnms"):
        shape = "(Tensor dets, Tensor scores, float t) -> Tensor"
        torch.library.define(f"torchvision::{name}", shape)
    torch.library.define("torchvision::roi_align", f"({shown}) -> Tensor")
    torch.library.define("torchvision::_cuda_version", "() -> int")

    def nms(dets, scores, threshold):
        kept = []
        for i in scores.argsort(descending=True, stable=True).tolist():
            a = dets[i]
            for j in kept:
                b = dets[j]
                sides = (torch.minimum(a[2:], b[2:]) - torch.maximum(a[:2], b[:2])).clamp(min=0)
                both = (a[2:] - a[:2]).prod() + (b[2:] - b[:2]).prod()
                if sides.prod() / (both - sides.prod()) > threshold:
                    break
            else:
                kept.append(i)
        return torch.tensor(kept, dtype=torch.int64)

    def roi_align(*given):
        return importlib.import_module("torchvision.ops.roi_align")._roi_align(*given)

    torch.library.impl("torchvision::nms", "CPU", nms)
    torch.library.impl("torchvision::roi_align", "CompositeImplicitAutograd", roi_align)
    extension = importlib.import_module("torchvision.extension")
    extension._has_ops = lambda: True
    extension._assert_has_ops = lambda: None
