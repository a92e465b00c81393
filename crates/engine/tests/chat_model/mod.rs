//! A golden model with a chat template and the tokens that it needs; for tests of this crate and of
//! the command line.

use std::{path::Path, sync::Arc};

use atta_formats::{Gguf, Writer};

/// The file `name` of `tests/golden/models`, with `template`, and with the last tokens of its
/// vocabulary replaced by `markers`, each with its kind: 3 is a control token, 4 a user-defined
/// one.
pub(crate) fn chat_model(name: &str, template: &str, markers: &[(&str, i32)]) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/golden/models")
        .join(name);
    let bytes = std::fs::read(path).unwrap();
    let gguf = Gguf::parse(Arc::new(bytes.clone()), bytes.len() as u64).unwrap();
    let mut writer = Writer::new();
    gguf.metadata
        .iter()
        .for_each(|(key, value)| writer.set_value(key, value));

    let texts = gguf
        .metadata
        .strs("tokenizer.ggml.tokens")
        .unwrap()
        .unwrap();
    let mut texts: Vec<Vec<u8>> = texts.iter().map(<[u8]>::to_vec).collect();
    let mut kinds: Vec<i32> = gguf
        .metadata
        .i32s("tokenizer.ggml.token_type")
        .unwrap()
        .unwrap()
        .iter()
        .collect();
    let first = texts.len() - markers.len();
    for (i, (marker, kind)) in markers.iter().enumerate() {
        (texts[first + i], kinds[first + i]) = (marker.as_bytes().to_vec(), *kind);
    }
    writer.set_strs("tokenizer.ggml.tokens", &texts);
    writer.set_i32s("tokenizer.ggml.token_type", &kinds);
    writer.set_str("tokenizer.chat_template", template);

    gguf.tensors
        .iter()
        .for_each(|t| writer.add_tensor(&t.name, t.shape.dims(), t.ty).unwrap());
    let layout = writer.finish().unwrap();
    let mut file = layout.header;
    for (old, new) in gguf.tensors.iter().zip(&layout.tensors) {
        file.resize(new.offset as usize, 0);
        file.extend_from_slice(&bytes[old.offset as usize..][..old.n_bytes as usize]);
    }
    file.resize(layout.file_bytes as usize, 0);
    file
}

/// The tokens of ChatML.
pub(crate) const CHATML: [(&str, i32); 2] = [("<|im_start|>", 3), ("<|im_end|>", 3)];

/// A template that writes it.
pub(crate) const CHATML_TEMPLATE: &str = "{% for m in messages %}<|im_start|>{{ m.role + '\n' + m.content }}<|im_end|>\n{% endfor %}\
                                          {% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
