//! The built-in model: a GGUF file in the executable.
//!
//! The scripts in `tools/builtin-model/home` train it.

/// A model in the executable.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// The name in messages, in place of a path.
    pub name: &'static str,
    /// A whole GGUF file. Any alignment will do: weights are read as bytes, and the blocks of a
    /// quantized tensor have odd sizes.
    pub bytes: &'static [u8],
}

/// The built-in model, which runs a house and tells stories.
#[cfg(feature = "builtin")]
pub fn builtin() -> Builtin {
    Builtin {
        name: "built-in model",
        bytes: include_bytes!("../assets/home.gguf"),
    }
}

#[cfg(all(test, feature = "builtin"))]
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
