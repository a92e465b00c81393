//! The model that is part of the program: a GGUF file like any other, but for where its bytes are.
//!
//! It is trained by the scripts in `tools/builtin-model/home`. This file knows its name and its
//! bytes, and nothing of what they say.

/// A model in the program.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// What stands in for a path in messages.
    pub name: &'static str,
    /// A whole GGUF file. It may lie at any address: weights are read as bytes, and the blocks of
    /// a quantized tensor have odd sizes anyway.
    pub bytes: &'static [u8],
}

/// The model that runs a house and tells stories.
pub fn builtin() -> Builtin {
    Builtin {
        name: "built-in model",
        bytes: include_bytes!("../assets/home.gguf"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, LoadOptions, SessionOptions};

    fn logits(bytes: &'static [u8]) -> Vec<f32> {
        let engine = Engine::from_static("built-in model", bytes, &LoadOptions::default()).unwrap();
        let mut session = engine
            .session(&SessionOptions {
                n_ctx: Some(16),
                ..SessionOptions::default()
            })
            .unwrap();
        session
            .append(&engine.prompt_ids(b"Once upon a time"))
            .unwrap();
        session.logits().unwrap().to_vec()
    }

    #[test]
    fn the_built_in_model_may_lie_at_any_address() {
        let Builtin { bytes, .. } = builtin();
        let expected = logits(bytes);
        for skip in 1..4 {
            let shifted: &'static [u8] = [&vec![0; skip], bytes].concat().leak();
            assert_eq!(logits(&shifted[skip..]), expected, "{skip}");
        }
    }
}
