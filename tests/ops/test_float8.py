"""Float8 tensors: PyTorch's conversions to the bit, elements that move keep their codes."""

from __future__ import annotations

import io
import pickle
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import rushlight as rl
from rushlight.core.dtypes import FLOAT8, DType
from rushlight.nn import functional as F

GOLDEN = Path(__file__).parents[1] / "golden"
TYPES = pytest.mark.parametrize("dtype", FLOAT8, ids=lambda dtype: dtype.name)


def codes(tensor: rl.Tensor) -> list:
    return tensor.view(rl.uint8).tolist()


def every_code(dtype: DType, device: str = "cpu") -> rl.Tensor:
    return rl.arange(256, dtype=rl.uint8, device=device).view(dtype)


@TYPES
def test_casts_to_it_are_pytorchs(dtype: DType, device: str) -> None:
    found = rl.load(GOLDEN / "pytorch_float8.pt")
    inputs = found["inputs"]
    assert len(inputs) > 3000 and found[dtype.name].dtype is dtype
    assert codes(inputs.to(device).to(dtype)) == codes(found[dtype.name])
    assert codes(inputs.to(device)[::3].to(dtype)) == codes(found[dtype.name])[::3]


@TYPES
@pytest.mark.parametrize("wanted", [rl.float32, rl.float16, rl.bfloat16, rl.complex64, rl.bool])
def test_casts_from_it(dtype: DType, wanted: DType, device: str) -> None:
    exact = np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, dtype.name))
    with np.errstate(over="ignore", invalid="ignore"):
        want = rl.tensor(exact.astype(np.float32)).to(wanted)
    got = every_code(dtype, device).to(wanted).cpu()
    assert got.dtype is wanted
    # As wide numbers: NumPy tells bfloat16's NaNs apart.
    np.testing.assert_array_equal(*(t.to(rl.complex128).numpy() for t in (got, want)))


@TYPES
def test_numbers_of_other_types(dtype: DType, device: str) -> None:
    want = rl.tensor([0.0, 1.0, 2.0, 200.0]).to(dtype)
    for given in (rl.int64, rl.int16, rl.uint8, rl.float16, rl.bfloat16):
        assert codes(rl.tensor([0, 1, 2, 200], dtype=given, device=device).to(dtype)) == codes(want)
    assert codes(rl.tensor([0, 1, 2, 200], dtype=dtype, device=device)) == codes(want)
    narrow = want.to(rl.float8_e5m2)
    assert codes(narrow.to(device).to(dtype)) == codes(narrow.float().to(dtype))
    assert rl.full((2,), 2.0, dtype=dtype, device=device).tolist() == [2.0, 2.0]
    assert rl.ones(2, dtype=dtype, device=device).fill_(4).tolist() == [4.0, 4.0]


def test_numbers_beyond_the_largest() -> None:
    beyond = [1000.0, -1e9, float("inf"), float("nan")]
    assert codes(rl.tensor(beyond, dtype=rl.float8_e4m3fn)) == [0x7E, 0xFE, 0x7E, 0x7F]
    assert codes(rl.tensor(beyond, dtype=rl.float8_e4m3fnuz)) == [0x80] * 4
    assert codes(rl.tensor(1e9, dtype=rl.float8_e5m2)) == 0x7C


@TYPES
def test_elements_that_move_keep_their_codes(dtype: DType, device: str) -> None:
    x = every_code(dtype, device)
    numbers = list(range(256))
    square = x.view(16, 16)
    assert codes(x.clone()) == codes(square.reshape(-1)) == numbers
    assert codes(square.t().contiguous()) == rl.arange(256).view(16, 16).t().tolist()
    assert codes(rl.cat([x[:3], x[250:]])) == [0, 1, 2, *range(250, 256)]
    assert codes(x.flip(0)) == numbers[::-1] and codes(x.roll(1)) == [255, *range(255)]
    assert codes(rl.where(rl.arange(256, device=device) < 128, x, x.flip(0)))[126:130] == [
        *(126, 127, 127, 126)
    ]
    index = rl.tensor([255, 0, 127], device=device)
    assert codes(x[index]) == codes(x.index_select(0, index)) == [255, 0, 127]
    assert codes(x[x.view(rl.uint8) > 250]) == [251, 252, 253, 254, 255]
    assert codes(F.embedding(index[:1] - 240, square)) == [list(range(240, 256))]
    target = rl.zeros(256, dtype=dtype, device=device)
    assert codes(target.copy_(x)) == numbers
    target[index] = x[:3]
    assert codes(target[index]) == [0, 1, 2]
    assert codes(F.pad(x[125:127], (1, 1)))[1:3] == [125, 126]
    assert codes(rl.stack([x, x])) == [numbers] * 2 and codes(x.repeat(2)) == numbers * 2
    assert codes(x.cpu().to(device)) == numbers


@TYPES
def test_saved_and_loaded(dtype: DType, tmp_path: Path) -> None:
    x = every_code(dtype)
    for given in ({"x": x, "part": x[5:9]}, {"x": x, "bytes": x.view(rl.uint8)}):
        file = io.BytesIO()
        rl.save(given, file)
        file.seek(0)
        found = rl.load(file)
        assert {k: v.dtype for k, v in found.items()} == {k: v.dtype for k, v in given.items()}
        assert {k: codes(v) for k, v in found.items()} == {k: codes(v) for k, v in given.items()}
    assert codes(pickle.loads(pickle.dumps(x))) == codes(x)
    rl.io.save_file({"x": x.view(16, 16)}, tmp_path / "x.safetensors")
    (found,) = rl.io.load_file(tmp_path / "x.safetensors").values()
    assert found.dtype is dtype and codes(found.view(-1)) == codes(x)
    assert x.storage().dtype is dtype and x.untyped_storage().nbytes() == 256


def test_names_in_safetensors(tmp_path: Path) -> None:
    rl.io.save_file({d.name: rl.zeros(1, dtype=d) for d in FLOAT8}, tmp_path / "x")
    header = (tmp_path / "x").read_bytes()
    for name in (b"F8_E4M3", b"F8_E4M3FNUZ", b"F8_E5M2", b"F8_E5M2FNUZ", b"F8_E8M0"):
        assert b'"dtype":"%s"' % name in header


@TYPES
def test_numpy_and_dlpack_share_memory(dtype: DType) -> None:
    x = every_code(dtype)
    array = x.numpy()
    assert array.dtype == getattr(ml_dtypes, dtype.name)
    array.view(np.uint8)[0] = 9
    assert codes(x[0]) == 9 and codes(rl.from_numpy(array)[:2]) == [9, 1]
    other = rl.from_dlpack(x)
    assert other.dtype is dtype and other.data_ptr() == x.data_ptr()


def test_text_and_limits() -> None:
    x = rl.tensor([1.0, -2.0, 3.5]).to(rl.float8_e4m3fn)
    assert repr(x) == "tensor([ 1.0000, -2.0000,  3.5000], dtype=rushlight.float8_e4m3fn)"
    assert x.element_size() == 1 and x.dtype.is_floating_point and x.dtype.is_signed
    assert x.tolist() == [1.0, -2.0, 3.5] and x[2].item() == 3.5 and float(x[0]) == 1.0
    assert not rl.float8_e8m0fnu.is_signed
    limits = rl.finfo(rl.float8_e8m0fnu)
    assert (limits.min, limits.max, limits.eps) == (2.0**-127, 2.0**127, 1.0)
    assert rl.finfo(rl.float8_e5m2).min == -57344 and rl.finfo(rl.float8_e4m3fn).eps == 0.125
    assert x.type() == "torch.Float8_e4m3fnTensor"


def test_comparisons_and_tests(device: str) -> None:
    x = rl.tensor([1.0, 0.0, float("nan")], device=device).to(rl.float8_e5m2)
    assert (x == x).tolist() == [True, True, False] and (x != 1).tolist() == [False, True, True]
    assert x.isnan().tolist() == [False, False, True]
    assert x.any().item() and not x.all().item()
    assert rl.equal(x[:2], x[:2].clone())


def test_products_are_made_in_float32(device: str) -> None:
    a, b = rl.randn(4, 8, device=device), rl.randn(8, 4, device=device)
    x, y = a.to(rl.float8_e4m3fn), b.to(rl.float8_e4m3fn)
    want = x.float() @ y.float()
    assert codes(x @ y) == codes(want.to(rl.float8_e4m3fn)) == codes(F.linear(x, y.t()))
    scales = rl.tensor(2.0, device=device), rl.full((1, 4), 0.5, device=device)
    got = rl._scaled_mm(x, y, *scales, out_dtype=rl.float32)
    assert got.tolist() == (want * 2.0 * scales[1]).tolist()
    assert codes(x * x) == codes((x.float() * x.float()).to(rl.float8_e4m3fn))


@pytest.mark.parametrize(
    "call",
    [
        *(lambda x: x + x, lambda x: x + 1, lambda x: x / x, lambda x: -x, lambda x: x < x),
        *(lambda x: x.sum(), lambda x: x.sort(), lambda x: x.max(), lambda x: x.cumsum(0)),
        *(lambda x: x.exp(), lambda x: x.softmax(0), lambda x: x.random_(), lambda x: x.add_(1)),
        *(lambda x: x.topk(1), lambda x: x.index_add(0, rl.tensor([0]), x[:1])),
        lambda x: rl.rand(2, dtype=x.dtype),
    ],
)
def test_arithmetic_is_refused(call) -> None:
    x = rl.ones(3).to(rl.float8_e4m3fn)
    with pytest.raises(NotImplementedError, match="float8_e4m3fn"):
        call(x)
    assert x.tolist() == [1.0] * 3


def test_no_common_type_with_another() -> None:
    x = rl.ones(3).to(rl.float8_e4m3fn)
    for other in (rl.ones(3), rl.ones(3).int(), rl.ones(3).to(rl.float8_e5m2)):
        with pytest.raises(RuntimeError, match="no common type"):
            x == other  # noqa: B015
        with pytest.raises(RuntimeError, match="no common type"):
            rl.cat([x, other])
    with pytest.raises(TypeError, match="default type"):
        rl.set_default_dtype(rl.float8_e5m2)


def test_gradients_pass_casts(device: str) -> None:
    x = rl.tensor([1.0, 2.0, 3.0], device=device, requires_grad=True)
    (
        x.to(rl.float8_e4m3fn).to(rl.float32) * rl.tensor([1.0, 2.0, 4.5], device=device)
    ).sum().backward()
    assert x.grad.tolist() == [1.0, 2.0, 4.5]


@pytest.mark.parametrize(
    ("check", "given"), [(rl.autograd.detect_anomaly, ()), (rl.shadow, (1.0,))]
)
def test_checks_know_it(check, given) -> None:
    with check(*given) as report:
        x = rl.randn(1000, requires_grad=True)
        y = x.to(rl.float8_e4m3fn).float()
        y.sum().backward()
    assert x.grad.tolist() == [1.0] * 1000
    assert report is None or "to_float8_e4m3fn" in str(report)


def test_a_budget_rebuilds_it() -> None:
    x = rl.randn(1 << 16)
    want = (x.to(rl.float8_e4m3fn).float() * x).sum()
    with rl.memory.budget(1 << 20):
        leaf = x.clone().requires_grad_()
        kept = [(leaf * k).to(rl.float8_e4m3fn).float() * leaf for k in (1, 2, 3, 4)]
        kept[0].sum().backward()
    assert kept[0].sum().item() == want.item()


def test_finite_codes(device: str) -> None:
    codes = rl.arange(256, dtype=rl.uint8, device=device)
    for dtype, finite, infinite in (
        (rl.float8_e4m3fn, 254, 0),
        (rl.float8_e4m3fnuz, 255, 0),
        (rl.float8_e5m2, 248, 2),
        (rl.float8_e5m2fnuz, 255, 0),
        (rl.float8_e8m0fnu, 255, 0),
    ):
        x = codes.view(dtype)
        assert x.isfinite().sum().item() == finite and x.isinf().sum().item() == infinite
