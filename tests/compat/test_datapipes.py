"""Pipes: what each gives, one iterator at a time, shards and seeds; numbers are PyTorch 2.13's."""

from __future__ import annotations

import importlib
import pickle
from typing import Any

import pytest

import rushlight
from rushlight.compat.utils.data import graph, graph_settings
from rushlight.compat.utils.data.datapipes import _decorator, iter as pipes, map as indexed
from rushlight.compat.utils.data.datapipes.datapipe import DataChunk, IterDataPipe, MapDataPipe
from rushlight.utils.data import DataLoader

Wrapper = pipes.IterableWrapper


def source(count: int = 10) -> Any:
    return Wrapper(range(count))


def third(x: int) -> int:
    return x % 3


def lists(several: Any) -> list[list[Any]]:
    return [list(one) for one in several]


def negative(x: int) -> int:
    return -x


def total(x: int, y: int) -> int:
    return x + y


def large(x: int) -> bool:
    return x > 6


def test_functional_forms() -> None:
    assert list(source(3).map(negative)) == [0, -1, -2]
    assert list(source().filter(large)) == [7, 8, 9]
    assert list(source(7).batch(3)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert list(source(7).batch(3, drop_last=True).unbatch()) == [0, 1, 2, 3, 4, 5]
    assert list(source(5).batch(2).batch(2).unbatch(-1)) == [0, 1, 2, 3, 4]
    assert list(source(3).concat(source(2))) == [0, 1, 2, 0, 1]
    assert list(source(3).zip(source(2))) == [(0, 0), (1, 1)]
    assert list(source(2).mux(source(5))) == [0, 0, 1, 1]
    assert [batch.tolist() for batch in source(3).batch(2).collate()] == [[0, 1], [2]]
    assert isinstance(next(iter(source().batch(2))), DataChunk)
    assert len(source().batch(3)) == 4 and len(source(3).concat(source(2))) == 5
    with pytest.raises(TypeError, match="has no len"):
        len(source().filter(large))
    with pytest.raises(AttributeError, match="nothing"):
        _ = source().nothing


def test_columns() -> None:
    rows = Wrapper([(1, 2, 3)])
    assert list(rows.map(negative, input_col=1)) == [(1, -2, 3)]
    assert list(rows.map(total, input_col=[0, 2])) == [(4, 2)]
    assert list(rows.map(negative, input_col=1, output_col=-1)) == [(1, 2, 3, -2)]
    named = Wrapper([{"a": 1, "b": 2}])
    assert list(named.map(total, input_col=["a", "b"])) == [{"a": 3}]
    assert list(rows.filter(large, input_col=0)) == []
    with pytest.raises(ValueError, match="columns"):
        rows.map(total, input_col=1)
    with pytest.raises(ValueError, match="output_col"):
        rows.map(negative, output_col=1)


def test_groups() -> None:
    whole = [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]
    assert list(source().groupby(third)) == whole
    keyed = list(source().groupby(third, group_size=2, keep_key=True))
    assert keyed[:2] == [(0, [0, 3]), (1, [1, 4])]
    full = source().groupby(third, buffer_size=4, group_size=3)
    with pytest.raises(RuntimeError, match="Failed to group items"):
        list(full)


def test_fork_and_demux() -> None:
    assert lists(source(4).fork(2)) == [[0, 1, 2, 3]] * 2
    assert list(zip(*source(3).fork(2), strict=True)) == [(0, 0), (1, 1), (2, 2)]
    assert lists(source().demux(3, third)) == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]
    alone = source(3)
    assert alone.fork(1) is alone
    with pytest.raises(BufferError, match="buffer"):
        lists(source().fork(2, buffer_size=3))
    with pytest.raises(ValueError, match="classification"):
        lists(source().demux(2, third))
    first, second = source(5).fork(2)
    started, other = iter(first), iter(second)
    assert next(started) == next(other) == 0
    with pytest.warns(UserWarning, match="not exhausted"):
        again = iter(first)
    assert list(again) == [0, 1, 2, 3, 4]
    with pytest.raises(RuntimeError, match="invalidated"):
        next(other)


def test_one_iterator_at_a_time() -> None:
    pipe = source(3)
    first = iter(pipe)
    assert next(first) == 0 and next(iter(pipe)) == 0
    with pytest.raises(RuntimeError, match="invalidated"):
        next(first)


def test_shuffles_are_pytorchs() -> None:
    assert list(source().shuffle(buffer_size=4).set_seed(3)) == [1, 4, 2, 3, 0, 8, 7, 5, 9, 6]
    assert list(source(4).shuffle().set_shuffle(False)) == [0, 1, 2, 3]
    rushlight.manual_seed(0)
    once = list(source().shuffle())
    rushlight.manual_seed(0)
    assert list(source().shuffle()) == once and sorted(once) == list(range(10))
    numbers = indexed.SequenceWrapper(list(range(7)))
    assert list(numbers.shuffle().set_seed(1)) == [3, 6, 5, 2, 0, 4, 1]
    kept = pickle.loads(pickle.dumps(source(4).map(negative).shuffle().set_shuffle(False)))
    assert list(kept) == [0, -1, -2, -3]


def test_shards() -> None:
    pipe = source().sharding_filter()
    graph_settings.apply_sharding(pipe, 3, 1)
    assert list(pipe) == [1, 4, 7] and len(pipe) == 3
    twice = source().sharding_filter().map(negative).sharding_filter()
    with pytest.raises(RuntimeError, match="Sharding twice"):
        graph_settings.apply_sharding(twice, 3, 1)
    for made in (source(9).sharding_filter(), source(9).shuffle().sharding_filter()):
        loader = DataLoader(made, batch_size=2, num_workers=2)
        assert sorted(x for batch in loader for x in batch.tolist()) == list(range(9))


def test_graphs() -> None:
    first = source()
    last = first.map(negative).batch(2)
    every = graph_settings.get_all_graph_pipes(graph.traverse_dps(last))
    assert len(every) == 3 and first in every
    with pytest.warns(UserWarning, match="Shuffler"):
        shuffled = graph_settings.apply_shuffle_settings(last, shuffle=True)
    assert isinstance(shuffled, pipes.Shuffler)
    graph_settings.apply_random_seed(shuffled, rushlight.Generator().manual_seed(1))
    assert sorted(map(sum, shuffled)) == [-17, -13, -9, -5, -1]


def test_pipes_by_index() -> None:
    pipe = indexed.SequenceWrapper([1, 2, 3])
    assert pipe.map(negative)[2] == -3 and pipe.zip(pipe)[1] == (2, 2)
    assert pipe.concat(pipe)[4] == 2 and len(pipe.concat(pipe)) == 6
    assert [pipe.batch(2)[n] for n in range(2)] == [[1, 2], [3]]
    for bad in (lambda: pipe.batch(2)[2], lambda: pipe.zip(pipe)[5], lambda: pipe.concat(pipe)[6]):
        with pytest.raises(IndexError):
            bad()


def test_files(tmp_path) -> None:
    for name in ("b.txt", "a.txt", "c.bin"):
        (tmp_path / name).write_text(name)
    found = pipes.FileLister(str(tmp_path), "*.txt")
    read = list(found.open_files().read_from_stream())
    assert [text for _, text in read] == ["a.txt", "b.txt"]
    with pytest.raises(ValueError, match="mode"):
        found.open_files("w")


def test_classes_of_the_users() -> None:
    @_decorator.functional_datapipe("doubled_here")
    class Doubled(IterDataPipe[int]):
        def __init__(self, datapipe: Any) -> None:
            self.datapipe = datapipe

        def __iter__(self) -> Any:
            for x in self.datapipe:
                yield x
                yield x

    try:
        assert list(source(2).doubled_here()) == [0, 0, 1, 1]
        with pytest.raises(Exception, match="already taken"):
            _decorator.functional_datapipe("doubled_here")(Doubled)
    finally:
        del IterDataPipe.functions["doubled_here"]
    with pytest.raises(TypeError, match="MapDataPipe"):
        _decorator.functional_datapipe("wrong")(dict)
    assert not hasattr(MapDataPipe, "doubled_here")


def test_names_of_the_package() -> None:
    with rushlight.patch("cpu") as torch:
        data = importlib.import_module("torch.utils.data")
        assert data.IterDataPipe is IterDataPipe and data.functional_datapipe
        assert torch.utils.data.datapipes.iter.Mapper is pipes.Mapper
        assert importlib.import_module("torch.utils.data.datapipes.iter.streamreader")


def test_a_loader_shuffles_a_pipeline() -> None:
    pipe = Wrapper(range(40))
    with pytest.warns(UserWarning, match="does not contain a `Shuffler`"):
        loader = DataLoader(pipe, shuffle=True, batch_size=None)
    first = list(loader)
    assert sorted(first) == list(range(40)) and first != list(range(40)) and len(loader) == 40
    own, plain = pipe.shuffle().map(negative), [-x for x in range(40)]
    assert list(DataLoader(own, shuffle=False, batch_size=None)) == plain
    assert list(DataLoader(own, shuffle=True, batch_size=None)) != plain
    with pytest.raises(ValueError, match="no order to choose"):
        DataLoader(pipe, sampler=[1])
