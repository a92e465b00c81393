"""GGUF files of architectures that llama.cpp's converter does not know, with keys and names of tensors of our own."""
import gguf
import numpy as np

# Parts of the names of parameters, and what they become. Names in a layer are without its prefix.
LFM3 = {"model.embed_tokens": "token_embd", "model.embedding_norm": "token_embd_norm", "lm_head": "output",
        "operator_norm": "attn_norm", "post_operator_norm": "post_attention_norm", "ffn_norm": "ffn_norm", "post_ffn_norm": "post_ffw_norm",
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
        "self_attn.g_proj": "attn_gate", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
        "conv.conv": "shortconv.conv", "conv.in_proj": "shortconv.in_proj", "conv.out_proj": "shortconv.out_proj",
        "feed_forward.w1": "ffn_gate", "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down"}


def renamed(names, name):
    """The GGUF name of a parameter."""
    at, _, kind = name.rpartition(".")
    if not at.startswith("model.layers."):
        return f"{names[at]}.{kind}"
    _, _, l, rest = at.split(".", 3)
    return f"blk.{l}.{names[rest]}.{kind}"


def turning(rope, d_head):
    """Divisors of frequencies that let the first pairs of a head turn only, [d_head / 2]."""
    n = int(rope["partial_rotary_factor"] * d_head // 2)
    return np.array([1.0] * n + [1e30] * (d_head // 2 - n), np.float32)


def write_lfm3(path, row, model, add_vocabulary):
    c = model.config
    w = gguf.GGUFWriter(path, "lfm3")
    w.add_type("model")
    w.add_name(f"{row.name}-tiny-random")
    w.add_vocab_size(c.vocab_size)
    w.add_block_count(c.num_hidden_layers)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv([0 if kind == "conv" else c.num_key_value_heads for kind in c.layer_types])
    w.add_key_length(c.head_dim)
    w.add_value_length(c.head_dim)
    w.add_layer_norm_rms_eps(c.norm_eps)
    w.add_shortconv_l_cache(c.conv_L_cache)
    w.add_sliding_window(c.sliding_window)
    w.add_sliding_window_pattern([kind == "sliding_attention" for kind in c.layer_types])
    full, sliding = (c.rope_parameters[kind] for kind in ("full_attention", "sliding_attention"))
    w.add_rope_freq_base(full["rope_theta"])
    w.add_rope_freq_base_swa(sliding["rope_theta"])
    w.add_file_type(gguf.LlamaFileType.ALL_F32)
    add_vocabulary(w)
    if full["rope_type"] == "proportional":
        w.add_tensor("rope_freqs.weight", turning(full, c.head_dim))
    for name, p in model.named_parameters():
        p = p.detach().numpy()
        w.add_tensor(renamed(LFM3, name), np.ascontiguousarray(p[:, 0] if name.endswith("conv.conv.weight") else p))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


# By the class of transformers, without ForCausalLM.
WRITERS = {"Lfm3": write_lfm3}
