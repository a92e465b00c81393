"""A trained model as a GGUF file and back: its tensors, and the keys that tell its shape. Knows no tokenizer."""

import gguf
import numpy as np
import torch
from model import Config, Model

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


def add_shape(w, config, f32):
    """The keys that do not depend on what the model is for."""
    w.add_license("MIT OR Apache-2.0")
    w.add_languages(["en"])
    w.add_file_type(gguf.LlamaFileType.ALL_F32 if f32 else gguf.LlamaFileType.MOSTLY_Q8_0)
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


def finish(w, weights, config, f32):
    """Matrices Q8_0 (or as they are), norms F32; then the file is complete."""
    for name, array in tensors(weights, config):
        array = np.ascontiguousarray(array, dtype=np.float32)
        if array.ndim == 1 or f32:
            w.add_tensor(name, array)
        else:
            w.add_tensor(name, gguf.quants.quantize(array, Q8_0), raw_dtype=Q8_0)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def read(path):
    """The file as a float32 torch model."""
    reader = gguf.GGUFReader(path)
    field = lambda key: reader.fields["llama." + key].contents()
    shortest = lambda x: float(str(np.float32(x)))
    config = Config(
        n_vocab=field("vocab_size"), n_ctx=field("context_length"), n_layers=field("block_count"), n_heads=field("attention.head_count"),
        n_kv_heads=field("attention.head_count_kv"), d_model=field("embedding_length"), d_ff=field("feed_forward_length"),
        rope_base=field("rope.freq_base"), norm_eps=shortest(field("attention.layer_norm_rms_epsilon")),
    )  # fmt: skip
    arrays = {t.name: gguf.quants.dequantize(t.data, t.tensor_type) for t in reader.tensors}
    weights = {"embed.weight": arrays["token_embd.weight"], "norm.weight": arrays["output_norm.weight"]}
    for l in range(config.n_layers):
        for ours, theirs in BLOCK_TENSORS.items():
            w = arrays[f"blk.{l}.{theirs}"]
            weights[f"blocks.{l}.{ours}"] = halves(w, config.d_head) if ours in ("attn.q.weight", "attn.k.weight") else w
    model = Model(config)
    model.load_state_dict({k: torch.tensor(v).float() for k, v in weights.items()})
    return model.eval()
