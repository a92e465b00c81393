"""Learning most from what is not known yet: texts are read first, forward only, and the ones that go wrong are learned from.

When a model is nearly always right, nearly all texts teach it nothing, and reading costs a third of learning. A text's
score is the loss, in nats, of the tokens that decide whether it is right. It is learned from with the probability
min(1, score / threshold), and at least FLOOR; its deciding tokens then count the more, the less probable that was, so
that on the mean they count as if all texts were learned from (importance sampling). What a token says is the caller's.
"""

from collections import deque
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from pack import Packers, cut

FLOOR = 0.05
# Texts that the threshold is found from.
N_REMEMBERED = 4000
# Batches to learn from that wait, so that processes which share their gradients do not wait for each other's luck.
N_WAITING = 2


@dataclass(frozen=True)
class Choice:
    """Which texts are learned from.

    share: of the tokens read. weight: that of tokens which decide. Behind the token `fork` only whether `branch` comes or
    something else is scored, because what else is a matter of taste.
    """

    share: float
    weight: int
    fork: int
    branch: int


class Threshold:
    """The score that is learned from for certain, such that `share` of the tokens read are learned from."""

    def __init__(self, share):
        self.share, self.remembered, self.value = share, deque(maxlen=N_REMEMBERED), 1.0

    def add(self, scores, lengths):
        """Takes further texts into account."""
        self.remembered.extend(zip(scores, lengths))
        known, lengths = np.array(self.remembered).T
        low, high = 1e-6, 1e3
        for _ in range(40):
            self.value = (low * high) ** 0.5
            if (probabilities(known, self.value) * lengths).sum() > self.share * lengths.sum():
                low = self.value
            else:
                high = self.value


def probabilities(scores, threshold):
    return np.clip(np.asarray(scores) / threshold, FLOOR, 1.0)


def decisive_losses(hidden, output, ids, marks, choice):
    """[(mark, nats)] summed over the tokens with that mark; marks: like ids, 0 where a token does not decide.

    hidden: [batch, time, d_model] in front of the output matrix [n_vocab, d_model].
    """
    ids, marks = ids.to(hidden.device), marks.to(hidden.device)
    chosen = marks[:, 1:] > 0
    log_p = F.linear(hidden[chosen], output.to(hidden.dtype)).float().log_softmax(-1)
    target, before = ids[:, 1:][chosen], ids[:, :-1][chosen]
    losses = -log_p.gather(1, target[:, None])[:, 0]
    elsewhere = (before == choice.fork) & (target != choice.branch)
    losses = torch.where(elsewhere, -torch.log1p(-log_p[:, choice.branch].exp().clamp(max=1 - 1e-6)), losses)
    numbers, place = marks[:, 1:][chosen].unique(return_inverse=True)
    return list(zip(numbers.long().tolist(), torch.zeros_like(numbers).index_add_(0, place, losses).tolist()))


class Chooser:
    """Batches of texts worth learning from, for ever, and how much was read for them."""

    def __init__(self, rows, widths, n_tokens, choice, hidden, output, seed):
        """rows: [(ids, weights)]; n_tokens: of a batch, read or learned from; hidden: the network up to the output matrix."""
        self.rows = cut(rows, widths[-1])
        self.choice, self.hidden, self.output = choice, hidden, output
        self.rng = np.random.default_rng(seed)
        self.read, self.learned = Packers(widths, n_tokens, self.rng), Packers(widths, n_tokens, self.rng)
        self.threshold, self.waiting, self.n_read = Threshold(choice.share), deque(), 0
        self.n_a_batch = round(1 / choice.share)
        self.numbers = iter(())

    def __iter__(self):
        return self

    def __next__(self):
        """Ids and weights, [n_tokens // width, width + 1] each."""
        for _ in range(self.n_a_batch - max(0, len(self.waiting) - N_WAITING)):
            self.read_batch()
        while not self.waiting:
            self.read_batch()
        return self.waiting.popleft()

    @torch.no_grad()
    def read_batch(self):
        ids, marks = self.next_to_read()
        self.n_read += ids.numel() - len(ids)
        scored = decisive_losses(self.hidden(ids[:, :-1]), self.output, ids, marks, self.choice)
        rows, scores = [self.rows[number - 1] for number, _ in scored], [nats for _, nats in scored]
        self.threshold.add(scores, [len(ids) for ids, _ in rows])
        for (ids, weights), p in zip(rows, probabilities(scores, self.threshold.value)):
            if self.rng.random() < p:
                self.learn(ids, np.where(weights == self.choice.weight, weights / p, weights).astype(np.float32))

    def next_to_read(self):
        """Ids, and for each token that decides the number of its text, from 1."""
        while True:
            for number in self.numbers:
                ids, weights = self.rows[number]
                decides = weights == self.choice.weight
                if not decides.any():
                    self.learn(ids, weights)
                elif batch := self.read.add(ids, decides * np.float32(number + 1)):
                    return batch
            self.numbers = iter(self.rng.permutation(len(self.rows)))

    def learn(self, ids, weights):
        if batch := self.learned.add(ids, weights):
            self.waiting.append(batch)
