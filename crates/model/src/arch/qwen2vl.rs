//! Qwen2-VL and Qwen2.5-VL (text): a Qwen2. Its rope has three positions per token, which are the
//! same for text.

pub(super) use super::qwen2::lower;
