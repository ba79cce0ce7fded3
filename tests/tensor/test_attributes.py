"""Users' attributes of tensors (`p.scale = 2`): kept in copies, pickles and files, not on
results.
"""

import copy
import io
import pickle

import pytest

import rushlight as rl


def loaded(thing):
    file = io.BytesIO()
    rl.save(thing, file)
    file.seek(0)
    return rl.load(file)


def pickled(thing):
    return pickle.loads(pickle.dumps(thing))


def test_an_attribute_stays_on_the_object_and_not_on_what_is_made_of_it():
    x = rl.ones(3)
    assert vars(x) == {}
    x.scale = 2
    x._is_initialised = True
    assert vars(x) == {"scale": 2, "_is_initialised": True}
    for other in (
        x.detach(),
        x.data,
        x.view(3),
        x.clone(),
        x + 1,
        x.to(rl.float64),
        rl.nn.Parameter(x),
    ):
        assert not hasattr(other, "scale")
    assert x.to(rl.float32).scale == 2  # the same tensor
    del x.scale
    with pytest.raises(AttributeError, match="scale"):
        _ = x.scale
    with pytest.raises(AttributeError, match="nothing"):
        del x.nothing


def test_properties_without_a_setter_stay_what_they_are():
    with pytest.raises(AttributeError):
        rl.ones(2).shape = (1,)


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, pickled, loaded])
def test_copies_of_a_tensor_have_its_attributes(copied):
    x = rl.ones(3)
    x.tags = ["a"]
    again = copied(x)
    assert again.tags == ["a"] and again is not x
    assert (again.tags is x.tags) == (copied is copy.copy)


@pytest.mark.parametrize("make", [rl.nn.Parameter, rl.nn.Buffer, lambda t: t.to_sparse()])
@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
def test_copies_of_parameters_buffers_and_sparse_tensors_too(make, copied):
    x = make(rl.ones(2))
    x.tag = 1
    assert copied(x).tag == 1


def test_the_gradient_of_a_copy_has_its_own():
    x = rl.ones(3, requires_grad=True)
    x.grad = rl.ones(3)
    x.grad.seen = 4
    again = copy.deepcopy(x)
    assert again.grad.seen == 4 and again.grad is not x.grad and again.requires_grad
    x.grad = (x * 2).sum() * x  # with a record of its own
    assert copy.deepcopy(x).grad.tolist() == [6, 6, 6]


def test_modules_carry_what_is_written_on_their_parameters():
    net = rl.nn.Linear(2, 2)
    net.weight.tag = 1
    net.to(rl.float64)
    assert net.weight.tag == 1
    assert copy.deepcopy(net).weight.tag == pickled(net).weight.tag == 1
    assert (
        not hasattr(net.state_dict()["weight"], "tag")
        and net.state_dict(keep_vars=True)["weight"].tag == 1
    )


def test_tensors_that_share_memory_keep_both_when_saved():
    x = rl.arange(4.0)
    y = x[1:]
    x.mean_of = y
    y.name_of = "tail"
    first, second = loaded([x, y])
    assert first.mean_of is second and second.name_of == "tail"
    first[1] = 9
    assert second[0] == 9


def test_an_attribute_may_be_the_tensor_itself():
    x = rl.ones(2)
    x.me = x
    assert copy.deepcopy(x).me.me.tolist() == [1, 1] and pickled(x).me.tolist() == [1, 1]


def test_training_goes_on_with_attributes_on_leaves_and_results():
    w = rl.ones(3, requires_grad=True)
    w.factor = 3.0
    y = w * 2
    y.kind = "result"
    (y * w.factor).sum().backward()
    assert w.grad.tolist() == [6, 6, 6] and y.kind == "result"


def test_an_attribute_that_a_tensor_does_not_have_stays_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        rl.ones(2).nonsense  # noqa: B018
