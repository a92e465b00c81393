"""Writes the trained model as GGUF, matrices Q8_0 (or, with --f32, as they are) and norms F32.

    python models/stories/export.py --run DIR --out crates/cli/assets/stories.gguf
"""

import argparse
from pathlib import Path

import gguf
import numpy as np
import sentencepiece as spm
import torch
from model import Config

Q8_0 = gguf.GGMLQuantizationType.Q8_0
BLOCK_TENSORS = {
    "attn_norm.weight": "attn_norm.weight", "attn.q.weight": "attn_q.weight", "attn.k.weight": "attn_k.weight",
    "attn.v.weight": "attn_v.weight", "attn.o.weight": "attn_output.weight", "ffn_norm.weight": "ffn_norm.weight",
    "ffn.gate.weight": "ffn_gate.weight", "ffn.up.weight": "ffn_up.weight", "ffn.down.weight": "ffn_down.weight",
}  # fmt: skip


def neighbours(w, d_head):
    """Rows of q or k from pairs (i, i + d_head / 2) to pairs (2i, 2i+1); w: [n_heads * d_head, d_model]."""
    return w.reshape(-1, 2, d_head // 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


def halves(w, d_head):
    """The way back."""
    return w.reshape(-1, d_head // 2, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)


def tensors(weights, config):
    """GGUF name and float32 array of every tensor; the output matrix is the embedding, so it is not there twice."""
    yield "token_embd.weight", weights["embed.weight"].numpy()
    for l in range(config.n_layers):
        for ours, theirs in BLOCK_TENSORS.items():
            w = weights[f"blocks.{l}.{ours}"].numpy()
            yield f"blk.{l}.{theirs}", neighbours(w, config.d_head) if ours in ("attn.q.weight", "attn.k.weight") else w
    yield "output_norm.weight", weights["norm.weight"].numpy()


def add_metadata(w, config, file_type):
    w.add_name("atta stories")
    w.add_description("A very small model that tells little stories in plain English; made by models/stories of atta.")
    w.add_license("MIT OR Apache-2.0")
    w.add_languages(["en"])
    w.add_file_type(file_type)
    w.add_quantization_version(2)
    w.add_vocab_size(config.n_vocab)
    w.add_context_length(config.n_ctx)
    w.add_embedding_length(config.d_model)
    w.add_block_count(config.n_layers)
    w.add_feed_forward_length(config.d_ff)
    w.add_rope_dimension_count(config.d_head)
    w.add_rope_freq_base(config.rope_base)
    w.add_head_count(config.n_heads)
    w.add_head_count_kv(config.n_kv_heads)
    w.add_layer_norm_rms_eps(config.norm_eps)


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
    saved = torch.load(Path(args.run) / "model.pt", weights_only=True)
    config = Config(**saved["config"])
    w = gguf.GGUFWriter(args.out, "llama")
    add_metadata(w, config, gguf.LlamaFileType.ALL_F32 if args.f32 else gguf.LlamaFileType.MOSTLY_Q8_0)
    add_tokenizer(w, spm.SentencePieceProcessor(model_file=str(Path(args.run) / "tokenizer.model")))
    for name, array in tensors(saved["weights"], config):
        array = np.ascontiguousarray(array, dtype=np.float32)
        if array.ndim == 1 or args.f32:
            w.add_tensor(name, array)
        else:
            w.add_tensor(name, gguf.quants.quantize(array, Q8_0), raw_dtype=Q8_0)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    print(args.out, Path(args.out).stat().st_size, "bytes")


if __name__ == "__main__":
    main()
