//! Loads and stores of vectors: an array and a register of the same size are the same bytes.
//!
//! It refuses to know what an instruction does with them. The one idea: sizes are compared when the
//! program is compiled, so no kernel needs a pointer to read or write its operands.

/// Types without padding: any bits are a value.
///
/// # Safety
/// All bytes of a value must be initialized, and any bytes must be a value.
pub(crate) unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($ty:ty)*) => {
        $(
            // SAFETY: a number, or a register full of numbers.
            unsafe impl Plain for $ty {}
        )*
    };
}
plain!(u8 i8 u16 i16 i32 u32 i64 u64 f32);

#[cfg(target_arch = "x86_64")]
mod registers {
    use super::Plain;
    use std::arch::x86_64::*;

    plain!(__m128 __m128i __m256 __m256i __m512 __m512i);
}

#[cfg(target_arch = "aarch64")]
mod registers {
    use super::Plain;
    use std::arch::aarch64::*;

    plain!(int8x16_t uint8x8_t uint8x16_t int16x8_t uint16x4_t int32x4_t uint32x4_t float32x4_t);
}

#[cfg(target_family = "wasm")]
mod registers {
    use super::Plain;
    use std::arch::wasm32::v128;

    plain!(v128);
}

// SAFETY: arrays have no bytes between their elements, and these are `Plain`.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// The bytes of `x` as a register, or as an array of them, of the same size.
#[inline(always)]
pub(crate) fn load<V: Plain, T: Plain>(x: &T) -> V {
    const { assert!(size_of::<V>() == size_of::<T>()) };
    let at = (&raw const *x).cast::<V>();
    // SAFETY: `x` has as many bytes as are read, at any alignment; all are initialized, and any
    // bytes are a `Plain`.
    unsafe { at.read_unaligned() }
}

/// The bytes from element `at` of `x` on as a register.
#[inline(always)]
pub(crate) fn load_at<V: Plain, T: Plain, const N: usize>(x: &[T; N], at: usize) -> V {
    assert!(at <= N && (N - at) * size_of::<T>() >= size_of::<V>());
    let at = x.as_ptr().wrapping_add(at).cast::<V>();
    // SAFETY: `x` has as many bytes from `at` on as are read, at any alignment; all are
    // initialized, and any bytes are a `Plain`.
    unsafe { at.read_unaligned() }
}

/// Writes a register, or an array of them, over the bytes of `out`, which has the same size.
#[inline(always)]
pub(crate) fn store<V: Plain, T: Plain>(v: V, out: &mut T) {
    const { assert!(size_of::<V>() == size_of::<T>()) };
    let at = (&raw mut *out).cast::<V>();
    // SAFETY: `out` has as many bytes as are written, at any alignment; any bytes are a `Plain`.
    unsafe { at.write_unaligned(v) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_keep_their_order_in_both_directions() {
        let bytes: [u8; 64] = std::array::from_fn(|i| i as u8);
        let words: [u32; 16] = load(&bytes);
        assert_eq!(words[1], u32::from_le_bytes([4, 5, 6, 7]).to_le());
        let mut back = [[0_u8; 16]; 4];
        store(words, &mut back);
        assert_eq!(back.as_flattened(), bytes);
    }

    #[test]
    fn nothing_needs_to_be_aligned() {
        let mut bytes = [0_u8; 9];
        store(u64::MAX, bytes[1..].first_chunk_mut::<8>().expect("eight"));
        assert_eq!(bytes, [0, 255, 255, 255, 255, 255, 255, 255, 255]);
        assert_eq!(
            load::<u64, _>(bytes[1..].first_chunk::<8>().expect("eight")),
            u64::MAX
        );
    }

    #[test]
    fn a_part_of_an_array_is_loaded_from_an_element_on() {
        let words: [u16; 6] = [0, 1, 2, 3, 4, 5];
        assert_eq!(load_at::<[u16; 4], _, 6>(&words, 2), [2, 3, 4, 5]);
    }

    #[test]
    #[should_panic(expected = "size_of")]
    fn a_part_that_is_not_all_in_the_array_is_refused() {
        load_at::<u64, u16, 6>(&[0; 6], std::hint::black_box(3));
    }
}
