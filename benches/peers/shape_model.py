"""Writes GGUF files in the shapes of models of 2026 with random weights: a checkpoint of transformers, converted by llama.cpp.

    pip install torch transformers gguf numpy
    shape_model.py qwen3.5-4b target/shape.gguf --vocab ../shared/data/vocab/ggml-vocab-llama-bpe.gguf --llama-cpp LLAMA_CPP
    atta convert target/shape.gguf target/qwen3.5-4b-q4_k_m.gguf --type q4_k_m

Speed and memory do not depend on what weights say. The types are BF16 where checkpoints have it; 4 billion weights take 8 GB
of memory, and twice that on the disk while they are converted.
"""
import argparse
import sys
import tempfile
from pathlib import Path

import gguf
import torch
import transformers

SHAPES = {
    "qwen3.5-4b": ("Qwen3_5", dict(
        hidden_size=2560, intermediate_size=9216, num_hidden_layers=32, num_attention_heads=16, num_key_value_heads=4, head_dim=256,
        linear_num_key_heads=16, linear_num_value_heads=32, vocab_size=248320, max_position_embeddings=262144, tie_word_embeddings=True,
        rope_parameters=dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25, mrope_section=[11, 11, 10]))),
    "gemma4-e2b": ("Gemma4", dict(
        hidden_size=1536, intermediate_size=6144, num_hidden_layers=35, num_attention_heads=8, num_key_value_heads=1, head_dim=256,
        num_kv_shared_layers=20, use_double_wide_mlp=True, final_logit_softcapping=30.0, sliding_window=512,
        layer_types=(["sliding_attention"] * 4 + ["full_attention"]) * 7)),
    "lfm2-1.2b": ("Lfm2", dict(
        hidden_size=2048, intermediate_size=12288, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
        full_attn_idxs=[2, 5, 8, 10, 12, 14])),
}


def checkpoint(shape):
    """A model of transformers with random weights in BF16."""
    cls, fields = SHAPES[shape]
    config = getattr(transformers, f"{cls}TextConfig" if cls != "Lfm2" else "Lfm2Config")(**fields)
    with torch.device("meta"):
        model = getattr(transformers, f"{cls}ForCausalLM")(config).to(torch.bfloat16)
    model = model.to_empty(device="cpu")
    model.tie_weights()
    generator = torch.Generator().manual_seed(1)
    for name, p in model.named_parameters():
        with torch.no_grad():
            if p.dim() < 2:
                p.copy_(1 + 0.1 * torch.randn(p.shape, generator=generator))
            else:
                p.normal_(0, 0.3 * p.shape[-1] ** -0.5, generator=generator)
    return model


def add_vocabulary(writer, path, n_vocab):
    """The tokenizer of a GGUF file, filled up or cut to `n_vocab` tokens."""
    filled = {"tokens": lambda i: f"[PAD{i}]", "scores": lambda _: 0.0, "token_type": lambda _: int(gguf.TokenType.UNUSED)}
    adds = {"tokens": writer.add_token_list, "scores": writer.add_token_scores, "token_type": writer.add_token_types,
            "merges": writer.add_token_merges}
    plain = {str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32, float: writer.add_float32}
    for key, field in gguf.GGUFReader(path).fields.items():
        if not key.startswith("tokenizer."):
            continue
        value, last = field.contents(), key.rsplit(".", 1)[-1]
        if last in filled:
            value = [*value[:n_vocab], *(filled[last](i) for i in range(len(value), n_vocab))]
        if last in adds:
            adds[last](value)
        elif type(value) in plain:
            plain[type(value)](key, value)


def save(shape, folder):
    """Saves the checkpoint, and a list of tokens for converters that count them; returns their number."""
    model = checkpoint(shape)
    model.save_pretrained(folder, max_shard_size="1GB")
    n_vocab = model.config.vocab_size
    count = ", ".join(f'"{i}": {i}' for i in range(n_vocab))
    (Path(folder) / "tokenizer.json").write_text('{"model": {"vocab": {%s}}, "added_tokens": []}' % count)
    return n_vocab


def write(path, shape, vocab, llama_cpp):
    sys.path.insert(0, str(llama_cpp))
    from conversion import base, get_model_class
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        n_vocab = save(shape, folder)
        arch = base.get_model_architecture(base.ModelBase.load_hparams(Path(folder), False), base.ModelType.TEXT)
        cls = get_model_class(arch)
        def set_vocab(self):
            add_vocabulary(self.gguf_writer, vocab, n_vocab)
        cls = type(cls.__name__, (cls,), {"set_vocab": set_vocab, "model_arch": cls.model_arch, "no_mtp": True})
        with torch.inference_mode():
            cls(Path(folder), gguf.LlamaFileType.MOSTLY_BF16, path, model_name=path.stem).write()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("out", type=Path)
    parser.add_argument("--vocab", required=True, help="a GGUF file with a tokenizer")
    parser.add_argument("--llama-cpp", type=Path, required=True, help="llama.cpp's source, for its converter")
    a = parser.parse_args()
    write(a.out, a.shape, a.vocab, a.llama_cpp)


if __name__ == "__main__":
    main()
