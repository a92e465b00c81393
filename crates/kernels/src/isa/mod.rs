//! Instruction sets: zero-sized tokens with the few operations that decoders and dot products need.
//!
//! A token is only handed out after its CPU features were detected, so its methods are safe to call. They are
//! `#[inline(always)]` and must be reached from a function of `table.rs` with the matching `#[target_feature]`.
//!
//! [`Row`] is the set for weights read row by row in the plain GGUF layout, [`Floats`] the set for sums of floats. What
//! compilers vectorise by themselves (elementwise loops) is not here: rope, softmax and the quantizer are ordinary Rust,
//! compiled once per instruction set.

pub(crate) mod scalar;

/// Operations on 32 weight codes of one row.
pub(crate) trait Row: Copy + Send + Sync + 'static {
    /// 32 bytes.
    type V: Copy;

    fn load(self, bytes: &[u8; 32]) -> Self::V;
    /// `low` in bytes 0 to 15, `high` in bytes 16 to 31.
    fn load_pair(self, low: &[u8; 16], high: &[u8; 16]) -> Self::V;
    /// Low nibbles of `bytes` in bytes 0 to 15, high nibbles in bytes 16 to 31.
    fn nibbles(self, bytes: &[u8; 16]) -> Self::V;
    /// Bit i of `bits` as byte i, 0 or 1.
    fn bits(self, bits: &[u8; 4]) -> Self::V;
    fn and(self, v: Self::V, mask: u8) -> Self::V;
    fn xor(self, v: Self::V, mask: u8) -> Self::V;
    fn or(self, a: Self::V, b: Self::V) -> Self::V;
    /// Logical shift right of each byte. `n < 8` is a constant once inlined.
    fn shr(self, v: Self::V, n: usize) -> Self::V;
    /// Shift left of each byte. `n < 8` is a constant once inlined.
    fn shl(self, v: Self::V, n: usize) -> Self::V;

    /// `(code − offset)·scale` of each code, `scale[0]` for the first 16 and `scale[1]` for the rest. The caller
    /// guarantees that the products fit i16.
    fn scaled(self, codes: Self::V, offset: i16, scale: [i16; 2], out: &mut [i16; 32]);
    /// `Σ w·x`. The caller guarantees that the sum fits i32.
    fn dot<const N: usize>(self, w: &[i16; N], x: &[i8; N]) -> i32;
    /// `Σ a·b`. The caller guarantees that the sum fits i32.
    fn dot16(self, a: &[i16; 16], b: &[i16; 16]) -> i32;
}

/// Operations on 16 floats, one for each lane of `algo/lanes.rs`. Left to itself, the compiler makes pairs of them,
/// because it starts from the tree that adds the lanes.
pub(crate) trait Floats: Copy + Send + Sync + 'static {
    /// 16 f32.
    type F: Copy;

    fn zeros(self) -> Self::F;
    fn floats(self, x: &[f32; 16]) -> Self::F;
    fn to_array(self, x: Self::F) -> [f32; 16];
    fn add(self, x: Self::F, y: Self::F) -> Self::F;
    /// The product is rounded before anything is added to it.
    fn mul(self, x: Self::F, y: Self::F) -> Self::F;
}
