//! The metadata of a plain file: the header's, and assumptions about what the plan leaves open.

use std::sync::Arc;

use super::{Header, Sections, wrong};
use crate::{Error, Gguf, Metadata, Writer};

/// Key of the sentences about a plain file that are assumed, for the user to read.
pub const ASSUMED_KEY: &str = "qsf.assumed";
/// Key, behind the name of the architecture, of the order of the rows of q and k.
pub const PAIRING_KEY: &str = "rope.pairing";

/// The sentences about every plain file.
const ASSUMED: [&str; 4] = [
    "RMS epsilon 1e-5",
    "rows of q and k in Hugging Face's order",
    "texts begin with the BOS token",
    "the file has no vocabulary, so only token ids mean something",
];

impl Sections {
    /// GGUF's metadata for the file. Of plain files only the architectures that the header
    /// describes whole are read: those of Llama and Mistral.
    ///
    /// # Errors
    /// [`Error::Qsf`] for another architecture, and for what it does not go with.
    pub fn metadata(&self) -> Result<Metadata, Error> {
        check_arch(&self.header)?;
        let mut writer = Writer::new();
        set_sizes(&self.header, &mut writer);
        set_tokens(&self.header, &mut writer);
        writer.set_strs(ASSUMED_KEY, &ASSUMED);
        let layout = writer.finish()?;
        let file_bytes = layout.header.len() as u64;
        Ok(Gguf::parse(Arc::new(layout.header), file_bytes)?.metadata)
    }
}

/// Refuses what the 128 bytes cannot say.
fn check_arch(header: &Header) -> Result<(), Error> {
    let arch = match header.arch() {
        Header::LLAMA | Header::MISTRAL => None,
        0 => Some("GPT-2 (there is no place for its positions)"),
        3 => Some("Phi (there is no place for its biases and its partial rope)"),
        Header::CUSTOM => Some("a custom architecture"),
        _ => Some("an unknown architecture"),
    };
    if let Some(arch) = arch {
        return wrong(
            12,
            format!("{arch} needs the extension META, which the file lacks"),
        );
    }
    for (at, what, got, expected) in [
        (49, "activation", header.activation(), Header::SILU),
        (50, "norm", header.norm(), Header::RMS),
        (51, "positions", header.positions(), Header::ROPE),
    ] {
        if got != expected {
            return wrong(
                at,
                format!("{what} {got} needs the extension META, which the file lacks"),
            );
        }
    }
    Ok(())
}

fn set_sizes(header: &Header, writer: &mut Writer) {
    writer.set_str("general.architecture", "llama");
    for (key, value) in [
        ("llama.block_count", header.n_layers()),
        ("llama.context_length", header.n_ctx()),
        ("llama.embedding_length", header.d_model()),
        ("llama.feed_forward_length", header.d_ff()),
        ("llama.attention.head_count", header.n_heads()),
        (
            "llama.attention.head_count_kv",
            header.n_kv_heads_or_heads(),
        ),
        ("llama.vocab_size", header.n_vocab()),
    ] {
        writer.set_u32(key, value);
    }
    if header.d_head() != 0 {
        for key in [
            "attention.key_length",
            "attention.value_length",
            "rope.dimension_count",
        ] {
            writer.set_u32(&format!("llama.{key}"), header.d_head());
        }
    }
    writer.set_f32("llama.rope.freq_base", header.rope_base());
    writer.set_f32("llama.attention.layer_norm_rms_epsilon", 1e-5);
    writer.set_str(&format!("llama.{PAIRING_KEY}"), "halves");
}

/// Special tokens, and names for all of them: `<17>` is token 17.
fn set_tokens(header: &Header, writer: &mut Writer) {
    let names: Vec<String> = (0..header.n_vocab()).map(|id| format!("<{id}>")).collect();
    writer.set_str("tokenizer.ggml.model", "llama");
    writer.set_strs("tokenizer.ggml.tokens", &names);
    writer.set_f32s("tokenizer.ggml.scores", &vec![0.0; names.len()]);
    for (key, id) in [
        ("bos", header.bos()),
        ("eos", header.eos()),
        ("padding", header.pad()),
    ] {
        if id < header.n_vocab() {
            writer.set_u32(&format!("tokenizer.ggml.{key}_token_id"), id);
        }
    }
}
