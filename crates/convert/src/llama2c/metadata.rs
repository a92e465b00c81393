//! GGUF metadata of a llama2.c model.

use atta_formats::Writer;

use super::{EPS, header::Sizes, rope_base};

/// The metadata of a model with these sizes, without vocabulary.
pub(super) fn metadata(sizes: &Sizes) -> Writer {
    let mut writer = Writer::new();
    writer.set_str("general.architecture", "llama");
    let counts = [
        ("llama.block_count", sizes.n_layers),
        ("llama.context_length", sizes.n_ctx),
        ("llama.embedding_length", sizes.d_model),
        ("llama.feed_forward_length", sizes.d_ff),
        ("llama.attention.head_count", sizes.n_heads),
        ("llama.attention.head_count_kv", sizes.n_kv_heads),
        ("llama.rope.dimension_count", sizes.d_head()),
        ("llama.vocab_size", sizes.n_vocab),
    ];
    // All sizes of a header are at most 2^24.
    counts
        .iter()
        .for_each(|&(key, count)| writer.set_u32(key, count as u32));
    writer.set_f32("llama.rope.freq_base", rope_base(sizes.n_vocab));
    writer.set_f32("llama.attention.layer_norm_rms_epsilon", EPS);
    writer
}
