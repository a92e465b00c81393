"""Writes the mean of trained models, weight by weight, where `export.py` finds it.

    python tools/builtin-model/home/average.py --out DIR MODEL MODEL [MODEL ...]

Each MODEL is a model.pt or a GGUF file; one that has fewer blocks than another grows as in training. Two that have gone
different ways from the same weights have noise of their own, of which the mean has less: it is better than both (README.md).
"""

import argparse
import shutil
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))
import loop  # noqa: E402
from model import grow  # noqa: E402


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", required=True)
    parser.add_argument("models", nargs="+")
    args = parser.parse_args()
    models = [loop.load(path) for path in args.models]
    for model in models:
        grow(model, max(model.config.n_layers for model in models))
    if any(model.config != models[0].config for model in models):
        parser.error("these models have different shapes")
    mean, weights = models[0], [model.state_dict() for model in models]
    mean.load_state_dict({name: sum(w[name] for w in weights) / len(weights) for name in weights[0]})
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    loop.save(mean, out)
    shutil.copy(Path(__file__).with_name("tokenizer.json"), out)


if __name__ == "__main__":
    main()
