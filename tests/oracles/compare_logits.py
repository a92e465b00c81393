#!/usr/bin/env python3
"""Distance between two files of logits (f32 little endian, [n_tokens, n_vocab]): NMSE, largest difference, equal argmax.

    compare_logits.py GOT WANT N_VOCAB      # WANT is the reference of the NMSE
"""
import sys

import numpy as np


def compare(got, want):
    """One line of figures for two [n_tokens, n_vocab] arrays."""
    d = got.astype(np.float64) - want
    rows = (d ** 2).sum(1) / (want.astype(np.float64) ** 2).sum(1)
    same = (got.argmax(1) == want.argmax(1)).sum()
    nmse = (d ** 2).sum() / (want.astype(np.float64) ** 2).sum()
    return f"nmse {nmse:.3e}  worst row {rows.max():.3e} (row {rows.argmax()})  last row {rows[-1]:.3e}  max abs {abs(d).max():.3e}  argmax {same}/{len(want)}"


def main():
    got, want = (np.fromfile(path, "<f4").reshape(-1, int(sys.argv[3])) for path in sys.argv[1:3])
    if got.shape != want.shape:
        sys.exit(f"shapes differ: {got.shape} and {want.shape}")
    print(compare(got, want))


if __name__ == "__main__":
    main()
