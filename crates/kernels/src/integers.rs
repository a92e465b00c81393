//! The integers and factors of quantized weights, for devices that multiply in kernels of their
//! own.
//!
//! It knows the decoders of all formats and multiplies nothing. The one idea: a device that
//! multiplies these integers exactly, and then takes the f32 steps that the documentation of this
//! crate gives, has the bits of [`Kernels::matmul`](crate::Kernels::matmul), whatever the format.

use crate::format::*;
use crate::isa::Row;
use crate::isa::scalar::Scalar;
use crate::registry::formats;
use atta_formats::TensorType;

/// 256 weights of a format without minima: `d·scale·code`.
#[derive(Clone, Debug)]
pub struct IntegerBlock {
    /// Codes less their offset.
    pub codes: [i8; 256],
    /// The scale of each 16 codes.
    pub scales: [i8; 16],
    /// The scale of the block, with the power of two that belongs to its format.
    pub d: f32,
}

/// 32 weights: `d·code + minimum`.
#[derive(Clone, Debug)]
pub struct IntegerGroup {
    /// Codes less their offset.
    pub codes: [i8; 32],
    /// The scale of the first 16 codes, and that of the last 16; equal in most formats.
    pub d: [f32; 2],
    /// The minimum; 0 in formats without minima.
    pub minimum: f32,
}

/// How the formats of groups of 32 differ in their f32 steps.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum GroupSteps {
    /// One product.
    Scale,
    /// A product, then one with the minimum.
    Minimum,
    /// A product of each 16.
    Scales,
}

macro_rules! integers {
    (
        float { $($float:ident;)* }
        quant_32 { $($quant:ident $q512:tt;)* }
        k_quant { $($k_quant:ident $k256:tt $k512:tt;)* }
    ) => {
        /// Calls `take` with the blocks of 256 of a row of weights; a shorter one at the end of the
        /// row as a whole one, with any weights behind its last. Whether the type has such blocks,
        /// and no minima: with others nothing is called.
        pub fn integer_blocks(
            ty: TensorType,
            row: &[u8],
            take: &mut dyn FnMut(IntegerBlock),
        ) -> bool {
            match ty {
                $(TensorType::$k_quant => blocks::<$k_quant>(row, take),)*
                _ => false,
            }
        }

        /// Calls `take` with the groups of 32 of a row of weights. Whether the type has such
        /// groups: with others nothing is called.
        pub fn integer_groups(
            ty: TensorType,
            row: &[u8],
            take: &mut dyn FnMut(IntegerGroup),
        ) -> bool {
            match ty {
                $(TensorType::$quant => groups::<$quant>(row, take),)*
                _ => return false,
            }
            true
        }

        /// The f32 steps of a type with groups of 32.
        pub fn group_steps(ty: TensorType) -> Option<GroupSteps> {
            match ty {
                $(TensorType::$quant => Some(steps($quant::SECOND)),)*
                _ => None,
            }
        }
    };
}
formats!(integers);

fn steps(second: Second) -> GroupSteps {
    match second {
        Second::Nothing => GroupSteps::Scale,
        Second::Minimum => GroupSteps::Minimum,
        Second::Scale => GroupSteps::Scales,
    }
}

fn blocks<F: KQuant>(row: &[u8], take: &mut dyn FnMut(IntegerBlock)) -> bool {
    if F::MINS {
        return false;
    }
    F::blocks(row)
        .iter()
        .for_each(|block| take(of_block::<F>(block)));
    if let Some(block) = F::tail(row) {
        take(of_block::<F>(&block));
    }
    true
}

fn of_block<F: KQuant>(block: &F::Block) -> IntegerBlock {
    let head = F::head(block);
    let signs = F::signs(Scalar, block);
    let mut out = IntegerBlock {
        codes: [0; 256],
        scales: [0; 16],
        d: ScaleKind::F16.widen(head.d) * F::K,
    };
    for (g, codes) in out.codes.as_chunks_mut().0.iter_mut().enumerate() {
        let v = F::biased_codes(Scalar, block, signs.as_ref(), g);
        *codes = less_offset(v, F::OFFSET);
    }
    for (s, scale) in out.scales.iter_mut().enumerate() {
        *scale = head.scale_of(s * F::GROUPS / 16) as i8;
    }
    out
}

fn groups<F: Quant32>(row: &[u8], take: &mut dyn FnMut(IntegerGroup)) {
    for block in F::blocks(row) {
        for g in 0..F::GROUPS {
            let d = F::D.widen(F::d(block, g)) * F::K;
            let second = || ScaleKind::F16.widen(F::second(block, g));
            take(IntegerGroup {
                codes: less_offset(F::codes(Scalar, block, g), F::OFFSET),
                d: match F::SECOND {
                    Second::Scale => [d, second()],
                    Second::Nothing | Second::Minimum => [d; 2],
                },
                minimum: match F::SECOND {
                    Second::Minimum => second(),
                    Second::Nothing | Second::Scale => 0.0,
                },
            });
        }
    }
}

/// Codes as signed bytes.
fn less_offset(codes: <Scalar as Row>::V, offset: i16) -> [i8; 32] {
    let mut bytes = [0; 32];
    Scalar.store(codes, &mut bytes);
    bytes.map(|code| (i16::from(code) - offset) as i8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::TYPES;
    use crate::testing::{Random, has_mins};
    use atta_formats::decode;

    /// The weights that the integers of a row make.
    fn weights(ty: TensorType, row: &[u8]) -> Vec<f32> {
        let mut out = Vec::new();
        integer_blocks(ty, row, &mut |block| {
            let codes = block.codes.as_chunks::<16>().0.iter().zip(block.scales);
            out.extend(codes.flat_map(|(codes, scale)| {
                codes.map(|c| block.d * f32::from(i16::from(scale) * i16::from(c)))
            }));
        });
        integer_groups(ty, row, &mut |group| {
            let halves = group.codes.as_chunks::<16>().0.iter().zip(group.d);
            out.extend(
                halves.flat_map(|(codes, d)| codes.map(|c| d * f32::from(c) + group.minimum)),
            );
        });
        out
    }

    #[test]
    fn the_integers_of_every_format_make_its_weights() {
        let mut random = Random(37);
        for ty in TYPES[3..].iter().copied() {
            let d = 768 + if ty.is_own() { 96 } else { 0 };
            let row = random.weights(ty, 1, d, 0.01);
            let got = weights(ty, &row);
            if has_mins(ty) && group_steps(ty).is_none() {
                assert!(got.is_empty(), "{ty}");
                continue;
            }
            let mut want = vec![0.0; d];
            decode(ty, &row, &mut want).unwrap();
            for (got, want) in got.iter().zip(&want) {
                assert!(
                    (got - want).abs() <= 1e-6 * want.abs(),
                    "{ty}: {got} {want}"
                );
            }
            assert!(got.len() >= d && got.len() < d + 256, "{ty}: {}", got.len());
        }
    }
}
