"""Writes GGUF files in the shapes of models of 2026 with random weights, in the types of Q4_K_M.

    pip install gguf numpy
    shape_model.py qwen3.5-4b target/qwen3.5-4b.gguf --vocab ../shared/data/vocab/ggml-vocab-llama-bpe.gguf

Speed and memory do not depend on what weights say. The names and shapes of the tensors are those that llama.cpp's converter
gives to checkpoints of transformers (tests/golden/models has small ones). A tensor is repeated blocks, so that a file is written
as fast as the disk takes it, in little memory.
"""
import argparse
from pathlib import Path

import gguf
import numpy as np

Q4, Q6, F32 = gguf.GGMLQuantizationType.Q4_K, gguf.GGMLQuantizationType.Q6_K, gguf.GGMLQuantizationType.F32
# Different blocks of a type, of 256 weights each.
N_BLOCKS = 4096


def blocks(kind, rng):
    """Random blocks whose weights have a mean of 0 and a deviation of about 0.02."""
    if kind == Q4:
        b = rng.integers(0, 256, (N_BLOCKS, 144), dtype=np.uint8)
        # The minimum is as many steps as half of the range: scales and minima are equal, their factors are 1 to 7.5.
        b[:, 0:4] = np.frombuffer(np.array([1.4e-4, 1.05e-3], np.float16).tobytes(), np.uint8)
        b[:, 8:12] = b[:, 4:8]
        b[:, 12:16] = (b[:, 12:16] & 15) * 17
        return b
    b = rng.integers(0, 256, (N_BLOCKS, 210), dtype=np.uint8)
    b[:, 208:210] = np.frombuffer(np.array([1.5e-5], np.float16).tobytes(), np.uint8)
    return b


class Writer:
    """A file of one architecture."""

    def __init__(self, path, arch):
        self.gguf = gguf.GGUFWriter(path, arch)
        self.rng = np.random.default_rng(1)
        self.blocks = {kind: blocks(kind, self.rng) for kind in (Q4, Q6)}

    def keys(self, **values):
        """Metadata of the architecture; `__` stands for a dot."""
        for key, value in values.items():
            add = {bool: self.gguf.add_bool, int: self.gguf.add_uint32, float: self.gguf.add_float32, list: self.gguf.add_array}
            add[type(value)](f"{self.gguf.arch}.{key.replace('__', '.')}", value)

    def matrix(self, name, n_in, n_out, kind=Q4):
        """A matrix of `n_out` rows of `n_in` weights; in f32 where blocks do not fit."""
        if n_in % 256:
            values = self.rng.normal(0, 0.02, (n_out, n_in)).astype(np.float32)
            return self.gguf.add_tensor(f"{name}.weight", values)
        some = self.blocks[kind]
        rows = np.resize(some, (n_out * n_in // 256, some.shape[1])).reshape(n_out, -1)
        self.gguf.add_tensor(f"{name}.weight", rows, raw_dtype=kind)

    def vector(self, name, n, value=1.0):
        """A vector near `value`."""
        self.gguf.add_tensor(name, (value + 0.1 * self.rng.normal(size=n)).astype(np.float32))

    def norm(self, name, n):
        self.vector(f"{name}.weight", n)

    def vocabulary(self, path, n_vocab):
        """The tokenizer of a GGUF file, filled up or cut to `n_vocab` tokens."""
        filled = {"tokens": lambda i: f"[PAD{i}]", "scores": lambda _: 0.0, "token_type": lambda _: int(gguf.TokenType.UNUSED)}
        w = self.gguf
        adds = {"tokens": w.add_token_list, "scores": w.add_token_scores, "token_type": w.add_token_types, "merges": w.add_token_merges}
        plain = {str: w.add_string, bool: w.add_bool, int: w.add_uint32, float: w.add_float32}
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

    def close(self):
        self.gguf.write_header_to_file()
        self.gguf.write_kv_data_to_file()
        self.gguf.write_tensors_to_file()
        self.gguf.close()


def mixed(layer, n_layers):
    """The type of `attn_v` and `ffn_down` in Q4_K_M: six bits in the first and last eighth, and in every third layer between."""
    eighth = n_layers // 8
    return Q6 if layer < eighth or layer >= 7 * eighth or (layer - eighth) % 3 == 2 else Q4


def ffn(w, b, d, d_ffn, kind):
    w.matrix(f"{b}.ffn_gate", d, d_ffn)
    w.matrix(f"{b}.ffn_up", d, d_ffn)
    w.matrix(f"{b}.ffn_down", d_ffn, d, kind)


def qwen35_4b(w, vocab):
    d, n_layers, n_vocab = 2560, 32, 248320
    w.vocabulary(vocab, n_vocab)
    w.keys(block_count=n_layers, context_length=262144, embedding_length=d, feed_forward_length=9216, attention__head_count=16,
           attention__head_count_kv=4, rope__dimension_sections=[11, 11, 10, 0], rope__freq_base=1e7,
           attention__layer_norm_rms_epsilon=1e-6, attention__key_length=256, attention__value_length=256, ssm__conv_kernel=4,
           ssm__state_size=128, ssm__group_count=16, ssm__time_step_rank=32, ssm__inner_size=4096, full_attention_interval=4,
           rope__dimension_count=64)
    w.matrix("token_embd", d, n_vocab, Q6)
    w.norm("output_norm", d)
    for i in range(n_layers):
        b, kind = f"blk.{i}", mixed(i, n_layers)
        w.norm(f"{b}.attn_norm", d)
        w.norm(f"{b}.post_attention_norm", d)
        ffn(w, b, d, 9216, kind)
        if i % 4 == 3:
            w.matrix(f"{b}.attn_q", d, 2 * 16 * 256)
            w.matrix(f"{b}.attn_k", d, 4 * 256)
            w.matrix(f"{b}.attn_v", d, 4 * 256, kind)
            w.matrix(f"{b}.attn_output", 16 * 256, d)
            w.norm(f"{b}.attn_q_norm", 256)
            w.norm(f"{b}.attn_k_norm", 256)
            continue
        w.matrix(f"{b}.attn_qkv", d, 2 * 16 * 128 + 4096)
        w.matrix(f"{b}.attn_gate", d, 4096)
        w.matrix(f"{b}.ssm_alpha", d, 32)
        w.matrix(f"{b}.ssm_beta", d, 32)
        w.matrix(f"{b}.ssm_out", 4096, d)
        w.matrix(f"{b}.ssm_conv1d", 4, 2 * 16 * 128 + 4096)
        w.vector(f"{b}.ssm_a", 32, -1.0)
        w.vector(f"{b}.ssm_dt.bias", 32, 0.0)
        w.norm(f"{b}.ssm_norm", 128)


def gemma4_e2b(w, vocab):
    d, n_layers, n_vocab, d_layer = 1536, 35, 262144, 256
    # Layers that read the keys and values of earlier ones have wider feed-forward parts.
    is_wide = [i >= 15 for i in range(n_layers)]
    is_window = [i % 5 != 4 for i in range(n_layers)]
    w.vocabulary(vocab, n_vocab)
    w.keys(block_count=n_layers, context_length=131072, embedding_length=d, feed_forward_length=[12288 if x else 6144 for x in is_wide],
           attention__head_count=8, attention__head_count_kv=1, rope__freq_base=1e6, rope__freq_base_swa=1e4,
           attention__layer_norm_rms_epsilon=1e-6, attention__key_length=512, attention__value_length=512,
           final_logit_softcapping=30.0, attention__sliding_window=512, attention__shared_kv_layers=20,
           embedding_length_per_layer_input=d_layer, attention__sliding_window_pattern=is_window, attention__key_length_swa=256,
           attention__value_length_swa=256, rope__dimension_count=512, rope__dimension_count_swa=256)
    w.vector("rope_freqs.weight", 256)
    w.matrix("token_embd", d, n_vocab, Q6)
    w.matrix("per_layer_token_embd", n_layers * d_layer, n_vocab)
    w.matrix("per_layer_model_proj", d, n_layers * d_layer)
    w.norm("per_layer_proj_norm", d_layer)
    w.norm("output_norm", d)
    for i in range(n_layers):
        b, kind, d_head = f"blk.{i}", mixed(i, n_layers), 256 if is_window[i] else 512
        for name in ("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm", "post_norm"):
            w.norm(f"{b}.{name}", d)
        w.vector(f"{b}.layer_output_scale.weight", 1)
        ffn(w, b, d, 12288 if is_wide[i] else 6144, kind)
        w.matrix(f"{b}.inp_gate", d, d_layer)
        w.matrix(f"{b}.proj", d_layer, d)
        w.matrix(f"{b}.attn_q", d, 8 * d_head)
        w.matrix(f"{b}.attn_output", 8 * d_head, d)
        w.norm(f"{b}.attn_q_norm", d_head)
        if not is_wide[i]:
            w.matrix(f"{b}.attn_k", d, d_head)
            w.matrix(f"{b}.attn_v", d, d_head, kind)
            w.norm(f"{b}.attn_k_norm", d_head)


def lfm2_1_2b(w, vocab):
    d, n_layers, n_vocab = 2048, 16, 65536
    attention = (2, 5, 8, 10, 12, 14)
    w.vocabulary(vocab, n_vocab)
    w.keys(block_count=n_layers, context_length=128000, embedding_length=d, feed_forward_length=8192, attention__head_count=32,
           attention__head_count_kv=[8 if i in attention else 0 for i in range(n_layers)], rope__freq_base=1e6,
           attention__layer_norm_rms_epsilon=1e-5, vocab_size=n_vocab, shortconv__l_cache=3)
    w.matrix("token_embd", d, n_vocab, Q6)
    w.norm("token_embd_norm", d)
    for i in range(n_layers):
        b, kind = f"blk.{i}", mixed(i, n_layers)
        w.norm(f"{b}.attn_norm", d)
        w.norm(f"{b}.ffn_norm", d)
        ffn(w, b, d, 8192, kind)
        if i in attention:
            w.matrix(f"{b}.attn_q", d, d)
            w.matrix(f"{b}.attn_k", d, 512)
            w.matrix(f"{b}.attn_v", d, 512, kind)
            w.matrix(f"{b}.attn_output", d, d)
            w.norm(f"{b}.attn_q_norm", 64)
            w.norm(f"{b}.attn_k_norm", 64)
        else:
            w.matrix(f"{b}.shortconv.in_proj", d, 3 * d)
            w.matrix(f"{b}.shortconv.out_proj", d, d)
            w.matrix(f"{b}.shortconv.conv", 3, d)


SHAPES = {"qwen3.5-4b": ("qwen35", qwen35_4b), "gemma4-e2b": ("gemma4", gemma4_e2b), "lfm2-1.2b": ("lfm2", lfm2_1_2b)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("out", type=Path)
    parser.add_argument("--vocab", required=True, help="a GGUF file with a tokenizer")
    a = parser.parse_args()
    arch, build = SHAPES[a.shape]
    writer = Writer(a.out, arch)
    build(writer, a.vocab)
    writer.close()


if __name__ == "__main__":
    main()
