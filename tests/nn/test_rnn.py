"""Recurrent layers against loops of their cells; packing and padding."""

from __future__ import annotations

import pytest

import rushlight as rl
from rushlight import nn
from rushlight.nn.utils import rnn
from rushlight.utils.checkpoint import checkpoint

KINDS = ["RNN", "LSTM", "GRU"]


def cell_of(layer, suffix):
    kind = getattr(nn, type(layer).__name__ + "Cell")
    width = layer.input_size if "_l0" in suffix else layer.hidden_size * (1 + layer.bidirectional)
    cell = kind(width, layer.hidden_size, bias=layer.bias).double()
    cell.load_state_dict({name: getattr(layer, name + suffix) for name in cell.state_dict()})
    return cell


def looped(layer, suffix, sequence, reverse=False):
    """One direction of one layer over one sequence (time, width), step by step.

    Gives the rows and the final state.
    """
    cell, state, shown = cell_of(layer, suffix), None, []
    for row in sequence.flip(0) if reverse else sequence:
        state = cell(row, state)
        shown.append(state[0] if isinstance(state, tuple) else state)
    return rl.stack(shown[::-1] if reverse else shown), state


def both_ways(layer, number, sequence):
    parts = [looped(layer, f"_l{number}", sequence)]
    if layer.bidirectional:
        parts.append(looped(layer, f"_l{number}_reverse", sequence, reverse=True))
    finals = [final if isinstance(final, tuple) else (final,) for _, final in parts]
    return rl.cat([rows for rows, _ in parts], 1), finals


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_layers_are_loops_of_cells(kind, bidirectional):
    layer = getattr(nn, kind)(
        3, 4, num_layers=2, bidirectional=bidirectional, batch_first=True
    ).double()
    x = rl.randn(2, 5, 3, dtype=rl.float64)
    out, final = layer(x)
    states = final if isinstance(final, tuple) else (final,)
    for n in range(2):
        rows, finals = x[n], []
        for number in range(2):
            rows, more = both_ways(layer, number, rows)
            finals += more
        assert rl.allclose(out[n], rows)
        for at, parts in enumerate(finals):
            for state, part in zip(states, parts, strict=True):
                assert rl.allclose(state[at, n], part)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lengths", [[5, 3, 3, 1], [2, 5, 1, 4]])
def test_packed_sequences_are_each_alone(kind, lengths):
    layer = getattr(nn, kind)(3, 4, num_layers=2, bidirectional=True).double()
    sequences = [rl.randn(n, 3, dtype=rl.float64) for n in lengths]
    packed = rnn.pack_sequence(sequences, enforce_sorted=False)
    out, final = layer(packed)
    padded, counts = rnn.pad_packed_sequence(out, batch_first=True, padding_value=7.0)
    assert counts.tolist() == lengths
    states = final if isinstance(final, tuple) else (final,)
    for n, sequence in enumerate(sequences):
        alone, ends = layer(sequence)
        assert rl.allclose(padded[n, : lengths[n]], alone)
        assert bool((padded[n, lengths[n] :] == 7).all())
        for state, end in zip(states, ends if isinstance(ends, tuple) else (ends,), strict=True):
            assert rl.allclose(state[:, n], end)


def test_gradients_through_packing():
    layer = nn.GRU(2, 3, bidirectional=True)
    x = rl.randn(4, 3, 2).requires_grad_()
    layer(rnn.pack_padded_sequence(x, [4, 2, 1]))[0].data.sum().backward()
    inside = rl.tensor([[t < n for n in (4, 2, 1)] for t in range(4)])
    assert rl.equal(x.grad.abs().sum(2) > 0, inside)
    assert all(p.grad is not None and p.grad.any().item() for p in layer.parameters())


def test_states_given_and_projected():
    layer = nn.LSTM(3, 5, proj_size=2)
    x, h, c = rl.randn(4, 2, 3), rl.randn(1, 2, 2), rl.randn(1, 2, 5)
    out, (h_end, c_end) = layer(x, (h, c))
    assert (out.shape, h_end.shape, c_end.shape) == ((4, 2, 2), (1, 2, 2), (1, 2, 5))
    # Two halves with the state handed on are the whole.
    first, state = layer(x[:2], (h, c))
    second, _ = layer(x[2:], state)
    assert rl.allclose(rl.cat([first, second]), out, atol=1e-6)


def test_same_bits_when_checkpointed():
    layer, x = nn.LSTM(3, 4, num_layers=2), rl.randn(6, 2, 3).requires_grad_()

    def gradients(run):
        return rl.autograd.grad(run(x).sum(), [x, *layer.parameters()])

    plain = gradients(lambda v: layer(v)[0])
    again = gradients(lambda v: checkpoint(lambda w: layer(w)[0], v, use_reentrant=False))
    assert all(rl.equal(a, b) for a, b in zip(plain, again, strict=True))


def test_gradients_of_parts_are_put_together_once():
    x = rl.randn(6, 2, dtype=rl.float64).requires_grad_()
    first, unused, last = x.split((1, 2, 3))
    (g,) = rl.autograd.grad((first**3).sum() + (last**2).sum(), x, create_graph=True)
    assert unused.shape == (2, 2) and rl.equal(g[1:3], rl.zeros(2, 2, dtype=rl.float64))
    assert rl.allclose(g[:1], 3 * x[:1] ** 2) and rl.allclose(g[3:], 2 * x[3:])
    (second,) = rl.autograd.grad(g.sum(), x)
    assert rl.allclose(second[:1], 6 * x[:1]) and bool((second[3:] == 2).all())


def test_dropout_is_between_layers_in_training():
    layer = nn.RNN(3, 8, num_layers=2, dropout=0.5)
    x = rl.randn(4, 2, 3)
    assert not rl.equal(layer(x)[0], layer(x)[0])
    layer.eval()
    assert rl.equal(layer(x)[0], layer(x)[0])


def test_names_and_text():
    layer = nn.GRU(3, 4, num_layers=2, bidirectional=True)
    names = [f"{part}_l{k}{way}" for k in (0, 1) for way in ("", "_reverse") for part in
             ("weight_ih", "weight_hh", "bias_ih", "bias_hh")]  # fmt: skip
    assert list(layer.state_dict()) == names
    assert [len(part) for part in layer.all_weights] == [4] * 4
    assert repr(layer) == "GRU(3, 4, num_layers=2, bidirectional=True)"
    assert repr(nn.LSTMCell(2, 3, bias=False)) == "LSTMCell(2, 3, bias=False)"


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda: nn.LSTM(3, 4)(rl.zeros(2, 2, 5)), r"LSTM: input must be \(time, batch, 3\)"),
        (lambda: nn.GRU(3, 4)(rl.zeros(2, 2, 3), rl.zeros(1, 1, 4)), r"\[1, 2, 4\]"),
        (lambda: nn.GRU(3, 4)(rl.zeros(0, 2, 3)), "at least one step"),
        (lambda: nn.GRUCell(3, 4)(rl.zeros(2, 5)), "gru_cell"),
        (lambda: nn.RNN(3, 4, nonlinearity="sin"), "'sin'"),
        (lambda: nn.LSTM(3, 4, proj_size=4), "proj_size"),
        (lambda: nn.LSTM(3, 4, dropout=2.0), "dropout"),
        (lambda: rnn.pack_padded_sequence(rl.zeros(3, 2, 1), [1, 2]), "must go down"),
        (lambda: rnn.pack_padded_sequence(rl.zeros(3, 2, 1), [4, 2]), "between 1 and 3"),
        (lambda: rnn.pack_padded_sequence(rl.zeros(3, 2, 1), [3]), "1 lengths"),
        (lambda: rnn.pad_sequence([rl.zeros(1, 2), rl.zeros(1, 3)]), "more than their length"),
    ],
)
def test_bad_sequences(call, match):
    with pytest.raises((RuntimeError, ValueError), match=match):
        call()


def test_padding():
    a, b = rl.tensor([1, 2, 3]), rl.tensor([4])
    assert rnn.pad_sequence([a, b]).tolist() == [[1, 4], [2, 0], [3, 0]]
    assert rnn.pad_sequence([a, b], True, -1, "left").tolist() == [[1, 2, 3], [-1, -1, 4]]
    back = rnn.unpad_sequence(rnn.pad_sequence([a, b]), rl.tensor([3, 1]))
    assert [v.tolist() for v in back] == [[1, 2, 3], [4]]
    packed = rnn.pack_sequence([b, a], enforce_sorted=False)
    assert packed.data.tolist() == [1, 4, 2, 3] and packed.batch_sizes.tolist() == [2, 1, 1]
    assert packed.sorted_indices.tolist() == [1, 0] and [
        v.tolist() for v in rnn.unpack_sequence(packed)
    ] == [
        [4],
        [1, 2, 3],
    ]
    assert packed.float().data.dtype is rl.float32
    longer, _ = rnn.pad_packed_sequence(packed, batch_first=True, total_length=5)
    assert longer.shape == (2, 5)


def test_packed_sequences_change_type_and_stay() -> None:
    packed = nn.utils.rnn.pack_padded_sequence(rl.ones(3, 2), [3, 1])
    assert packed.to("cpu") is packed and packed.short().data.dtype is rl.int16
    with pytest.raises(RuntimeError):
        nn.utils.rnn.pad_sequence(5)  # type: ignore[arg-type]
