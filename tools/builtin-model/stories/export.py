"""Writes the trained model as GGUF, matrices Q8_0 (or, with --f32, as they are) and norms F32.

    python tools/builtin-model/stories/export.py --run DIR --out tests/golden/stories.gguf
"""

import argparse
import sys
from pathlib import Path

import gguf
import sentencepiece as spm

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "shared"))
import gguf_file  # noqa: E402
import loop  # noqa: E402


def token_type(sp, i):
    if sp.is_unknown(i):
        return gguf.TokenType.UNKNOWN
    if sp.is_control(i):
        return gguf.TokenType.CONTROL
    return gguf.TokenType.BYTE if sp.is_byte(i) else gguf.TokenType.NORMAL


def add_tokenizer(w, sp):
    n = range(sp.vocab_size())
    w.add_tokenizer_model("llama")
    w.add_tokenizer_pre("default")
    w.add_token_list([sp.id_to_piece(i).encode() for i in n])
    w.add_token_scores([sp.get_score(i) for i in n])
    w.add_token_types([token_type(sp, i) for i in n])
    w.add_unk_token_id(sp.unk_id())
    w.add_bos_token_id(sp.bos_id())
    w.add_eos_token_id(sp.eos_id())
    w.add_add_bos_token(True)
    w.add_add_eos_token(False)
    w.add_add_space_prefix(True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--run", required=True, help="what train.py wrote")
    parser.add_argument("--out", required=True)
    parser.add_argument("--f32", action="store_true")
    args = parser.parse_args()
    model = loop.load(Path(args.run) / "model.pt")
    w = gguf.GGUFWriter(args.out, "llama")
    w.add_name("atta stories")
    w.add_description("A very small model that tells little stories in plain English; made by tools/builtin-model/stories of atta.")
    gguf_file.add_shape(w, model.config, args.f32)
    add_tokenizer(w, spm.SentencePieceProcessor(model_file=str(Path(args.run) / "tokenizer.model")))
    gguf_file.finish(w, model.state_dict(), model.config, args.f32)
    print(args.out, Path(args.out).stat().st_size, "bytes")


if __name__ == "__main__":
    main()
