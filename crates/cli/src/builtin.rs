//! The model that is part of the program: a GGUF file like any other, but for where its bytes are.
//!
//! It is trained by the scripts in `models/stories`. This file knows its name and its bytes, and nothing of what they
//! say.

/// A model in the program.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// What stands in for a path in messages.
    pub name: &'static str,
    /// A whole GGUF file, aligned to 64 bytes.
    pub bytes: &'static [u8],
}

/// The story model.
pub fn builtin() -> Builtin {
    Builtin { name: "built-in model", bytes: &STORIES.0 }
}

/// Tensors are aligned within their file, so the file has to be aligned too.
#[repr(align(64))]
struct Aligned<T: ?Sized>(T);

static STORIES: &Aligned<[u8]> = &Aligned(*include_bytes!("../assets/stories.gguf"));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_model_is_an_aligned_gguf_file() {
        let Builtin { bytes, .. } = builtin();
        assert!(bytes.starts_with(b"GGUF"));
        assert_eq!(bytes.as_ptr().addr() % 64, 0);
    }
}
