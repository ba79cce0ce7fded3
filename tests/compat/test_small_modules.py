"""Small modules of PyTorch's tree: weak mappings, reports, biases of attention, launchers, fx."""

from __future__ import annotations

import argparse
import gc
import importlib
import io
import os
import sys
import threading
from typing import Any

import pytest

import rushlight
from rushlight import nn
from rushlight.compat.distributed import (
    argparse_util,
    collective_utils,
    remote_device,
    rendezvous,
    run,
)
from rushlight.compat.distributed.launcher import LaunchConfig, elastic_launch
from rushlight.compat.distributed.optim import apply_optimizer_in_backward
from rushlight.compat.distributed.pipelining import microbatch
from rushlight.compat.fx import (
    _pytree as by_structure,
    annotate,
    immutable_collections,
    operator_schemas,
    tensor_type,
    traceback,
)
from rushlight.compat.nn.attention import bias, varlen
from rushlight.compat.nn.parallel import _functions
from rushlight.compat.utils import (
    backcompat,
    collect_env,
    deterministic,
    file_baton,
    module_tracker,
    show_pickle,
    weak,
)
from rushlight.compat.utils.benchmark.utils import fuzzer
from rushlight.core.errors import RushlightError
from rushlight.nn import functional as F
from rushlight.utils import _pytree


def test_weak_keys_are_objects() -> None:
    kept, found = rushlight.ones(2), weak.WeakTensorKeyDictionary()
    other = rushlight.ones(2)
    found[kept], found[other] = 1, 2
    assert len(found) == 2 and found[kept] == 1 and other in found and 3 not in found
    assert weak.WeakIdRef(kept) == weak.WeakIdRef(kept) != weak.WeakIdRef(other)
    assert found.copy() == found and (found | {}) == found
    del other
    gc.collect()
    assert len(found) == 1 and [id(key) for key in found] == [id(kept)]
    assert found.pop(kept) == 1 and not found
    reference = weak.TensorWeakRef(kept)
    assert reference() is kept
    with pytest.raises(KeyError):
        found[kept]


def test_a_report_of_the_machine() -> None:
    text = collect_env.get_pretty_env_info()
    assert "PyTorch version: 2.13.0" in text and rushlight.__version__ in text
    assert f"Python version: {sys.version.split()[0]}" in text and "numpy==" in text
    assert collect_env.get_env_info().is_cuda_available == str(rushlight.cuda.is_available())
    assert collect_env.run(["no-such-command"])[0] == 127


def test_show_pickle_runs_nothing(tmp_path) -> None:
    path, out = tmp_path / "x.pt", io.StringIO()
    rushlight.save({"w": nn.Linear(2, 1)}, path)
    show_pickle.main(["show_pickle", str(path)], out)
    assert "torch.nn.modules.linear.Linear" in out.getvalue()
    hostile, out = tmp_path / "x.pkl", io.StringIO()
    hostile.write_bytes(b"cos\nsystem\n(S'touch " + bytes(tmp_path) + b"/ran'\ntR.")
    show_pickle.main(["show_pickle", str(hostile)], out)
    assert "os.system" in out.getvalue() and not (tmp_path / "ran").exists()


def test_switches() -> None:
    assert not backcompat.broadcast_warning.enabled
    with pytest.raises(RushlightError, match="keepdim_warning"):
        backcompat.keepdim_warning.enabled = True
    settings: Any = deterministic
    assert settings.fill_uninitialized_memory
    settings.fill_uninitialized_memory = False
    with pytest.warns(rushlight.RushlightWarning, match="not filled"):
        settings.fill_uninitialized_memory = True
    with pytest.raises(RuntimeError, match="True or False"):
        settings.fill_uninitialized_memory = 1


def test_a_baton_has_one_holder(tmp_path) -> None:
    first, second = (file_baton.FileBaton(str(tmp_path / "lock"), 0.01) for _ in range(2))
    assert first.try_acquire() and not second.try_acquire()
    waiting = threading.Thread(target=second.wait)
    waiting.start()
    first.release()
    waiting.join(5)
    assert not waiting.is_alive() and second.try_acquire()


def test_the_modules_that_run() -> None:
    net, seen = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), []
    net[0].register_forward_hook(lambda *_: seen.append(set(tracker.parents)))
    with module_tracker.ModuleTracker() as tracker:
        made = net(rushlight.ones(1, 2, requires_grad=True) * 1)
        net[0].weight.register_hook(lambda g: seen.append((set(tracker.parents), tracker.is_bw)))
        made.sum().backward()
        assert tracker.parents == {"Global"} and not tracker.is_bw
    inside = {"Global", "Sequential", "Sequential.0"}
    assert seen[1] == (inside, True) and "Sequential" in seen[0]


@pytest.mark.parametrize("queries, keys", [(4, 4), (3, 5), (5, 3)])
def test_causal_biases(queries: int, keys: int) -> None:
    q, k, v = (rushlight.randn(1, 2, n, 8) for n in (queries, keys, keys))
    for make, diagonal in ((bias.causal_upper_left, 0), (bias.causal_lower_right, keys - queries)):
        if diagonal < 0:
            with pytest.warns(UserWarning, match="see no key"):
                made = make(queries, keys)
        else:
            made = make(queries, keys)
        mask = rushlight.ones(queries, keys, dtype=rushlight.bool).tril(diagonal)
        assert made.shape == (queries, keys) and isinstance(made, bias.CausalBias)
        got = F.scaled_dot_product_attention(q, k, v, made)
        want = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        assert rushlight.allclose(got, want, atol=1e-6, equal_nan=True)
        named = F.scaled_dot_product_attention(query=q, key=k, value=v, attn_mask=made)
        assert rushlight.equal(named, got) or queries > keys
        with pytest.raises(ValueError, match="causal=True"):
            F.scaled_dot_product_attention(q, k, v, made, is_causal=True)
    with pytest.raises(RushlightError, match="queries and"):
        F.scaled_dot_product_attention(q, k, v, bias.causal_upper_left(2, 2))


def test_sequences_in_a_row() -> None:
    q, k, v = (rushlight.randn(7, 2, 8, requires_grad=True) for _ in range(3))
    ends = rushlight.tensor([0, 3, 7], dtype=rushlight.int32)
    aux = varlen.AuxRequest(lse=True)
    got, sums = varlen.varlen_attn(q, k, v, ends, ends, 4, 4, window_size=(-1, 0), return_aux=aux)
    parts = [x[3:].transpose(0, 1) for x in (q, k, v)]
    want = F.scaled_dot_product_attention(*parts, is_causal=True).transpose(0, 1)
    assert rushlight.allclose(got[3:], want, atol=1e-6) and sums.shape == (2, 7)
    first = q[3] * k[3]
    assert rushlight.allclose(sums[:, 3], first.sum(-1) / 8**0.5, atol=1e-6)
    got.sum().backward()
    assert v.grad.shape == v.shape
    pool = [x.detach()[:4].reshape(2, 2, 2, 8) for x in (k, v)]
    paged = varlen.varlen_attn(
        *(q[:2], *pool, rushlight.tensor([0, 2]), None, 2, 3),
        seqused_k=rushlight.tensor([3]),
        block_table=rushlight.tensor([[1, 0]]),
    )
    order = [2, 3, 0]
    whole = [x[order].transpose(0, 1) for x in (k, v)]
    want = F.scaled_dot_product_attention(q[:2].transpose(0, 1), *whole).transpose(0, 1)
    assert rushlight.allclose(paged, want, atol=1e-6)


def test_copies_among_devices() -> None:
    x = rushlight.arange(4.0).requires_grad_()
    first, second = _functions.Scatter.apply(["cpu", "cpu"], [1, 3], 0, x)
    whole = _functions.Gather.apply("cpu", 0, second, first)
    (whole * rushlight.arange(4.0)).sum().backward()
    assert x.grad.tolist() == [3, 0, 1, 2]
    assert _functions.reduce_add([first.detach()] * 2, "cpu").tolist() == [0]
    assert _functions.Gather.apply("cpu", 0, x.sum(), x.sum()).tolist() == [6, 6]
    copies = _functions.broadcast(x, ["cpu", "cpu"])
    assert len(copies) == 2 and rushlight.equal(copies[1], x)
    with pytest.raises(ValueError, match="shapes differ"):
        _functions.reduce_add([first, second], "cpu")


# ---- fx ----


def test_collections_that_do_not_change() -> None:
    few, named = (
        immutable_collections.immutable_list([1, 2]),
        immutable_collections.immutable_dict(a=1),
    )
    for change in (
        lambda: few.append(3),
        lambda: few.__setitem__(0, 1),
        lambda: named.pop("a"),
        lambda: named.update(b=1),
    ):
        with pytest.raises(TypeError, match="mutation"):
            change()
    assert hash(few) == hash((1, 2)) and few == [1, 2] and named == {"a": 1}
    doubled = _pytree.tree_map(lambda x: 2 * x, [few, named])
    assert doubled == [[2, 4], {"a": 2}]
    assert type(doubled[0]) is type(few) and type(doubled[1]) is type(named)


def test_types_of_values() -> None:
    Dyn, TensorType = tensor_type.Dyn, tensor_type.TensorType
    assert tensor_type.is_consistent(TensorType((1, Dyn)), TensorType((Dyn, 2)))
    assert not tensor_type.is_consistent(TensorType((1, 2)), TensorType((1, 3)))
    assert tensor_type.is_more_precise(TensorType((1, 2)), TensorType((1, Dyn)))
    assert not tensor_type.is_more_precise(Dyn, TensorType((1,)))
    assert annotate.annotate(3, int) == 3
    assert TensorType[1, 2] == TensorType((1, 2))


def test_arguments_by_name() -> None:
    def called(x, y=2, *, z=3):
        pass

    made = operator_schemas.normalize_function(called, (1,), {"z": 4})
    assert made == ((1, 2), {"z": 4})
    named = operator_schemas.normalize_function(called, (1,), normalize_to_only_use_kwargs=True)
    assert named == ((), {"x": 1, "y": 2, "z": 3})
    assert operator_schemas.normalize_function(called, (1, 2, 3)) is None
    net = nn.Sequential(nn.Linear(1, 1))
    assert operator_schemas.normalize_module(net, "0", (5,)).args == (5,)
    with pytest.raises(RushlightError, match="schemas"):
        operator_schemas.type_matches(int, int)


def test_flattening_by_a_structure() -> None:
    _, spec = _pytree.tree_flatten({"a": [1, 2], "b": 3})
    assert by_structure.tree_flatten_spec({"b": 6, "a": [4, 5, 9], "c": 7}, spec) == [4, 5, 6]
    with pytest.raises(RuntimeError, match="register_pytree_flatten_spec"):
        by_structure.tree_flatten_spec(object(), spec)


def test_facts_of_a_node() -> None:
    assert not traceback.has_preserved_node_meta()
    with traceback.preserve_node_meta(), traceback.annotate({"stage": 1}):
        assert traceback.get_current_meta()["custom"] == {"stage": 1}
        traceback.set_stack_trace(["a line\n"])
        assert traceback.format_stack() == ["a line\n"]
    assert "custom" not in traceback.get_current_meta()


# ---- distributed ----


def answer(x: int) -> tuple[str, int]:
    return os.environ["WORLD_SIZE"], int(os.environ["RANK"]) + x


def fail() -> None:
    raise ValueError("on purpose")


def test_a_function_in_several_processes() -> None:
    config = LaunchConfig(1, 1, 2, start_method="fork", max_restarts=0)
    assert elastic_launch(config, answer)(10) == {0: ("2", 10), 1: ("2", 11)}
    with pytest.raises(RuntimeError, match="on purpose"):
        elastic_launch(config, fail)()
    with pytest.raises(RushlightError, match="rushlight launch"):
        elastic_launch(config, "train.py")()


def test_options_of_torchrun() -> None:
    given = run.parse_args(
        ["--nproc_per_node=2", "--nnodes", "1", "--standalone", "-m", "package", "--epochs", "3"]
    )
    words = ["-n", "2", "--restarts", "0", "-m", "package", "--epochs", "3"]
    assert run._command(given) == words
    several = ["--nnodes=2", "--node-rank=1", "--rdzv-endpoint=host:29400", "x.py"]
    command = run._command(run.parse_args(several))
    assert command[-9:] == [
        *("--nnodes", "2", "--node-rank", "1", "--master-addr", "host"),
        *("--master-port", "29400", "x.py"),
    ]
    assert run.parse_min_max_nnodes("1:4") == (1, 4)
    with pytest.raises(RushlightError, match="range"):
        run._command(run.parse_args(["--nnodes=1:4", "x.py"]))


def test_options_by_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PET_NODES", "4")
    monkeypatch.setenv("PET_LOUD", "1")
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", action=argparse_util.env, required=True)
    parser.add_argument("--loud", action=argparse_util.check_env)
    assert vars(parser.parse_args([])) == {"nodes": "4", "loud": True}
    assert parser.parse_args(["--nodes", "2"]).nodes == "2"


def test_a_rendezvous_by_file(tmp_path) -> None:
    found = rendezvous.rendezvous(f"file://{tmp_path}/store?rank=0&world_size=1")
    store, rank, size = next(iter(found))
    store.set("key", "value")
    assert (store.get("key"), rank, size) == (b"value", 0, 1)
    with pytest.raises(RuntimeError, match="No rendezvous handler"):
        rendezvous.rendezvous("none://x")
    with pytest.raises(ValueError, match="rank is missing"):
        next(iter(rendezvous.rendezvous("tcp://127.0.0.1:1")))


def test_one_rank_for_all_alone() -> None:
    assert collective_utils.broadcast(lambda: 3) == 3 and collective_utils.all_gather(4) == [4]

    def broken() -> None:
        raise KeyError("gone")

    with pytest.raises(RuntimeError, match="rank 0 failed in stage load"):
        collective_utils.all_gather(broken, stage_name="load")


def test_devices_of_workers() -> None:
    kinds = [remote_device._remote_device(text) for text in ("ps0/cpu", "rank:1/cpu", "cpu", "ps0")]
    assert [one.worker_name() for one in kinds] == ["ps0", None, None, "ps0"]
    assert [one.rank() for one in kinds] == [None, 1, None, None]
    assert repr(kinds[1]) == "rank:1/cpu" and kinds[0] == kinds[3]
    for bad in ("/", "", "rank:x/cpu", "a/b/c"):
        with pytest.raises(ValueError, match="Could not parse"):
            remote_device._remote_device(bad)


def test_parts_of_a_batch() -> None:
    x = rushlight.arange(6).view(3, 2)
    args, named = microbatch.split_args_kwargs_into_chunks((x, 5), {"y": x}, 3)
    assert [one[0].tolist() for one in args] == [[[0, 1]], [[2, 3]], [[4, 5]]]
    assert args[1][1] == 5 and named[2]["y"].tolist() == [[4, 5]]
    assert rushlight.equal(microbatch.merge_chunks([one[0] for one in args], None), x)
    spec = (microbatch.TensorChunkSpec(1), microbatch._Replicate())
    args, _ = microbatch.split_args_kwargs_into_chunks((x, 5), None, 2, spec)
    assert args[0][0].shape == (3, 1)
    assert microbatch.merge_chunks([1.0, 2.0], microbatch.sum_reducer) == 3
    with pytest.raises(ValueError, match="chunks"):
        microbatch.split_args_kwargs_into_chunks((x,), None, 4)


def test_steps_while_backward_runs() -> None:
    net = nn.Linear(2, 1)
    before = net.weight.detach().clone()
    apply_optimizer_in_backward._apply_optimizer_in_backward(
        rushlight.optim.SGD, net.parameters(), {"lr": 0.5}
    )
    net(rushlight.ones(1, 2)).sum().backward()
    assert rushlight.equal(net.weight, before - 0.5) and net.weight.grad is None
    assert len(apply_optimizer_in_backward._get_in_backward_optimizers(net)) == 2


def test_folders_of_single_files(tmp_path) -> None:
    with rushlight.patch("cpu") as torch:
        checkpoint = torch.distributed.checkpoint
        written = importlib.import_module("torch.distributed.checkpoint.format_utils")
        torch.save({"net": {"w": torch.ones(2)}, "epoch": 3}, tmp_path / "x.pt")
        written.torch_save_to_dcp(tmp_path / "x.pt", tmp_path / "folder")
        state = {"net": {"w": torch.zeros(2)}, "epoch": 0}
        checkpoint.load(state, checkpoint_id=tmp_path / "folder")
        assert state["net"]["w"].tolist() == [1, 1] and state["epoch"] == 3
        with pytest.raises(RushlightError, match="nesting"):
            written.dcp_to_torch_save(tmp_path / "folder", tmp_path / "y.pt")


def test_tensors_of_drawn_shapes() -> None:
    low, high = 2, 16
    made = fuzzer.Fuzzer(
        [
            fuzzer.FuzzedParameter("n", low, high, "loguniform"),
            fuzzer.FuzzedParameter("k", distribution={1: 0.5, 2: 0.5}),
            fuzzer.FuzzedParameter("same", distribution={fuzzer.ParameterAlias("n"): 1.0}),
        ],
        [fuzzer.FuzzedTensor("x", ("n", "same"), ("k", 1), 0.5, max_elements=128)],
        [lambda n, k, same: n != 3],
        seed=0,
    )
    samples = list(made.take(20))
    assert len({params["n"] for _, _, params in samples}) > 3
    for tensors, facts, params in samples:
        assert tensors["x"].shape == (params["n"], params["same"]) == (params["n"],) * 2
        assert params["n"] != 3 and low <= params["n"] <= high
        assert facts["x"]["is_contiguous"] == tensors["x"].is_contiguous()
    assert {fact["x"]["is_contiguous"] for _, fact, _ in samples} == {True, False}
    again = [params for _, _, params in made.take(20)]
    assert again == [params for _, _, params in samples] and 0 < made.rejection_rate < 1
    with pytest.raises(ValueError, match="satisfies"):
        next(fuzzer.Fuzzer([], [], [lambda: False]).take(1))
