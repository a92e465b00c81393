//! The formats of `layout::Signed` whose codes are looked up or computed one by one: codebooks and base 3.
//!
//! The one idea: decoding is plain code, compiled once for all instruction sets and called for 32 codes at a time;
//! what is done with the codes afterwards is that of every other format. So a format is one line here.

use super::{Format, Head, KQuant};
use crate::isa::Row;
use atta_formats::layout::{self, Signed};

/// What makes codes from −62 to 62 unsigned; byte products of pairs of them cannot saturate.
const OFFSET: i8 = 64;

/// Scales of a block.
#[inline(always)]
fn head<B: Signed>(block: B) -> Head {
    let mut scale = [0; 2];
    for s in 0..B::N_SCALES {
        scale[s / 8] |= u64::from(block.scale(s) as u8) << (8 * (s % 8));
    }
    Head { scale, min: [0; 2], d: block.d_bits(), dmin: 0 }
}

/// Codes 32·g to 32·g + 31, raised by [`OFFSET`].
#[inline(always)]
fn codes(block: impl Signed, g: usize) -> [u8; 32] {
    let mut signed = [0; 32];
    block.codes(g, &mut signed);
    signed.map(|code| (code + OFFSET) as u8)
}

macro_rules! signed {
    ($($format:ident: $bytes:literal,)*) => {
        $(
            /// The format.
            pub(crate) struct $format;

            impl KQuant for $format {
                type Block = [u8; $bytes];
                const FORMAT: Format = Format::$format;
                const OFFSET: i16 = OFFSET as i16;
                const GROUPS: usize = <layout::$format<'static> as Signed>::N_SCALES;
                const MINS: bool = false;
                const K: f32 = <layout::$format<'static> as Signed>::K;

                #[inline(always)]
                fn blocks(row: &[u8]) -> &[[u8; $bytes]] {
                    row.as_chunks().0
                }

                // Not inlined: five tables of algorithms would each have several copies.
                #[inline(never)]
                fn head(block: &[u8; $bytes]) -> Head {
                    head(layout::$format(block))
                }

                #[inline(always)]
                fn codes<I: Row>(isa: I, block: &[u8; $bytes], g: usize) -> I::V {
                    #[inline(never)]
                    fn unpack(block: &[u8; $bytes], g: usize) -> [u8; 32] {
                        codes(layout::$format(block), g)
                    }
                    isa.load(&unpack(block, g))
                }
            }
        )*
    };
}

// Format, bytes of a block.
signed! {
    IQ1S: 50,
    IQ1M: 56,
    IQ2XXS: 66,
    IQ2XS: 74,
    IQ2S: 82,
    IQ3XXS: 98,
    IQ3S: 110,
    TQ1_0: 54,
}
