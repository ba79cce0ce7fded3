"""Modules of PyTorch that libraries import by path: what is the same object, and what refuses."""

from __future__ import annotations

import importlib
import subprocess
import sys
import types

import pytest

import rushlight
from rushlight.compat.files import FORWARDED
from rushlight.compat.refused import REFUSED
from rushlight.core.errors import RushlightError

OWN = """
__future__ _torch_docs _utils_internal distributed.checkpoint.api
utils.benchmark.utils.fuzzer distributed.tensor.experimental._func_map
_weights_only_unpickler cuda.amp.common compiler.config profiler.itt testing._utils
multiprocessing._atfork optim._multi_tensor nn.attention.bias nn.attention.varlen
nn.parallel._functions cuda.comm fx.annotate fx.immutable_collections fx.operator_schemas
fx._pytree fx.tensor_type fx.traceback fx._compatibility utils.backcompat utils.collect_env
utils.deterministic utils.file_baton utils.module_tracker utils.show_pickle utils.weak
utils.benchmark.utils.common utils.benchmark.utils.compare utils.benchmark.utils.timer
utils.data.graph utils.data.graph_settings utils.data.datapipes.iter.combining
utils.data.datapipes.map.callable utils.data.datapipes.utils.common
distributed.argparse_util distributed.c10d_logger distributed.collective_utils distributed.launch
distributed.launcher.api distributed.remote_device distributed.rendezvous distributed.run
distributed.checkpoint.format_utils distributed.fsdp._common_utils
distributed.fsdp.sharded_grad_scaler distributed.optim.apply_optimizer_in_backward
distributed.pipelining.microbatch distributed.tensor.debug
"""
SAME = """
_VF.lstm=lstm
_lobpcg.lobpcg=lobpcg
_vmap_internals.vmap=func.vmap
_streambase.Stream=Stream
accelerator.memory.empty_cache=accelerator.empty_cache
cpu.amp.autocast_mode.autocast=cpu.amp.autocast
distributed.checkpoint.storage.FileSystemReader=distributed.checkpoint.FileSystemReader
distributed.fsdp._fully_shard.fully_shard=distributed.fsdp.fully_shard
distributed.fsdp._fully_shard._fsdp_api.MixedPrecisionPolicy=distributed.fsdp.MixedPrecisionPolicy
distributed.optim.zero_redundancy_optimizer.ZeroRedundancyOptimizer=distributed.optim.ZeroRedundancyOptimizer
distributed.pipelining.stage.PipelineStage=distributed.pipelining.PipelineStage
distributed.pipelining._IR.SplitPoint=distributed.pipelining.SplitPoint
distributed.tensor._api.DTensor=distributed.tensor.DTensor
distributed.tensor.parallel.style.RowwiseParallel=distributed.tensor.parallel.RowwiseParallel
distributed.tensor.parallel.api.parallelize_module=distributed.tensor.parallel.parallelize_module
distributed.tensor.parallel.loss.loss_parallel=distributed.tensor.parallel.loss_parallel
export.exported_program.ExportedProgram=export.ExportedProgram
export.dynamic_shapes.Dim=export.Dim
optim._adafactor.Adafactor=optim.Adafactor
testing._comparison.assert_close=testing.assert_close
testing._creation.make_tensor=testing.make_tensor
utils.benchmark.utils.timer.Timer=utils.benchmark.Timer
utils.benchmark.utils.common.Measurement=utils.benchmark.Measurement
"""


@pytest.fixture
def torch():
    with rushlight.patch("cpu") as module:
        yield module


def reached(torch: object, path: str) -> object:
    above, _, leaf = path.rpartition(".")
    return getattr(importlib.import_module(f"torch.{above}" if above else "torch"), leaf)


def test_own_modules_are_found(torch) -> None:
    for path in OWN.split():
        found = importlib.import_module(f"torch.{path}")
        assert isinstance(found, types.ModuleType) and found.__doc__, path


def test_every_path_is_found(torch) -> None:
    for path in (*FORWARDED, *REFUSED):
        assert importlib.import_module(f"torch.{path}"), path


@pytest.mark.parametrize("line", SAME.split())
def test_names_are_those_of_the_public_module(torch, line: str) -> None:
    path, _, other = line.partition("=")
    assert reached(torch, path) is reached(torch, other)


@pytest.mark.parametrize("path", sorted(REFUSED))
def test_refused_names_are_refused_at_the_call(torch, path: str) -> None:
    module = importlib.import_module(f"torch.{path}")
    for name in REFUSED[path][1].split():
        found = getattr(module, name)
        if getattr(found, "__module__", "") == f"torch.{path}":
            assert name in dir(module) and found is getattr(module, name)
            with pytest.raises(RushlightError, match=name):
                found(1, x=2)
    assert not hasattr(module, "Absent")


def test_switches_that_stay_off(torch) -> None:
    future = importlib.import_module("torch.__future__")
    future.set_swap_module_params_on_conversion(False)
    assert not future.get_swap_module_params_on_conversion()
    with pytest.raises(RushlightError, match="conversion"):
        future.set_overwrite_module_params_on_conversion(True)
    mark = importlib.import_module("torch.profiler.itt")
    assert not mark.is_available()
    with pytest.raises(RushlightError, match="ITT"):
        mark.range_push("x")


def test_older_optimisers(torch) -> None:
    older = importlib.import_module("torch.optim._multi_tensor")
    layer = rushlight.nn.Linear(2, 1)
    made = older.AdamW(layer.parameters(), lr=0.1)
    assert isinstance(made, rushlight.optim.AdamW) and made.defaults["foreach"]


def test_a_refused_class_has_subclasses_and_no_objects(torch) -> None:
    planner = importlib.import_module("torch.distributed.checkpoint.planner")

    class Own(planner.SavePlanner):
        def __init__(self) -> None:
            pass

    assert not isinstance(1, Own)
    with pytest.raises(RushlightError, match=r"distributed\.checkpoint\.planner\.SavePlanner"):
        Own()


def test_files_beneath_a_module_are_its_attributes() -> None:
    program = """
import rushlight.as_torch
import torch
from torch.cpu.amp import autocast_mode
from torch.distributed.tensor.parallel import style
from torch.utils import weak, data
from torch.nn.attention import bias
import torch.distributed.fsdp
assert torch.distributed.fsdp.sharded_grad_scaler.ShardedGradScaler
assert weak is torch.utils.weak and style.ColwiseParallel and autocast_mode.autocast
assert data.IterDataPipe is torch.utils.data.datapipes.datapipe.IterDataPipe
assert bias.causal_upper_left and not hasattr(torch.utils, "weaker")
try:
    from torch.utils import weaker
except ImportError:
    pass
else:
    raise AssertionError
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_import_of_a_file_changes_no_function_beside_it() -> None:
    program = """
import rushlight.as_torch
import torch.cuda.memory, torch.cuda.random
assert torch.cuda.memory_allocated() >= 0 and torch.cuda.memory.memory_allocated() >= 0
torch.cuda.random.manual_seed(3)
torch.cuda.manual_seed(3)
assert torch.cuda.initial_seed() == 3
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_modules_that_are_programs(tmp_path) -> None:
    script = tmp_path / "told.py"
    script.write_text("import os\nprint('rank', os.environ['RANK'])\n")
    words = [sys.executable, "-m", "rushlight", "run", "-m"]
    for name, given, wanted in (
        ("torch.distributed.run", ["--nproc-per-node=1", str(script)], "rank 0"),
        ("torch.utils.collect_env", [], "PyTorch version"),
    ):
        ended = subprocess.run([*words, name, *given], capture_output=True, text=True, check=True)
        assert wanted in ended.stdout, ended.stderr
