//! Codes of Q5_K and Q6_K: the bits above the nibbles are inserted by one instruction.
//!
//! It refuses to know products. The one idea: `sli` puts a vector above the low nibbles of another,
//! `sri` puts high nibbles below one, so that neither has to be masked or shifted before.

use crate::format::KQuant;
use crate::isa::Row;
use crate::isa::neon::{Dot, Neon, proven};
use crate::registry::Format;
use atta_formats::layout::{self, four_bit_group};
use std::arch::aarch64::*;

impl<D: Dot> Neon<D> {
    /// [`KQuant::codes`].
    #[inline(always)]
    pub(super) fn codes<F: KQuant>(self, block: &F::Block, g: usize) -> [uint8x16_t; 2] {
        let bytes = block.as_ref();
        match F::FORMAT {
            Format::Q5_K => self.q5_k(bytes.first_chunk().expect("a block"), g),
            Format::Q6_K => self.q6_k(bytes.first_chunk().expect("a block"), g),
            _ => F::codes(self, block, g),
        }
    }

    /// Bit `g` of the upper bits becomes bit 4.
    #[inline(always)]
    fn q5_k(self, block: &[u8; 176], g: usize) -> [uint8x16_t; 2] {
        let block = layout::Q5_K(block);
        let low = self.load(four_bit_group(block.qs(), g).0);
        let high = self.load(block.qh());
        if g.is_multiple_of(2) {
            return self.and(self.above_nibbles(low, self.shr(high, g)), 31);
        }
        let high = if g < 4 {
            self.shl(high, 4 - g)
        } else {
            self.shr(high, g - 4)
        };
        self.below(self.and(high, 16), low)
    }

    /// Bits 2·q and 2·q + 1 of the upper bits become bits 4 and 5, in quarter q of half a block.
    #[inline(always)]
    fn q6_k(self, block: &[u8; 210], g: usize) -> [uint8x16_t; 2] {
        let block = layout::Q6_K(block);
        let low = self.load_pair(block.low_group(2 * g).0, block.low_group(2 * g + 1).0);
        let high = self.load_pair(block.high_group(2 * g).0, block.high_group(2 * g + 1).0);
        match g % 4 {
            0 => self.and(self.above_nibbles(low, high), 63),
            1 => self.and(self.above_nibbles(low, self.shr(high, 2)), 63),
            2 => self.below(self.and(high, 0x30), low),
            _ => self.below(self.shr(high, 2), low),
        }
    }

    proven! {
        /// The low nibbles of `low`, and `v` above them.
        fn above_nibbles(self, low: [uint8x16_t; 2], v: [uint8x16_t; 2]) -> [uint8x16_t; 2] {
            [vsliq_n_u8::<4>(low[0], v[0]), vsliq_n_u8::<4>(low[1], v[1])]
        }
        /// The high nibbles of `v`, and of `low` below them.
        fn below(self, v: [uint8x16_t; 2], low: [uint8x16_t; 2]) -> [uint8x16_t; 2] {
            [vsriq_n_u8::<4>(v[0], low[0]), vsriq_n_u8::<4>(v[1], low[1])]
        }
    }
}
