"""torchvision's native ops: against loops over boxes, bins and samples, on every device."""

from __future__ import annotations

import numpy as np
import pytest

import rushlight
from rushlight.compat import library, vision
from rushlight.core.errors import RushlightError, ShapeError

SIZE = (3, 4)


def maps() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((2, 3, 9, 11)).astype(np.float32)


def regions() -> np.ndarray:
    corners = np.random.default_rng(1).uniform(-4, 48, (7, 2, 2))
    low, high = corners.min(1), corners.max(1)
    number = np.arange(7)[:, None] % 2
    return np.concatenate([number, low, high + 1], 1).astype(np.float32)


def sample(x: np.ndarray, y: float, at: float) -> np.ndarray:
    """A bilinear sample of maps [c, h, w]."""
    h, w = x.shape[1:]
    if not -1 <= y <= h or not -1 <= at <= w:
        return np.zeros(x.shape[0])
    y, at = max(y, 0.0), max(at, 0.0)
    top, left = min(int(y), h - 1), min(int(at), w - 1)
    y, at = (top if top == h - 1 else y), (left if left == w - 1 else at)
    low, right = min(top + 1, h - 1), min(left + 1, w - 1)
    b, r = y - top, at - left
    upper = x[:, top, left] * (1 - r) + x[:, top, right] * r
    lower = x[:, low, left] * (1 - r) + x[:, low, right] * r
    return upper * (1 - b) + lower * b


def aligned_mean(x: np.ndarray, rois: np.ndarray, ratio: int, aligned: bool) -> np.ndarray:
    out = np.zeros((len(rois), x.shape[1], *SIZE))
    for k, (number, *corners) in enumerate(rois.astype(np.float64)):
        x1, y1, x2, y2 = (v * 0.25 - (0.5 if aligned else 0.0) for v in corners)
        width, height = x2 - x1, y2 - y1
        if not aligned:
            width, height = max(width, 1.0), max(height, 1.0)
        bins = (height / SIZE[0], width / SIZE[1])
        down, across = (ratio, ratio) if ratio > 0 else (int(np.ceil(b)) for b in bins)
        for p, q in np.ndindex(*SIZE):
            total = sum(
                sample(
                    x[int(number)],
                    y1 + p * bins[0] + (i + 0.5) * bins[0] / down,
                    x1 + q * bins[1] + (j + 0.5) * bins[1] / across,
                )
                for i in range(down)
                for j in range(across)
            )
            out[k, :, p, q] = total / max(down * across, 1)
    return out


@pytest.mark.parametrize("device", ["cpu", "webgpu"])
@pytest.mark.parametrize("ratio", [2, 0])
@pytest.mark.parametrize("aligned", [False, True])
def test_roi_align(device, ratio, aligned, require_device, monkeypatch) -> None:
    require_device(device)
    monkeypatch.setattr(vision, "_ROWS", 1000)  # so that regions come in several parts
    x = rushlight.tensor(maps(), device=device, requires_grad=True)
    rois = rushlight.tensor(regions(), device=device)
    out = vision.roi_align(x, rois, 0.25, *SIZE, ratio, aligned)
    wanted = aligned_mean(maps(), regions(), ratio, aligned)
    assert np.abs(out.detach().cpu().numpy() - wanted).max() < 1e-4
    weights = rushlight.arange(out.numel(), device=device).reshape(out.shape).float().cos()
    (out * weights).sum().backward()
    direction = np.random.default_rng(2).standard_normal(maps().shape)
    change = aligned_mean(direction, regions(), ratio, aligned)  # the op is linear
    by_op = (x.grad.cpu().numpy() * direction).sum()
    assert abs(by_op - (change * weights.cpu().numpy()).sum()) < 1e-3


@pytest.mark.parametrize("device", ["cpu", "webgpu"])
def test_roi_pool(device, require_device) -> None:
    require_device(device)
    x = rushlight.tensor(maps(), device=device, requires_grad=True)
    out, at = vision.roi_pool(x, rushlight.tensor(regions(), device=device), 0.25, *SIZE)
    grad = np.zeros_like(maps())
    for k, (number, *corners) in enumerate(regions()):
        x1, y1, x2, y2 = (int(np.sign(v) * np.floor(abs(v) * 0.25 + 0.5)) for v in corners)
        height, width = max(y2 - y1 + 1, 1), max(x2 - x1 + 1, 1)
        for p, q in np.ndindex(*SIZE):
            top, low = (p * height // SIZE[0], -(-(p + 1) * height // SIZE[0]))
            left, right = (q * width // SIZE[1], -(-(q + 1) * width // SIZE[1]))
            top, low = np.clip([top + y1, low + y1], 0, 9)
            left, right = np.clip([left + x1, right + x1], 0, 11)
            for c in range(3):
                part = maps()[int(number), c, top:low, left:right]
                value, place = (part.max(), part.argmax()) if part.size else (0.0, -1)
                assert out[k, c, p, q].item() == value
                if part.size:
                    place = (top + place // part.shape[1]) * 11 + left + place % part.shape[1]
                    grad[int(number), c].reshape(-1)[place] += 1
                assert at[k, c, p, q].item() == place
    out.sum().backward()
    assert (x.grad.cpu().numpy() == grad).all()


def own_channels(pooled: np.ndarray, bins: int) -> np.ndarray:
    """Of bins pooled in all channels, [k, c * bins, height, width], those in a bin's own."""
    k, channels, *size = pooled.shape
    split = pooled.reshape(k, channels // bins, *size, *size)
    return np.einsum("kcpqpq->kcpq", split)


@pytest.mark.parametrize("device", ["cpu", "webgpu"])
@pytest.mark.parametrize("ratio", [2, 0])
def test_ps_roi_align(device, ratio, require_device, monkeypatch) -> None:
    require_device(device)
    monkeypatch.setattr(vision, "_ROWS", 1000)
    many = np.random.default_rng(4).standard_normal((2, 24, 9, 11)).astype(np.float32)
    x = rushlight.tensor(many, device=device, requires_grad=True)
    out, channels = vision.ps_roi_align(
        x, rushlight.tensor(regions(), device=device), 0.25, *SIZE, ratio
    )
    assert channels.tolist() == [np.arange(24).reshape(2, *SIZE).tolist()] * 7
    wanted = own_channels(aligned_mean(many, regions(), ratio, True), 12)
    assert np.abs(out.detach().cpu().numpy() - wanted).max() < 1e-4
    weights = np.cos(np.arange(out.numel())).reshape(out.shape)
    (out * rushlight.tensor(weights.astype(np.float32), device=device)).sum().backward()
    direction = np.random.default_rng(2).standard_normal(many.shape)  # the op is linear
    change = own_channels(aligned_mean(direction, regions(), ratio, True), 12)
    assert abs((x.grad.cpu().numpy() * direction).sum() - (change * weights).sum()) < 1e-3


@pytest.mark.parametrize("device", ["cpu", "webgpu"])
def test_ps_roi_pool(device, require_device) -> None:
    require_device(device)
    many = np.random.default_rng(4).standard_normal((2, 24, 9, 11)).astype(np.float32)
    x = rushlight.tensor(many, device=device, requires_grad=True)
    out, _ = vision.ps_roi_pool(x, rushlight.tensor(regions(), device=device), 0.25, *SIZE)
    wanted, grad = np.zeros(out.shape), np.zeros_like(many)
    for k, (number, *corners) in enumerate(regions()):
        x1, y1, x2, y2 = (int(np.sign(v) * np.floor(abs(v) * 0.25 + 0.5)) for v in corners)
        height, width = max(y2 - y1, 1), max(x2 - x1, 1)
        for c, p, q in np.ndindex(2, *SIZE):
            top, low = (p * height // SIZE[0], -(-(p + 1) * height // SIZE[0]))
            left, right = (q * width // SIZE[1], -(-(q + 1) * width // SIZE[1]))
            top, low = np.clip([top + y1, low + y1], 0, 8)
            left, right = np.clip([left + x1, right + x1], 0, 10)
            place = (
                int(number),
                (c * SIZE[0] + p) * SIZE[1] + q,
                slice(top, low),
                slice(left, right),
            )
            if many[place].size:
                wanted[k, c, p, q] = many[place].mean()
                grad[place] += 1 / many[place].size
    assert np.abs(out.detach().cpu().numpy() - wanted).max() < 1e-5
    out.sum().backward()
    assert np.abs(x.grad.cpu().numpy() - grad).max() < 1e-5


def deformed(x, weight, offset, mask, stride, pad, dilation, groups, offset_groups) -> np.ndarray:
    """The definition: a sum over taps of samples at moved places, without padding beyond them."""
    outs, each, down, across = weight.shape
    n, c, h, w = x.shape
    out = np.zeros((n, outs, *offset.shape[2:]))
    moved = offset.reshape(n, offset_groups, down, across, 2, *offset.shape[2:])
    factors = mask.reshape(n, offset_groups, down, across, *offset.shape[2:])

    def at(image: int, channel: int, y: int, z: int) -> float:
        return x[image, channel, y, z] if 0 <= y < h and 0 <= z < w else 0.0

    for b, o, p, q in np.ndindex(*out.shape):
        for i, j, k in np.ndindex(each, down, across):
            channel = o // (outs // groups) * each + i
            group = channel // (c // offset_groups)
            y, z = moved[b, group, j, k, :, p, q]
            y = p * stride[0] - pad[0] + j * dilation[0] + y
            z = q * stride[1] - pad[1] + k * dilation[1] + z
            top, left = int(np.floor(y)), int(np.floor(z))
            v, u = y - top, z - left
            upper = at(b, channel, top, left) * (1 - u) + at(b, channel, top, left + 1) * u
            lower = at(b, channel, top + 1, left) * (1 - u) + at(b, channel, top + 1, left + 1) * u
            sampled = upper * (1 - v) + lower * v
            out[b, o, p, q] += weight[o, i, j, k] * sampled * factors[b, group, j, k, p, q]
    return out


@pytest.mark.parametrize("device", ["cpu", "webgpu"])
@pytest.mark.parametrize("groups", [1, 2])
def test_deform_conv2d(device, groups, require_device, monkeypatch) -> None:
    require_device(device)
    monkeypatch.setattr(vision, "_ROWS", 1000)  # so that images come in several parts
    numbers = np.random.default_rng(6)
    stride, pad, dilation, size = (2, 1), (1, 2), (1, 2), (3, 5)
    given = [
        numbers.standard_normal((3, 4, 5, 5)),
        numbers.standard_normal((4, 4 // groups, 3, 3)),
        numbers.standard_normal((3, 2 * groups * 9, *size)) * 2,
        numbers.random((3, groups * 9, *size)),
        numbers.standard_normal(4),
    ]
    x, weight, offset, mask, bias = tensors = [
        rushlight.tensor(a.astype(np.float32), device=device, requires_grad=True) for a in given
    ]
    place = (*stride, *pad, *dilation, groups, groups)
    out = vision.deform_conv2d(x, weight, offset, mask, bias, *place, True)
    wanted = deformed(*given[:4], stride, pad, dilation, groups, groups) + given[4][:, None, None]
    assert np.abs(out.detach().cpu().numpy() - wanted).max() < 1e-4
    (out * out).sum().backward()
    step = 1e-4
    for i, tensor in enumerate(tensors):  # the slope along one direction each
        turned = numbers.standard_normal(given[i].shape)
        moved = [
            [a + side * step * turned if k == i else a for k, a in enumerate(given)]
            for side in (1, -1)
        ]
        losses = [
            (
                (deformed(*m[:4], stride, pad, dilation, groups, groups) + m[4][:, None, None]) ** 2
            ).sum()
            for m in moved
        ]
        slope = (losses[0] - losses[1]) / (2 * step)
        got = (tensor.grad.cpu().numpy() * turned).sum()
        assert abs(got - slope) < 5e-3 * max(1, abs(slope)), i
    plain = vision.deform_conv2d(x, weight, offset, mask[:, :1], bias, *place, False)
    ones = np.ones_like(given[3])
    wanted = deformed(*given[:3], ones, stride, pad, dilation, groups, groups)
    assert np.abs(plain.detach().cpu().numpy() - wanted - given[4][:, None, None]).max() < 1e-4


def test_deform_conv2d_refuses() -> None:
    x, weight, one = rushlight.ones(1, 2, 4, 4), rushlight.ones(1, 2, 3, 3), rushlight.zeros(1, 1)
    place = (1, 1, 0, 0, 1, 1, 1, 1, False)
    with pytest.raises(ShapeError, match="offsets are"):
        vision.deform_conv2d(x, weight, rushlight.ones(1, 18, 3, 3), one, one[0], *place)
    with pytest.raises(ShapeError, match="2 channels do not fit"):
        vision.deform_conv2d(x, weight[:, :1], rushlight.ones(1, 18, 2, 2), one, one[0], *place)
    with pytest.raises(ShapeError, match="not a multiple"):
        vision.ps_roi_align(x, rushlight.zeros(1, 5), 1.0, 3, 3, 2)


@pytest.mark.parametrize("device", ["cpu", "webgpu"])
@pytest.mark.parametrize("threshold", [0.1, 0.5])
def test_nms(device, threshold, require_device, monkeypatch) -> None:
    require_device(device)
    monkeypatch.setattr(vision, "_PAIRS", 400)
    numbers = np.random.default_rng(3)
    boxes = numbers.random((50, 4)).astype(np.float32)
    boxes[:, 2:] += boxes[:, :2]
    scores = numbers.integers(0, 20, 50).astype(np.float32)  # some are equal
    kept: list[int] = []
    for i in np.argsort(-scores, kind="stable"):
        low, high = (
            np.maximum(boxes[kept, :2], boxes[i, :2]),
            np.minimum(boxes[kept, 2:], boxes[i, 2:]),
        )
        shared = np.maximum(high - low, 0).prod(1)
        areas = (boxes[kept, 2:] - boxes[kept, :2]).prod(1) + (boxes[i, 2:] - boxes[i, :2]).prod()
        if not (shared / (areas - shared) > threshold).any():
            kept.append(int(i))
    found = vision.nms(
        rushlight.tensor(boxes, device=device), rushlight.tensor(scores, device=device), threshold
    )
    assert found.tolist() == kept and found.device.type == device


@pytest.mark.parametrize("dtype", [rushlight.float16, rushlight.bfloat16])
def test_nms_of_large_half_boxes(dtype) -> None:
    boxes = rushlight.tensor([[0.0, 0, 512, 512], [0, 0, 512, 480], [0, 0, 64, 64]], dtype=dtype)
    scores = rushlight.tensor([0.75, 0.5, 0.25], dtype=dtype)
    assert vision.nms(boxes, scores, 0.5).tolist() == [0, 2]


def test_none_and_wrong_regions() -> None:
    x, none = rushlight.ones(1, 2, 4, 4), rushlight.zeros(0, 5)
    assert vision.roi_align(x, none, 1.0, *SIZE, 2, False).shape == (0, 2, *SIZE)
    assert vision.roi_pool(x, none, 1.0, *SIZE)[1].shape == (0, 2, *SIZE)
    assert vision.nms(rushlight.zeros(0, 4), rushlight.zeros(0), 0.5).tolist() == []
    with pytest.raises(ShapeError, match="roi_align: an input"):
        vision.roi_align(x, rushlight.zeros(1, 4), 1.0, *SIZE, 2, False)
    with pytest.raises(ShapeError, match="nms: boxes"):
        vision.nms(rushlight.zeros(2, 3), rushlight.zeros(2), 0.5)


def test_they_are_found_where_torchvision_looks() -> None:
    library.load_library("/somewhere/torchvision/_C.so")
    found = library.namespace("torchvision")
    assert (
        found is not None
        and found.nms.default(rushlight.zeros(0, 4), rushlight.zeros(0), 0.5) is not None
    )
    with pytest.raises(RushlightError, match="qroi_align is not implemented"):
        found.qroi_align()
    with pytest.raises(OSError, match="compiled against PyTorch"):
        library.load_library("/somewhere/torchvision/image.so")
