//! NVFP4: floats of four bits, with a scale of eight bits for every 16. A file also has an f32
//! scale for the whole tensor, which multiplies its products (see [`Encoding`](crate::Encoding)).

use super::MXFP4_VALUES;
use crate::f16::f16_to_f32;

block! {
    /// 64 weights in 4 sub-blocks of 16; `y = code·d` with the codes of [`MXFP4_VALUES`] and half
    /// the number that `scales[s]` is in UE4M3 for `d`, because codes are doubled. Bytes 8·s to 8·s
    /// + 7 of `qs` are those of sub-block s: low nibbles are its weights 0 to 7, high nibbles 8 to
    /// 15.
    NVFP4, 36: { scales: 4 at 0, qs: 32 at 4, }
}

/// Half of the number that a byte is in UE4M3 (the top bit is no sign and not used), as an f16,
/// which holds all of them exactly. As in ggml, 0x7f is 0.
static HALVES: [u16; 256] = {
    let mut halves = [0; 256];
    let mut x = 0;
    while x < 256 {
        halves[x] = half_of_ue4m3(x as u8);
        x += 1;
    }
    halves
};

const fn half_of_ue4m3(x: u8) -> u16 {
    let exponent = (x >> 3 & 15) as u16;
    let mantissa = (x & 7) as u16;
    if x == 0x7f || exponent == 0 && mantissa == 0 {
        return 0;
    }
    if exponent == 0 {
        // mantissa·2^-10, which is no subnormal of f16.
        let top = mantissa.ilog2() as u16;
        return (top + 5) << 10 | (mantissa - (1 << top)) << (10 - top);
    }
    (exponent + 7) << 10 | mantissa << 7
}

impl NVFP4<'_> {
    /// The scale of sub-block `s` < 4, f16.
    #[inline(always)]
    pub fn d_bits(self, s: usize) -> u16 {
        HALVES[usize::from(self.scales()[s])]
    }

    /// The nibbles of weights 32·g to 32·g + 31, `g` < 2, in order: the lower half of each byte, of
    /// 8 in a word, little endian. The upper halves mean nothing.
    #[inline(always)]
    pub fn nibbles(self, g: usize) -> [u64; 4] {
        let qs = &self.qs().as_chunks::<8>().0[2 * g..];
        let [first, last] = [qs[0], qs[1]].map(u64::from_le_bytes);
        [first, first >> 4, last, last >> 4]
    }
}

pub(crate) fn nvfp4(block: &[u8; 36], y: &mut [f32; 64]) {
    let b = NVFP4(block);
    for (i, y) in y.iter_mut().enumerate() {
        let word = b.nibbles(i / 32)[i % 32 / 8].to_le_bytes();
        let code = MXFP4_VALUES[usize::from(word[i % 8] & 15)];
        *y = f32::from(code) * f16_to_f32(b.d_bits(i / 16));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_halves_of_floats_of_eight_bits() {
        for (x, half) in [
            (0, 0.0),
            (1, 2f32.powi(-10)),
            (7, 7.0 * 2f32.powi(-10)),
            (8, 2f32.powi(-7)),
            (0x38, 0.5),
            (0x7e, 224.0),
            (0x7f, 0.0),
            (0xff, 240.0),
        ] {
            assert_eq!(f16_to_f32(HALVES[x]), half, "{x:#x}");
        }
    }
}
