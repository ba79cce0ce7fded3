"""Catalog rows: steps of recurrent networks."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tests.catalog.row import CONTRACTED, FLOAT, Make, Row, Sample, at


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gates(x, h, w_ih, w_hh, b_ih=0.0, b_hh=0.0):
    return x @ w_ih.T + b_ih, h @ w_hh.T + b_hh


def tanh_cell(*operands):
    return np.tanh(sum(gates(*operands)))


def relu_cell(*operands):
    return np.maximum(sum(gates(*operands)), 0)


def gru(x, h, *weights):
    (xr, xz, xn), (hr, hz, hn) = (np.split(part, 3, -1) for part in gates(x, h, *weights))
    fresh = np.tanh(xn + sigmoid(xr + hr) * hn)
    z = sigmoid(xz + hz)
    return (1 - z) * fresh + z * h


def lstm(x, states, *weights):
    h, c = states
    i, f, g, o = np.split(sum(gates(x, h, *weights)), 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def steps(count: int, pair: bool = False, low: float = -1):
    def samples(make: Make) -> Iterator[Sample]:
        def draw(*shape: int):
            return make(*shape, low=low, high=1)

        def state(*shape: int):
            return [draw(*shape), draw(*shape)] if pair else draw(*shape)

        yield at(
            draw(2, 3),
            state(2, 4),
            draw(4 * count, 3),
            draw(4 * count, 4),
            draw(4 * count),
            draw(4 * count),
        )
        yield at(draw(3), state(2), draw(2 * count, 3), draw(2 * count, 2))

    return samples


ROWS = [
    Row("rnn_tanh_cell", tanh_cell, steps(1), FLOAT, CONTRACTED),
    Row("rnn_relu_cell", relu_cell, steps(1, low=0.125), FLOAT, CONTRACTED),
    Row("gru_cell", gru, steps(3), FLOAT, CONTRACTED),
    Row("lstm_cell", lstm, steps(4, pair=True), FLOAT, CONTRACTED),
]
