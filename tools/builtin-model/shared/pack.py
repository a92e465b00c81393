"""Texts side by side in windows of a few widths, as batches for the network."""

import numpy as np
import torch

PAD = 0
# Of texts that narrower windows would hold, so that distant positions stay known.
SHARE_OF_WIDEST = 0.05


def cut(rows, width):
    """The same rows [(ids, weights)], what is longer than a window of that width in pieces."""
    return [
        (ids[start : start + width + 1], weights[start : start + width + 1])
        for ids, weights in rows
        for start in range(0, len(ids), width + 1)
    ]  # fmt: skip


def windows(rows, widths, n_tokens, seed):
    """Batches of ids and weights, [n_tokens // width, width + 1] each, for ever, `width` being one of `widths`.

    rows: [(ids, weights)], in another order each time round.
    """
    rng = np.random.default_rng(seed)
    packers, rows = Packers(widths, n_tokens, rng), cut(rows, widths[-1])
    while True:
        for i in rng.permutation(len(rows)):
            if batch := packers.add(*rows[i]):
                yield batch


class Packers:
    """Puts each text into a window of the narrowest width that holds it; a few into the widest."""

    def __init__(self, widths, n_tokens, rng):
        self.widths, self.rng = widths, rng
        self.packers = {width: Packer(width, n_tokens // width) for width in widths}

    def add(self, ids, weights):
        """A batch, if there are enough windows of a width now."""
        fitting = [width for width in self.widths if len(ids) <= width + 1]
        return self.packers[fitting[-1] if self.rng.random() < SHARE_OF_WIDEST else fitting[0]].add(ids, weights)


class Packer:
    """Puts texts into the fullest of some windows that are not full yet; no text is begun that does not end in its window."""

    N_OPEN = 32

    def __init__(self, width, n_windows):
        self.width, self.n_windows, self.open, self.full = width, n_windows, [], []

    def add(self, ids, weights):
        """A batch, if there are enough windows now."""
        room = self.width + 1 - len(ids)
        fullest = max((window for window in self.open if window.length <= room), key=lambda window: window.length, default=None)
        if fullest is None:
            fullest = Window()
            self.open.append(fullest)
        fullest.add(ids, weights)
        if len(self.open) > self.N_OPEN:
            self.open.sort(key=lambda window: window.length)
            self.full.append(self.open.pop())
        if len(self.full) < self.n_windows:
            return None
        batch, self.full = self.full, []
        return filled_up([window.ids for window in batch], [window.weights for window in batch], self.width + 1)


class Window:
    """Texts side by side."""

    def __init__(self):
        self.ids, self.weights, self.length = [], [], 0

    def add(self, ids, weights):
        self.ids.append(ids)
        self.weights.append(weights)
        self.length += len(ids)


def filled_up(ids, weights, width):
    """Lists of pieces, one list a row, as two matrices of that width, with tokens of no weight behind."""
    shape = (len(ids), width)
    out = np.full(shape, PAD, dtype=np.int64), np.zeros(shape, dtype=np.float32)
    for matrix, rows in zip(out, (ids, weights)):
        for i, pieces in enumerate(rows):
            row = np.concatenate(pieces)
            matrix[i, : len(row)] = row
    return tuple(torch.from_numpy(matrix) for matrix in out)


def padded(rows):
    """Rows side by side, each on its own, filled up with tokens of no weight."""
    width = (max(len(ids) for ids, _ in rows) + 6) // 8 * 8 + 1
    return filled_up([[ids] for ids, _ in rows], [[weights] for _, weights in rows], width)
