#!/usr/bin/env python3
"""Goldens of perplexity and divergence: what llama.cpp's llama-perplexity says of models in this repository.

    perplexity_golden.py path/to/llama-perplexity tests/golden/perplexity

The directory holds stories.txt, stories of the story model. Written are letters.txt, the same in the few letters that
the vocabulary of the tiny models has; figures.json; and llama-plain.logits: the log-probabilities that llama.cpp saved
of the tiny model of that name, in its own format. llama-bias, which has the same vocabulary and other weights, is
compared with them.
"""
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "tests/golden/models"
STORIES = ROOT / "tests/golden/stories.gguf"


def run(tool, *args):
    done = subprocess.run([tool, "-t", "1", *map(str, args)], capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def pair(pattern, text):
    value, error = re.search(pattern + r"\s*([-\d.]+)\s*(?:±|\+/-)\s*([\d.]+)", text).groups()
    return [float(value), float(error)]


def main(tool, directory):
    stories, letters, base = (directory / name for name in ("stories.txt", "letters.txt", "llama-plain.logits"))
    letters.write_text(re.sub(r"[^a-z ,.]", "", re.sub(r'[\n"]', " ", stories.read_text().lower())))
    figures = {}
    plain = MODELS / "llama-plain.gguf"
    for name, model, text, n_ctx in [("stories", STORIES, stories, 128), ("llama-plain", plain, letters, 32)]:
        out = run(tool, "-m", model, "-f", text, "-c", n_ctx)
        figures[name] = {"n_ctx": n_ctx, "ppl": pair("PPL =", out)}
    run(tool, "-m", plain, "-f", letters, "-c", 32, "--chunks", 12, "--kl-divergence-base", base)
    out = run(tool, "-m", MODELS / "llama-bias.gguf", "-c", 32, "--kl-divergence-base", base, "--kl-divergence")
    figures["llama-bias to llama-plain"] = {
        "ppl": pair(r"Mean PPL\(Q\)\s*:", out),
        "ppl_base": pair(r"Mean PPL\(base\)\s*:", out),
        "ppl_ratio": pair(r"Mean PPL\(Q\)/PPL\(base\)\s*:", out),
        "kld_mean": pair(r"Mean\s+KLD:", out),
        "same_top": [x / 100 for x in pair("Same top p:", out)],
        "delta_p_rms": [x / 100 for x in pair(r"RMS Δp\s*:", out)],
        "kld_median": float(re.search(r"Median\s+KLD:\s*([\d.]+)", out)[1]),
        "kld_max": float(re.search(r"Maximum KLD:\s*([\d.]+)", out)[1]),
    }
    (directory / "figures.json").write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")


main(sys.argv[1], Path(sys.argv[2]))
