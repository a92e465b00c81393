"""Tests of packing and choosing: `python tools/builtin-model/shared/check.py` (a few seconds; needs PyTorch, so CI does not run it)."""

from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from choose import FLOOR, Choice, Chooser, Threshold, decisive_losses, probabilities
from model import Config, Model, grow
from pack import PAD, cut, padded, windows

CONFIG = Config(n_vocab=50, n_ctx=64, n_layers=1, n_heads=2, n_kv_heads=1, d_model=16, d_ff=16)
CHOICE = Choice(share=0.25, weight=8, fork=7, branch=9)


def texts(n, longest, seed):
    """Rows whose first id is 49, and no other; some tokens decide, none in every fifth text."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        ids = rng.integers(1, 49, rng.integers(2, longest + 1)).astype(np.uint16)
        weights = rng.choice([0, 1, 8] if i % 5 else [0, 1], len(ids)).astype(np.uint8)
        ids[0], weights[0] = 49, 0
        rows.append((ids, weights))
    return rows


def test_windows_keep_texts_whole():
    rows = texts(3000, 65, seed=1)
    known, seen, n_full, n_batches = {row[0].tobytes() for row in rows}, set(), 0, 0
    for ids, weights in windows(rows, [16, 32, 64], 256, seed=2):
        width = ids.shape[1] - 1
        assert ids.shape == weights.shape == (256 // width, width + 1)
        for window in ids.numpy().astype(np.uint16):
            filled = window[: len(window) - np.argmax(window[::-1] != PAD)]
            starts = np.flatnonzero(filled == 49)
            seen.update(part.tobytes() for part in np.split(filled, starts[1:]))
            n_full += len(filled)
        n_batches += 1
        if n_batches == 300:
            break
    assert seen <= known and len(seen) > 1000, len(seen)
    assert n_full > 0.75 * 300 * 256, n_full


def test_cut_loses_nothing():
    rows = texts(50, 200, seed=3)
    pieces = cut(rows, 64)
    assert max(len(ids) for ids, _ in pieces) == 65
    for part in (0, 1):
        assert np.array_equal(np.concatenate([row[part] for row in rows]), np.concatenate([row[part] for row in pieces]))


def test_threshold_gives_the_share():
    rng = np.random.default_rng(4)
    scores, lengths = rng.exponential(1, 4000) ** 4, rng.integers(50, 500, 4000)
    threshold = Threshold(0.2)
    threshold.add(scores, lengths)
    learned = (probabilities(scores, threshold.value) * lengths).sum() / lengths.sum()
    assert abs(learned - 0.2) < 1e-3, learned
    assert probabilities([0.0], threshold.value)[0] == FLOOR


def test_scores_are_the_losses_of_deciding_tokens():
    torch.manual_seed(5)
    model, rows = Model(CONFIG), texts(4, 40, seed=6)[1:]
    for ids, weights in rows[:2]:
        ids[3], weights[4] = CHOICE.fork, CHOICE.weight
    rows[0][0][4] = CHOICE.branch
    ids, _ = padded(rows)
    marks = torch.zeros(ids.shape)
    for i, (row, weights) in enumerate(rows):
        marks[i, : len(row)] = torch.from_numpy((weights == CHOICE.weight) * np.float32(i + 11))
    with torch.no_grad():
        model.embed.weight.mul_(20)  # or else all tokens are about as probable
        log_p = model(ids[:, :-1]).log_softmax(-1)
        expected = {}
        for i, t in zip(*torch.where(marks > 0)):
            here, target = log_p[i, t - 1], int(ids[i, t])
            if int(ids[i, t - 1]) == CHOICE.fork and target != CHOICE.branch:
                others = torch.arange(CONFIG.n_vocab) != CHOICE.branch
                nats = -float(here[others].logsumexp(0))
            else:
                nats = float(F.nll_loss(here[None], torch.tensor([target])))
            expected[int(marks[i, t])] = expected.get(int(marks[i, t]), 0.0) + nats
        found = dict(decisive_losses(model.hidden(ids[:, :-1]), model.embed.weight, ids, marks, CHOICE))
    assert found.keys() == expected.keys() == {11, 12, 13}
    assert all(abs(found[i] - expected[i]) < 1e-3 * expected[i] for i in found), (found, expected)


def test_chosen_texts_stand_for_all():
    """Deciding tokens weigh as much as if all texts had been taken; texts where nothing decides are all taken, as they are."""
    torch.manual_seed(7)
    model, rows = Model(CONFIG), texts(4000, 65, seed=8)
    with torch.no_grad():
        model.embed.weight.mul_(20)
        chooser = Chooser(rows, [32, 64], 512, CHOICE, model.hidden, model.embed.weight, seed=9)
        read, add = [], chooser.threshold.add
        chooser.threshold.add = lambda scores, lengths: (read.extend(lengths), add(scores, lengths))
        batches = [next(chooser) for _ in range(400)]
    n_read, weights = sum(read), torch.cat([batch[1].flatten() for batch in batches]).numpy()
    deciding, others = ([row for row in rows if (8 in row[1]) == decides] for decides in (True, False))
    n_deciding, n_others = (sum(len(ids) for ids, _ in part) for part in (deciding, others))
    expected = n_read * sum((weights == 8).sum() for _, weights in deciding) / n_deciding
    assert abs(weights[weights >= 8].sum() / 8 / expected - 1) < 0.1, (weights[weights >= 8].sum() / 8, expected)
    assert weights.max() <= 8 / FLOOR + 1e-3
    n_learned = sum(int((batch[0] != PAD).sum()) for batch in batches) - n_read * n_others / n_deciding
    assert abs(n_learned / n_read / CHOICE.share - 1) < 0.1, n_learned / n_read


def test_what_grows_computes_the_same():
    torch.manual_seed(10)
    model, ids = Model(replace(CONFIG, n_layers=2)), torch.randint(0, 50, (2, 20))
    with torch.no_grad():
        before = model(ids)
        grow(model, 4)
        assert len(model.blocks) == model.config.n_layers == 4
        assert torch.equal(model(ids), before)
        model.blocks[2].attn.o.weight.add_(0.1)
        assert not torch.equal(model(ids), before)


if __name__ == "__main__":
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
            print(name)
