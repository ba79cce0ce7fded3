"""The rest of PyTorch's module tree: what has a meaning here works, the rest refuses clearly."""

from __future__ import annotations

import collections
import importlib
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import rushlight
from rushlight import RushlightWarning, nn
from rushlight.core import saying
from rushlight.core.errors import NotDifferentiable, RushlightError

MODULES = """
    torch._C torch._dynamo torch._dynamo.eval_frame torch._jit_internal torch._subclasses
    torch._tensor_str torch.amp.autocast_mode torch.ao.quantization torch.autograd.profiler
    torch.autograd.profiler_util
    torch.backends.cuda torch.backends.cudnn torch.backends.mps torch.compiler torch.cuda.amp
    torch.cuda.streams torch.distributed torch.distributed.rpc torch.distributed.tensor
    torch.distributions.normal torch.distributions.relaxed_bernoulli torch.export torch.functional
    torch.futures torch.fx torch.fx.experimental.proxy_tensor torch.hub torch.jit
    torch.jit.annotations torch.library torch.multiprocessing torch.nn.attention.flex_attention
    torch.nn.parallel torch.nn.parallel.distributed torch.nn.parallel.scatter_gather
    torch.nn.utils.fusion torch.onnx torch.onnx.symbolic_helper torch.optim.adamw torch.overrides
    torch.package torch.profiler torch.torch_version torch.types torch.utils._python_dispatch
    torch.utils.cpp_extension torch.utils.flop_counter torch.utils.model_zoo torch.version torch.xpu
"""


@pytest.fixture
def torch():
    with rushlight.patch("cpu") as module:
        yield module


def test_modules_are_found(torch) -> None:
    for name in MODULES.split():
        found = importlib.import_module(name)
        assert found.__doc__, name
    assert torch.autograd.profiler.profile and torch.distributed.rpc.init_rpc
    assert torch.nn.parallel.DistributedDataParallel and torch.distributions.normal.Normal
    assert torch.optim.adamw.AdamW is rushlight.optim.AdamW and rushlight.jit is torch.jit


def test_modules_are_attributes_without_an_import_of_their_own() -> None:
    program = """
import rushlight.as_torch
import torch
from torch.distributed import rpc
assert torch.autograd.profiler.profile and torch.distributed.rpc is rpc
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_jit_is_the_identity(torch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saying, "_SAID", set())

    def double(x):
        return 2 * x

    with pytest.warns(RushlightWarning, match="stays eager") as said:
        assert torch.jit.script(double) is double and torch.jit.script(double) is double
    assert len(said) == 1
    assert torch.jit.ignore(double) is double and torch.jit.ignore(drop=True)(double) is double
    assert torch.jit.unused(double) is double and not torch.jit.is_scripting()
    assert torch.jit.isinstance([1], list[int]) and torch.jit.annotate(list[int], [1]) == [1]
    for refused in (lambda: torch.jit.save(double, "f"), lambda: torch.jit.load("f")):
        with pytest.raises(RushlightError, match="TorchScript"):
            refused()


def test_compile_is_eager(torch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saying, "_SAID", set())
    net = nn.Linear(2, 2)
    with pytest.warns(RushlightWarning, match="stay eager"):
        assert torch.compile(net, mode="max-autotune", fullgraph=True) is net
    assert torch.compile(dynamic=True)(net) is net and not torch.compiler.is_compiling()
    assert (
        torch.compiler.disable(net) is net and torch.compiler.disable(recursive=False)(net) is net
    )


def test_the_precision_of_convolutions(torch) -> None:
    cudnn = torch.backends.cudnn
    assert cudnn.allow_tf32 and cudnn.conv.fp32_precision == "tf32"
    with cudnn.flags(allow_tf32=False):
        assert not cudnn.allow_tf32 and cudnn.conv.fp32_precision == "ieee"
    assert cudnn.allow_tf32
    cudnn.conv.fp32_precision = "ieee"
    assert not cudnn.allow_tf32
    cudnn.allow_tf32 = True
    before = cudnn.set_flags(_enabled=True, _allow_tf32=False)
    assert before == (True, False, 10, True, True, "ieee") and not cudnn.allow_tf32
    cudnn.set_flags(*before)
    assert cudnn.allow_tf32
    with pytest.raises(TypeError, match="_benchmark"):
        cudnn.set_flags(_bench=True)
    with pytest.raises(RuntimeError, match="fp32_precision"):
        cudnn.conv.fp32_precision = "bf16x3"
    assert cudnn.conv.fp32_precision == "tf32"


def test_backends(torch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saying, "_SAID", set())
    cudnn = torch.backends.cudnn
    with pytest.warns(RushlightWarning, match=r"cudnn\.benchmark = True is accepted"):
        cudnn.benchmark = True
    assert cudnn.benchmark and not torch.backends.mps.is_available()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cudnn.benchmark = True  # said once
        cudnn.deterministic = True  # is so
        torch.backends.cuda.matmul.allow_tf32 = False
    cudnn.benchmark = False
    with cudnn.flags(benchmark=False):
        assert not cudnn.benchmark
    with pytest.raises(AttributeError, match="'benchmrk'; the nearest is 'benchmark'"):
        _ = cudnn.benchmrk


def test_hub_reads_folders_and_its_cache(torch, tmp_path: Path) -> None:
    (tmp_path / "hubconf.py").write_text(
        "import torch\ndef net(size, bias=True):\n    'A layer.'\n"
        "    return torch.nn.Linear(size, size, bias)\n"
    )
    assert torch.hub.list(str(tmp_path), source="local") == ["net"]
    made = torch.hub.load(str(tmp_path), "net", 3, source="local", bias=False)
    assert made.weight.shape == (3, 3) and made.bias is None
    assert torch.hub.help(str(tmp_path), "net", source="local") == "A layer."
    with pytest.raises(RushlightError, match="nothing is downloaded"):
        torch.hub.load("owner/name", "net")
    state = {"w": rushlight.ones(2)}
    rushlight.save(state, tmp_path / "w-123.pth")
    address = "https://example.org/models/w-123.pth"
    found = torch.hub.load_state_dict_from_url(address, model_dir=str(tmp_path))
    assert found["w"].tolist() == [1, 1]
    with pytest.raises(RushlightError, match="put the file at"):
        torch.hub.load_state_dict_from_url("https://example.org/gone.pth", str(tmp_path))


def test_custom_op(torch) -> None:
    @torch.library.custom_op("mine::scaled", mutates_args=())
    def scaled(x: rushlight.Tensor, factor: float = 2.0) -> rushlight.Tensor:
        return x * factor

    x = rushlight.tensor([1.0, 2.0], requires_grad=True)
    assert scaled(x.detach()).tolist() == [2, 4]
    assert torch.ops.mine.scaled(x.detach(), factor=3.0).tolist() == [3, 6]
    with pytest.raises(NotDifferentiable, match="mine::scaled has no derivative"):
        scaled(x).sum().backward()

    def setup(ctx, inputs, output):
        ctx.factor = inputs[1] if len(inputs) > 1 else 2.0

    scaled.register_autograd(lambda ctx, g: (g * ctx.factor * 10, None), setup_context=setup)
    scaled(x, 3.0).sum().backward()
    assert x.grad.tolist() == [30, 30]
    scaled.register_fake(lambda x, factor=2.0: torch.empty_like(x))
    assert scaled(torch.empty(5, device="meta")).shape == (5,)
    library = torch.library.Library("mine", "FRAGMENT")
    library.define("plus(Tensor x) -> Tensor")
    library.impl("plus", lambda x: x + 1, "CPU")
    assert torch.ops.mine.plus(x.detach()).tolist() == [2, 3]
    with pytest.raises(AttributeError, match="no op 'absent'"):
        _ = torch.ops.mine.absent
    with pytest.raises(OSError, match="compiled against PyTorch"):
        torch.ops.load_library("x.so")


def test_modes_see_functions(torch) -> None:
    seen = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    plain = rushlight.add
    with Mode():
        torch.add(torch.ones(2), 1)
        nn.functional.relu(rushlight.zeros(2))
    assert seen == ["ones", "add", "zeros", "relu"] or seen == ["ones", "add", "relu", "zeros"][:4]
    assert rushlight.add is plain and torch.add is plain

    class Like:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return func.__name__, [kind.__name__ for kind in types]

    assert torch.overrides.has_torch_function((Like(),))
    assert torch.overrides.handle_torch_function(torch.add, (Like(),), 1) == ("add", ["Like"])
    assert torch.overrides.is_tensor_like(rushlight.ones(1)) and not torch.overrides.is_tensor_like(
        1
    )


def test_flex_attention(torch) -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 2, 5, 4) for _ in range(3))
    mask = create_block_mask(lambda b, h, i, j: i >= j, 2, 2, 5, 5)
    got = flex_attention(q, k, v, block_mask=mask)
    want = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.allclose(got, want, atol=1e-6)
    got, lse = flex_attention(q, k, v, lambda s, b, h, i, j: s + (i - j), return_lse=True)
    bias = (torch.arange(5)[:, None] - torch.arange(5)).float()
    scores = q @ k.transpose(-2, -1) / 2 + bias
    assert torch.allclose(got, scores.softmax(-1) @ v, atol=1e-6)
    assert torch.allclose(lse, scores.logsumexp(-1), atol=1e-6)


def test_parallel_and_futures(torch) -> None:
    net = nn.Linear(2, 3)
    whole = nn.parallel.DistributedDataParallel(net)
    x = rushlight.ones(4, 2)
    with whole.no_sync():
        assert torch.equal(whole(x), net(x))
    assert list(whole.state_dict()) == ["module.weight", "module.bias"]
    assert torch.equal(nn.parallel.data_parallel(net, x), net(x))
    pair = collections.namedtuple("pair", "loss more")
    parts = [pair(torch.tensor(1.0 + n), {"x": torch.ones(1, 2) * n, "none": None}) for n in (0, 1)]
    made = nn.parallel.scatter_gather.gather(parts, "cpu")
    assert made.loss.tolist() == [1, 2] and made.more["none"] is None
    assert made.more["x"].tolist() == [[0, 0], [1, 1]]
    future = torch.futures.Future()
    after = future.then(lambda f: f.value() + 1)
    future.set_result(1)
    assert after.wait() == 2 and len(torch.futures.collect_all([future, after]).wait()) == 2
    assert torch.distributed is rushlight.distributed
    assert not torch.distributed.is_initialized() and torch.distributed.get_world_size() == 1
    with pytest.raises(ValueError, match="nothing tells this process's rank"):
        torch.distributed.init_process_group("gloo")


@pytest.mark.parametrize(
    "call",
    [
        "torch.onnx.export(None)",
        "torch.export.export(None)",
        "importlib.import_module('torch.utils.cpp_extension').load('x')",
        "torch.package.PackageImporter('x')",
        "torch.ao.quantization.quantize_dynamic(None)",
        "torch.zeros(2, dtype=torch.complex32)",
        "torch.ones(2).to(torch.qint8)",
    ],
)
def test_what_is_refused(torch, call: str) -> None:
    with pytest.raises(RushlightError):
        eval(call)


def test_names_of_dtypes(torch) -> None:
    assert repr(torch.float32) == "torch.float32" and str(torch.float8_e5m2) == "torch.float8_e5m2"
    assert repr(torch.ones(2, 3).shape) == "torch.Size([2, 3])"
    assert torch.finfo(torch.float8_e4m3fn).max == 448 and torch.float8_e5m2.itemsize == 1
    assert torch.complex32.is_complex and torch.chalf is torch.complex32
    assert repr(torch.empty(2, 3, device="meta")) == "tensor(..., device='meta', size=(2, 3))"


def test_events_and_memory_of_cuda(require_device) -> None:
    require_device("webgpu")
    with rushlight.patch("webgpu") as torch:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        x = torch.ones(1000, device="cuda") * 2
        end.record()
        torch.cuda.current_stream().synchronize()
        assert start.elapsed_time(end) > 0 and x.is_cuda
        assert torch.cuda.memory_stats()["allocated_bytes.all.current"] >= 4000
        assert torch.cuda.get_device_properties(0).total_memory > 0
        free, total = torch.cuda.mem_get_info()
        assert 0 < free <= total
        with pytest.raises(AttributeError, match="'synchronise'; the nearest is 'synchronize'"):
            _ = torch.cuda.synchronise


def test_marks_of_the_compiler_take_pytorchs_arguments(torch) -> None:
    x = torch.ones(2, 3)
    assert torch._dynamo.mark_static_address(x) is None
    assert torch._dynamo.mark_static_address(x, guard=True) is None
    assert torch._dynamo.mark_static(x) is torch._dynamo.mark_static(x, 1) is None
    assert torch._dynamo.mark_dynamic(x, [0, 1], min=1) is None
    assert torch._dynamo.maybe_mark_dynamic(x, 0) is None
