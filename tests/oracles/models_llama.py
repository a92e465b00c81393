#!/usr/bin/env python3
"""How far llama.cpp's logits of the tiny models are from those of transformers: tests/golden/models/llama_cpp.json.

    models_llama.py LLAMA_LOGITS ../golden/models

LLAMA_LOGITS is `llama_logits.cpp`, built as README.md says.  Where llama.cpp computes something else, WHY says what: then
we follow transformers, and no distance is kept.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

FAR = 1e-5  # beyond this it is another computation
WHY = {
    "llama-dynamic-rope": "it knows no dynamic NTK",
    "phi3": "it ignores the window",
    "gpt-oss": "it takes other betas of YaRN than the file's, and ends its ramp at whole pairs",
    "qwen35": "it takes values to be as wide as keys",
    "qwen35moe": "it takes values to be as wide as keys",
    "qwen3next": "it takes values to be as wide as keys",
    **dict.fromkeys(("qwen4exp-streams", "qwen4exp-ngrams"), "it takes values to be as wide as keys"),
    "kimi-linear": "it keeps queries and keys of delta nets from zero by the eps of norms",
    "lfm3": "it does not know this architecture",
    "nomic-bert-moe": "it has no bias behind the sum of experts",
    "falcon-mamba": "it wants a bias of the convolution",
    "dots1": "it wants as many heads of keys as of queries",
    "gptneox-sequential": "it wants biases of attention",
    "command-r-norm": "it has norms of queries and keys in files of 64 layers only",
    "exaone4": "it has a window in files of 64 layers only",
    "qwen2vl": "it does not read the eps of norms",
    "gemma4": "it wants a layer of each kind among the first ones of a model that shares keys and values",
    **dict.fromkeys(("gemma3n", "gemma3n-second"), "it has low-rank layers of 64, and closes gates in the first ten layers"),
    "ernie4_5-moe": "it wants experts in every layer behind the dense ones",
    "olmoe": "it wants as many heads of keys as of queries",
    "phimoe": "it has no sparse mixer",
    "llama4": "it takes 8192 for the size of chunks and of the growth of queries in every file",
    "granitehybrid": "it refuses a number of experts in use where there are none",
    "deepseek2-lite": "it knows models without compressed queries by their number of layers",
    **dict.fromkeys(("minicpm3", "minicpm3-long", "youtu", "deepseek2", "deepseek3", "glm4-flash"),
                    "it takes the eps of the other norms for those of latent vectors"),
    "bitnet": "it has SiLU for every file of this architecture",
}


def nmse(got, want):
    got, want = got.astype(np.float64), want.astype(np.float64)
    return float(((got - want) ** 2).sum() / (want ** 2).sum())


def main():
    program, folder = sys.argv[1], Path(sys.argv[2])
    models, distances, unexplained = json.loads((folder / "index.json").read_text())["models"], {}, {}
    for m in models:
        with tempfile.NamedTemporaryFile() as out:
            ids = ",".join(map(str, m["tokens"]))
            run = subprocess.run([program, folder / m["gguf"], ids, out.name, "2"], stderr=subprocess.DEVNULL)
            got, want = np.fromfile(out.name, "<f4"), np.fromfile(folder / m["logits"], "<f4")
        if got.size != want.size and run.returncode == 0:
            continue                                        # an encoder, whose results are no logits
        distance = nmse(got, want) if run.returncode == 0 else np.inf
        if (distance > FAR) != (m["name"] in WHY):
            unexplained[m["name"]] = distance
        distances[m["name"]] = WHY.get(m["name"], float(f"{distance:.0e}"))
    assert not unexplained, unexplained
    (folder / "llama_cpp.json").write_text(json.dumps(distances, indent=0) + "\n")


if __name__ == "__main__":
    main()
