"""Views by ints and slices: one plan for every index. See Note [Moving views]."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

import rushlight as rl
from rushlight.ops.view import views
from rushlight.tape.record import call

KEYS = st.one_of(
    st.integers(-5, 5),
    st.just(Ellipsis),
    st.none(),
    st.builds(
        slice,
        *[st.one_of(st.none(), st.integers(-7, 7))] * 2,
        st.one_of(st.none(), st.integers(-1, 3)),
    ),
)


def seen(x, key):
    """A view's properties, or the class of the error."""
    try:
        made = x[key]
    except (IndexError, ValueError, RuntimeError) as error:
        return type(error)
    steps = [step for step, size in zip(made.stride(), made.shape, strict=True) if size > 1]
    return made.shape, made.numel() and (steps, made.storage_offset()), made.tolist()


@settings(max_examples=300, deadline=None)
@given(st.lists(st.integers(0, 4), max_size=3), st.lists(KEYS, max_size=4), st.booleans())
def test_the_same_views_with_and_without_a_record(shape, key, turned):
    plain = rl.arange(3 + rl.Size(shape).numel(), dtype=rl.float32)[3:].reshape(shape)
    if turned and len(shape) > 1:
        plain = plain.transpose(0, 1)
    recorded = plain.detach().requires_grad_()
    for given_key in [tuple(key)] * 4:  # finally by a cached program
        assert seen(plain, given_key) == seen(recorded, given_key)
    if len(key) == 1:
        assert seen(plain, key[0]) == seen(recorded, key[0])


def plans():
    return len(views._select.plans), len(views._slice.plans), len(views._place_part.plans)


def test_a_loop_over_rows_makes_no_plan_per_row():
    x = rl.zeros(3000, 7)
    x[0] = 0.0
    x[0, 2:5] += 1
    before = plans()
    for i in range(3000):
        x[i] = float(i)
        x[i, 2:5] += 1
        x.select(0, i)
        x.narrow(0, i, 0 if i > 2990 else 5)
    assert sum(plans()) - sum(before) <= 4
    assert x[2999].tolist() == [2999, 2999, 3000, 3000, 3000, 2999, 2999]


def test_a_recorded_loop_over_rows_makes_one_derivative():
    x = rl.rand(200, 7, requires_grad=True)
    (x[0].sum() + x[0:3].sum()).backward()
    before = plans()
    total = rl.zeros(())
    for i in range(197):
        total = total + x[i].sum() * i + x[i : i + 3].sum()
    total.backward()
    assert plans() == before
    want = rl.arange(200.0).where(rl.arange(200) < 197, 0.0)
    windows = [min(i, 2) + 1 - max(0, i - 196) for i in range(200)]
    extra = [1.0 * (i == 0) + 1.0 * (i < 3) for i in range(200)]
    want = want + rl.tensor(windows) + rl.tensor(extra)
    assert rl.equal(x.grad, want.unsqueeze(1).expand(200, 7))


def test_a_place_outside_of_the_view_is_refused():
    x = rl.zeros(5, 3)
    with pytest.raises(rl.ShapeError):
        call.call(views._select, (x,), (0,), (5,))
    with pytest.raises(rl.ShapeError):
        call.call(views._slice, (x,), (0, 3, 1), (3,))


def test_writes_through_them_are_seen_and_recorded():
    base = rl.zeros(4, requires_grad=True) * 1
    with rl.no_grad():
        row = base[1]
    assert not row.requires_grad
    plain = rl.zeros(4)
    view = plain[1]  # made while nothing was recorded
    weight = rl.ones((), requires_grad=True)
    plain[1] = weight * 3
    assert view.requires_grad and plain.requires_grad
    (view * 2).backward()
    assert weight.grad == 6
    again = plain[1:3]  # of a tensor that has a record now
    assert again.requires_grad and again._is_view()


def test_an_index_that_is_a_tensor():
    x = rl.arange(5)
    i = rl.tensor(-2)
    assert x[i] == 3 and x[i]._is_view()
    with pytest.raises(IndexError):
        x[rl.tensor(5)]
    with pytest.raises(IndexError):
        rl.tensor(1.0)[i]
