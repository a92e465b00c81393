//! Qwen3-VL (text, dense): a Qwen3. Its rope has three positions per token, which are the same for
//! text.

pub(super) use super::qwen3::lower;
