"""Writes stories: `python generate.py --stories 5` prints some; `stories(n)` gives n distinct ones, always the same."""

import argparse
import hashlib
import inspect
import random
from multiprocessing import Pool

import engine
import plots_a
import plots_b
import plots_c

PLOTS = [f for module in (plots_a, plots_b, plots_c) for f in vars(module).values() if inspect.isfunction(f) and f.__module__ == module.__name__]
MIN_WORDS, MAX_WORDS = 45, 330


def story(index):
    """The story of that number; the seed is the number."""
    rng = random.Random(f"atta story {index}")
    while True:
        tale = engine.Story(rng)
        rng.choice(PLOTS)(tale)
        text = tale.text()
        if MIN_WORDS <= len(text.split()) <= MAX_WORDS:
            return text


def stories(n, processes=None):
    """n distinct stories."""
    with Pool(processes) as pool:
        made = pool.map(story, range(n + n // 100), chunksize=500)
    seen, distinct = set(), []
    for text in made:
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        if digest not in seen:
            seen.add(digest)
            distinct.append(text)
    return distinct[:n]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--stories", type=int, default=5)
    parser.add_argument("--start", type=int, default=0)
    args = parser.parse_args()
    for index in range(args.start, args.start + args.stories):
        print(story(index), end="\n\n")


if __name__ == "__main__":
    main()
