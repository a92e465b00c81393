"""Writes the trained model as GGUF, matrices Q8_0 (or, with --f32, as they are) and norms F32.

    python tools/builtin-model/home/export.py --run DIR --out crates/cli/assets/home.gguf
"""

import argparse
import json
import sys
from pathlib import Path

import gguf

import chat

sys.path.append(str(Path(__file__).resolve().parents[1] / "shared"))
import gguf_file  # noqa: E402
import loop  # noqa: E402


def add_tokenizer(w, file):
    model = json.loads(file.read_text())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [m if isinstance(m, str) else " ".join(m) for m in model["merges"]]
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("qwen2")
    w.add_token_list(tokens)
    # Calls are text that is shown and held to a grammar, so their marks are no control tokens.
    user = gguf.TokenType.USER_DEFINED
    w.add_token_types([user if t in (chat.CALL, chat.CALL_END) else control if t in chat.SPECIAL else normal for t in tokens])
    w.add_token_merges(merges)
    w.add_bos_token_id(tokens.index(chat.BEGIN))
    w.add_eos_token_id(tokens.index(chat.END))
    w.add_add_bos_token(True)
    w.add_chat_template(chat.TEMPLATE)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", required=True, help="what train.py wrote")
    parser.add_argument("--out", required=True)
    parser.add_argument("--f32", action="store_true")
    args = parser.parse_args()
    model = loop.load(Path(args.run) / "model.pt")
    w = gguf.GGUFWriter(args.out, "llama")
    w.add_name("atta home")
    w.add_description("A very small model that runs a house by calling tools, and tells little stories; made by tools/builtin-model/home of atta.")
    gguf_file.add_shape(w, model.config, args.f32)
    add_tokenizer(w, Path(args.run) / "tokenizer.json")
    gguf_file.finish(w, model.state_dict(), model.config, args.f32)
    print(args.out, Path(args.out).stat().st_size, "bytes")


if __name__ == "__main__":
    main()
