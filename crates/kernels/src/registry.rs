//! The registry of block formats: one row for each format that can be multiplied.
//!
//! Everything that exists once per format follows from it: the entries of every table of functions,
//! the dispatch to fused kernels, the formats that AMX multiplies, and the formats that tests try.
//! What the blocks hold is in `atta_formats::layout`, their decoders are in `format/`.

use crate::Layouts;
use atta_formats::TensorType;

/// Calls `$callback!` with the arguments in braces, if there are any, and the rows of all families;
/// those of `$qsf`, the blocks of QSF files, are among them.
/// A row is the name of a type and in brackets its fused kernels for one activation row: of
/// K-quants first the one for 256-bit registers; then the one for 512-bit registers, with the order
/// in which `avx512seq` reads the weights: `linear` if memory bounds the kernel, else `strided`.
macro_rules! rows {
    ($callback:ident ($($args:tt)?) $($qsf:ident)*) => { $callback! { $($args)?
        float {
            F32;
            F16;
            BF16;
        }
        quant_32 {
            Q4_0     [q4_0 linear];
            Q4_1     [];
            Q5_0     [q5_0 linear];
            Q5_1     [];
            Q8_0     [q8_0 linear];
            IQ4_NL   [iq4_nl linear];
            MXFP4    [mxfp4 linear];
            NVFP4    [];
            Q1_0     [];
            Q2_0     [];
            $($qsf   [];)*
        }
        k_quant {
            Q2_K     []           [q2_k linear];
            Q3_K     []           [];
            Q4_K     [nibbles_k]  [nibbles_k linear];
            Q5_K     [nibbles_k]  [nibbles_k linear];
            Q6_K     [q6_k]       [q6_k linear];
            IQ1_S    [codebook]   [];
            IQ1_M    [codebook]   [];
            IQ2_XXS  [codebook]   [codebook strided];
            IQ2_XS   [codebook]   [codebook strided];
            IQ2_S    [codebook]   [];
            IQ3_XXS  [codebook]   [codebook strided];
            IQ3_S    [codebook]   [codebook strided];
            IQ4_XS   []           [iq4_xs linear];
            TQ1_0    []           [tq1_0 strided];
            TQ2_0    []           [];
            T2       [trellis]    [trellis linear];
            T3       [trellis]    [trellis linear];
            T4       [trellis]    [trellis linear];
        }
    } };
}
pub(crate) use rows;

/// Calls `$callback!` with the rows of all formats, see [`rows`].
#[cfg(feature = "qsf")]
macro_rules! formats {
    ($callback:ident $($args:tt)?) => {
        $crate::registry::rows! { $callback ($($args)?) QSF2S QSF2 QSF3 QSF4 QSFT }
    };
}

/// Calls `$callback!` with the rows of all formats but those of QSF files, see [`rows`].
#[cfg(not(feature = "qsf"))]
macro_rules! formats {
    ($callback:ident $($args:tt)?) => {
        $crate::registry::rows! { $callback ($($args)?) }
    };
}
pub(crate) use formats;

macro_rules! format {
    (
        float { $($float:ident;)* }
        quant_32 { $($quant:ident $q512:tt;)* }
        k_quant { $($k_quant:ident $k256:tt $k512:tt;)* }
    ) => {
        /// The formats with a kernel; indexes the row tile functions of a table.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[allow(
            non_camel_case_types,
            clippy::upper_case_acronyms,
            reason = "formats have the names of their types"
        )]
        pub(crate) enum Format { $($float,)* $($quant,)* $($k_quant,)* }

        impl Format {
            /// All formats.
            pub(crate) const ALL: &[Self] =
                &[$(Self::$float,)* $(Self::$quant,)* $(Self::$k_quant,)*];

            pub(crate) fn of(ty: TensorType) -> Option<Self> {
                match ty {
                    $(TensorType::$float => Some(Self::$float),)*
                    $(TensorType::$quant => Some(Self::$quant),)*
                    $(TensorType::$k_quant => Some(Self::$k_quant),)*
                    _ => None,
                }
            }

            /// The layout of activations that weights are multiplied with.
            pub(crate) fn layout(self) -> Layouts {
                match self {
                    $(Self::$float => Layouts::F32,)*
                    $(Self::$quant => Layouts::Q8_32,)*
                    $(Self::$k_quant => Layouts::Q8_256,)*
                }
            }
        }

        /// The types of the formats, those of floats first.
        #[cfg(test)]
        pub(crate) const TYPES: [TensorType; Format::ALL.len()] = [
            $(TensorType::$float,)* $(TensorType::$quant,)* $(TensorType::$k_quant,)*
        ];
    };
}
formats!(format);
