"""`torch.utils.benchmark`: times of statements and tables of them."""

import importlib
import itertools
import pickle

import pytest

import rushlight as rl

benchmark = importlib.import_module("rushlight.compat.utils.benchmark")


def ticking(step=1.0):
    """A clock that goes on by a step at each reading."""
    count = itertools.count()
    return lambda: next(count) * step


def test_a_statement_runs_as_often_as_is_said():
    calls = []
    timer = benchmark.Timer(
        "calls.append(x)", "x = 5", globals={"calls": calls}, timer=ticking(), label="append"
    )
    found = timer.timeit(200)
    assert calls == [5] * (200 + 2)
    assert found.times == [1 / 200]
    assert found.median == found.mean == 1 / 200
    assert (found.label, found.number_per_run, found.num_threads) == ("append", 200, 1)
    assert "append\nsetup: x = 5\n  5.00 ms\n  1 measurement, 200 runs, 1 thread" in repr(found)
    assert pickle.loads(pickle.dumps(found)) == found


def test_ranges_time_real_work_and_put_the_threads_back():
    before = rl.get_num_threads()
    rl.set_num_threads(2)
    try:
        x = rl.ones(1000)
        found = benchmark.Timer("torch.add(x, x)", globals={"x": x}).blocked_autorange(
            min_run_time=0.01
        )
        assert rl.get_num_threads() == 2
    finally:
        rl.set_num_threads(before)
    assert sum(found.raw_times) >= 0.01
    assert 1e-8 < found.median < 1e-2
    assert found.iqr >= 0
    enough = benchmark.Timer("x + x", globals={"x": x}).adaptive_autorange(max_run_time=0.2)
    assert len(enough.raw_times) >= 1


def test_a_comparison_is_a_table_of_rows_and_columns():
    def made(row, column, seconds, threads=1):
        task = benchmark.TaskSpec("f()", "pass", "", "Work", row, column, None, threads)
        return benchmark.Measurement(1, [seconds], task)

    table = benchmark.Compare(
        [made("a", "x", 1e-6), made("a", "y", 2e-6), made("b", "x", 2.5e-3, threads=4)]
    )
    lines = str(table).split("\n")
    assert lines[0].startswith("[") and " Work " in lines[0]
    assert [cell.strip() for cell in lines[1].split("|")] == ["", "x", "y"]
    assert lines[2].startswith("1 thread: ---")
    assert [cell.strip() for cell in lines[3].split("|")] == ["a", "1.0", "2.0"]
    assert lines[4].startswith("4 threads: ---")
    assert [cell.strip() for cell in lines[5].split("|")] == ["b", "2500.0", ""]
    assert lines[-2] == "Times are in microseconds (us)."
    table.colorize(rowwise=True)
    assert "\033[92m" in str(table)
    assert len({len(line) for line in lines[:6]}) == 1


def test_measurements_of_one_task_merge():
    task = benchmark.TaskSpec("f()", "pass")
    both = [benchmark.Measurement(2, [4.0, 8.0], task), benchmark.Measurement(1, [3.0], task)]
    (merged,) = benchmark.Measurement.merge(both)
    assert merged.times == [2.0, 4.0, 3.0]
    assert merged.iqr == 1.0
    assert benchmark.select_unit(2e-6) == ("us", 1e-6)


def test_what_is_not_python_is_refused():
    with pytest.raises(rl.RushlightError, match="Python"):
        benchmark.Timer("f();", language="c++")
    with pytest.raises(rl.RushlightError, match="collect_callgrind"):
        benchmark.Timer().collect_callgrind()
