//! Conversions between f32 and the two 16-bit floats of model files. Round to nearest, ties to
//! even.

/// IEEE binary16 bits to f32. Exact; a NaN keeps its payload and becomes quiet.
#[inline]
pub fn f16_to_f32(h: u16) -> f32 {
    let sign = u32::from(h & 0x8000) << 16;
    let exponent = u32::from(h >> 10) & 0x1f;
    let fraction = u32::from(h) & 0x3ff;
    let magnitude = match (exponent, fraction) {
        // Subnormal: fraction · 2^-24 is exact in f32.
        (0, _) => (fraction as f32 * f32::from_bits(0x3380_0000)).to_bits(),
        (31, 0) => 0x7f80_0000,
        (31, _) => 0x7fc0_0000 | fraction << 13,
        _ => (exponent + 112) << 23 | fraction << 13,
    };
    f32::from_bits(sign | magnitude)
}

/// f32 to IEEE binary16 bits. Values that are too large become infinite, NaN the quiet NaN of its
/// sign.
#[inline]
pub fn f32_to_f16(x: f32) -> u16 {
    let sign = ((x.to_bits() >> 16) & 0x8000) as u16;
    let bits = x.to_bits() & 0x7fff_ffff;
    sign | match bits {
        0x7f80_0001.. => 0x7e00,
        // From 65536 up.
        0x4780_0000.. => 0x7c00,
        // Normal in f16: rebias the exponent and let the rounding carry into it, and from 65520
        // into infinity.
        0x3880_0000.. => {
            let odd = (bits >> 13) & 1;
            ((bits - 0x3800_0000 + 0x0fff + odd) >> 13) as u16
        }
        // Subnormal: adding 0.5 makes the f32 unit round at 2^-24, the f16 subnormal unit.
        _ => ((f32::from_bits(bits) + 0.5).to_bits() - 0x3f00_0000) as u16,
    }
}

/// bfloat16 bits to f32. Exact.
#[inline]
pub fn bf16_to_f32(h: u16) -> f32 {
    f32::from_bits(u32::from(h) << 16)
}

/// f32 to bfloat16 bits. A NaN stays a NaN and becomes quiet.
#[inline]
pub fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    if x.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    let odd = (bits >> 16) & 1;
    ((bits + 0x7fff + odd) >> 16) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_survives_the_way_through_f32() {
        for h in 0..=u16::MAX {
            let x = f16_to_f32(h);
            if x.is_nan() {
                assert_eq!(f32_to_f16(x), (h & 0x8000) | 0x7e00);
            } else {
                assert_eq!(f32_to_f16(x), h);
            }
        }
    }

    #[test]
    fn f16_rounds_halfway_cases_to_even() {
        for h in 0..0x7bffu16 {
            let low = f16_to_f32(h);
            let high = f16_to_f32(h + 1);
            let middle = (low + high) / 2.0;
            let even = h + (h & 1);
            assert_eq!(f32_to_f16(middle), even, "{h:#x}");
            assert_eq!(f32_to_f16(middle.next_down()), h, "{h:#x}");
            assert_eq!(f32_to_f16(middle.next_up()), h + 1, "{h:#x}");
            assert_eq!(f32_to_f16(-middle), even | 0x8000, "{h:#x}");
        }
    }

    #[test]
    fn f16_overflows_from_65520() {
        assert_eq!(f32_to_f16(65520.0f32.next_down()), 0x7bff);
        assert_eq!(f32_to_f16(65520.0), 0x7c00);
        assert_eq!(f32_to_f16(f32::MAX), 0x7c00);
        assert_eq!(f32_to_f16(f32::NEG_INFINITY), 0xfc00);
    }

    #[test]
    fn bf16_rounds_to_even_and_keeps_nan() {
        assert_eq!(f32_to_bf16(f32::from_bits(0x3f80_8000)), 0x3f80);
        assert_eq!(f32_to_bf16(f32::from_bits(0x3f81_8000)), 0x3f82);
        assert_eq!(f32_to_bf16(f32::from_bits(0x3f80_8001)), 0x3f81);
        assert_eq!(f32_to_bf16(f32::MAX), 0x7f80);
        assert!(bf16_to_f32(f32_to_bf16(f32::from_bits(0x7f80_0001))).is_nan());
    }
}
