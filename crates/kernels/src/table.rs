//! The table of functions of an instruction set: the algorithms, compiled under its target
//! features.
//!
//! `entry!` makes `#[target_feature]` functions of them, which alone call those in `isa/`. They are
//! `unsafe` to call because the CPU must have the features; [`detect`] and [`named`] hand out a
//! table only after asking the CPU, which is what makes the safe methods of [`Kernels`] at the end
//! of this file sound.

use crate::activations::{self, QuantRow, Sums};
use crate::algo::attention::{AttnBuffers, AttnOut, Query};
use crate::algo::gate::Activation;
use crate::algo::matmul::{MatMul, RowTile};
use crate::algo::scan::{ScanPart, scan};
use crate::algo::{attention, gate, hadamard, kv, lanes, measure, norm, quantize, rope, streams};
use crate::format::*;
use crate::isa::scalar::Scalar;
use crate::kernels::Input;
use crate::registry::{Format, formats};
use crate::tiles::Strip;
use crate::{D_HEAD_MAX, Error, Kernels, KvRows, Matrix, RopePairing};

type RowTileFn = unsafe fn(RowTile<'_>);

type Row256<'a> = QuantRow<'a, f32, Sums>;
type Row32<'a> = QuantRow<'a, [f32; 8], [i16; 8]>;
/// Weight of a layer norm, and its bias if it has one.
type Affine<'a> = (&'a [f32], Option<&'a [f32]>);
/// A score of each head that has no value, if heads have one.
type Sinks<'a> = Option<&'a [f32]>;

/// The functions of one instruction set.
pub(crate) struct Table {
    pub(crate) name: &'static str,
    /// Whether the operating system allows this instruction set. Called only for the table that
    /// would be used, because requesting AMX tile state has side effects.
    granted: fn() -> bool,
    /// Weight rows of a full row tile.
    pub(crate) tile_rows: usize,
    /// Indexed by [`Format`].
    row_tiles: [RowTileFn; Format::ALL.len()],
    quantize_256: unsafe fn(&[f32], Row256<'_>),
    quantize_32: unsafe fn(&[f32], Row32<'_>),
    attend: unsafe fn(&Query<'_>, &mut AttnBuffers<'_>, AttnOut<'_, '_>),
    merge_chunks: unsafe fn(&[f32], Sinks<'_>, usize, &mut [f32]),
    gate: unsafe fn(Activation, &mut [f32], &[f32]),
    activate: unsafe fn(Activation, &mut [f32]),
    rms_norm: unsafe fn(&[f32], &[f32], f32, &mut [f32]),
    rms_norm_inplace: unsafe fn(&mut [f32], &[f32], f32),
    layer_norm: unsafe fn(&[f32], Affine<'_>, f32, &mut [f32]),
    rope: unsafe fn(&mut [f32], &[f32], RopePairing),
    l2_norm_inplace: unsafe fn(&mut [f32], f32, f32),
    add_assign: unsafe fn(&mut [f32], &[f32]),
    add_products: unsafe fn(&mut [f32], &[f32], &[f32]),
    add_scaled: unsafe fn(&mut [f32], f32, &[f32]),
    sum_scaled: unsafe fn(&mut [f32], &[f32], f32),
    dot: unsafe fn(&[f32], &[f32], &mut f32),
    mix: unsafe fn(&mut [f32], &[f32], usize),
    keep_large: unsafe fn(&mut [f32], f32),
    scan_part: unsafe fn(&ScanPart<'_>, &mut [f32], &mut Strip<'_>),
    store_kv: unsafe fn(&[f32], KvRows, usize, &mut [u8]),
    hadamard: unsafe fn(&mut [f32]),
    dots: unsafe fn(usize, &mut u64),
    read: unsafe fn(&[u8], (usize, usize)),
}

/// A function of the table: an algorithm inlined under the target features, if there are any.
macro_rules! entry {
    ([$($feature:literal)?] $name:ident ($($arg:ident: $ty:ty),*) $body:expr) => {
        $(#[target_feature(enable = $feature)])?
        unsafe fn $name($($arg: $ty),*) {
            $body
        }
    };
}

/// A row tile function of an instruction set.
macro_rules! row_tile {
    ($isa:expr, $features:tt, $method:ident::<$format:ident>) => {{
        entry!($features row_tile(row_tile: RowTile<'_>) $isa.$method::<$format>(row_tile));
        row_tile as RowTileFn
    }};
}

/// The row tile functions of an instruction set, in the order of [`Format`]; those of float weights
/// are `own`, or those of the table that is named.
macro_rules! row_tiles {
    ($isa:expr, $features:tt, $floats:tt) => {
        formats!(row_tiles_of {
            $isa,
            $features,
            $floats
        })
    };
}

macro_rules! row_tiles_of {
    (
        { $isa:expr, $features:tt, $floats:tt }
        float { $($float:ident;)* }
        quant_32 { $($quant:ident $q512:tt;)* }
        k_quant { $($k_quant:ident $k256:tt $k512:tt;)* }
    ) => {
        [
            $(float_row_tile!($isa, $features, $floats, $float),)*
            $(row_tile!($isa, $features, quant_32::<$quant>),)*
            $(row_tile!($isa, $features, k_quant::<$k_quant>),)*
        ]
    };
}

macro_rules! float_row_tile {
    ($isa:expr, $features:tt, own, $format:ident) => {
        row_tile!($isa, $features, float::<$format>)
    };
    ($isa:expr, $features:tt, $table:ident, $format:ident) => {
        $table.row_tiles[Format::$format as usize]
    };
}

/// The table `$table` of an instruction set, from its token and the features that the token proves.
macro_rules! table {
    ($table:ident, $name:literal, $tile_rows:literal, $isa:expr, $features:tt) => {
        pub(crate) static $table: Table = {
            entry!($features quantize_256(x: &[f32], out: Row256<'_>) {
                let (mut codes, (mut scales, mut sums)) = out;
                activations::for_each_block(x, |b, x| {
                    quantize::block_256($isa, x, codes.block(b), scales.block(b), sums.block(b))
                })
            });
            entry!($features quantize_32(x: &[f32], out: Row32<'_>) {
                let (mut codes, (mut scales, mut sums)) = out;
                activations::for_each_block(x, |b, x| {
                    quantize::block_32($isa, x, codes.block(b), scales.block(b), sums.block(b))
                })
            });
    entry!($features attend(query: &Query<'_>, buffers: &mut AttnBuffers<'_>, out: AttnOut<'_, '_>)
                attention::attend($isa, query, buffers, out));
    entry!($features merge_chunks(partials: &[f32], sinks: Sinks<'_>, d_head: usize, out: &mut [f32])
                attention::merge_chunks(partials, sinks, d_head, out));
    entry!($features gate_up(activation: Activation, gate: &mut [f32], up: &[f32])
                gate::gate(activation, gate, up));
    entry!($features act(activation: Activation, x: &mut [f32]) gate::activate(activation, x));
    entry!($features rms_norm(x: &[f32], weight: &[f32], eps: f32, out: &mut [f32])
                norm::rms_norm($isa, x, weight, eps, out));
    entry!($features rms_norm_inplace(x: &mut [f32], weight: &[f32], eps: f32)
                norm::rms_norm_inplace($isa, x, weight, eps));
    entry!($features layer_norm(x: &[f32], affine: Affine<'_>, eps: f32, out: &mut [f32])
                norm::layer_norm($isa, x, affine, eps, out));
    entry!($features rotate(x: &mut [f32], cos_sin: &[f32], pairing: RopePairing)
                rope::rope(x, cos_sin, pairing));
    entry!($features l2_norm_inplace(x: &mut [f32], eps: f32, scale: f32)
                norm::l2_norm_inplace($isa, x, eps, scale));
    entry!($features add_assign(out: &mut [f32], x: &[f32]) norm::add_assign(out, x));
    entry!($features add_products(out: &mut [f32], x: &[f32], w: &[f32])
                norm::add_products(out, x, w));
    entry!($features add_scaled(out: &mut [f32], factor: f32, x: &[f32])
                norm::add_scaled(out, factor, x));
    entry!($features sum_scaled(y: &mut [f32], x: &[f32], f: f32) norm::sum_scaled(y, x, f));
    entry!($features dot(a: &[f32], b: &[f32], y: &mut f32) *y = lanes::dot($isa, a, b));
    entry!($features mix(x: &mut [f32], coefs: &[f32], n: usize) streams::mix(x, coefs, n));
    entry!($features keep_large(x: &mut [f32], k: f32) gate::keep_large($isa, x, k));
    entry!($features scan_part(part: &ScanPart<'_>, after: &mut [f32], out: &mut Strip<'_>)
                scan($isa, part, after, out));
    entry!($features store(x: &[f32], rows: KvRows, i: usize, block: &mut [u8])
                kv::store($isa, x, rows, i, block));
    entry!($features hadamard(x: &mut [f32]) hadamard::rotate($isa, x));
    entry!($features dot_loop(rounds: usize, macs: &mut u64) *macs = $isa.dots(rounds));
            entry!($features read_loop(bytes: &[u8], way: (usize, usize)) match way {
                (1, ahead) => measure::read::<_, 1>($isa, bytes, ahead),
                (_, ahead) => measure::read::<_, 4>($isa, bytes, ahead),
            });
            Table {
                name: $name,
                granted: || true,
                tile_rows: $tile_rows,
                row_tiles: row_tiles!($isa, $features, own),
                quantize_256,
                quantize_32,
                attend,
                merge_chunks,
                gate: gate_up,
                activate: act,
                rms_norm,
                rms_norm_inplace,
                layer_norm,
                rope: rotate,
                l2_norm_inplace,
                add_assign,
                add_products,
                add_scaled,
                sum_scaled,
                dot,
                mix,
                keep_large,
                scan_part,
                store_kv: store,
                hadamard,
                dots: dot_loop,
                read: read_loop,
            }
        };
    };
}

/// The table of an instruction set that adds byte products to that of `$base`, and shares
/// everything else with it.
#[cfg(any(
    all(target_arch = "x86_64", feature = "avx512"),
    target_arch = "aarch64",
    all(target_arch = "arm", target_os = "linux")
))]
macro_rules! table_with_products {
    ($table:ident, $name:literal, $isa:expr, $features:tt, $base:ident) => {
        static $table: Table = {
    entry!($features dot_loop(rounds: usize, macs: &mut u64) *macs = $isa.dots(rounds));
            Table {
                name: $name,
                row_tiles: row_tiles!($isa, $features, $base),
                dots: dot_loop,
                ..$base
            }
        };
    };
}

/// As `table_with_products!`, in programs for boards only for the formats that most files have:
/// space is short there, and other formats cost more to unpack anyway.
#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    feature = "avx512"
))]
macro_rules! products {
    ($($args:tt)*) => { table_with_products!($($args)*); };
}

#[cfg(all(
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(feature = "avx512")
))]
macro_rules! products {
    ($table:ident, $name:literal, $isa:expr, $features:tt, $base:ident) => {
        static $table: Table = {
            let mut row_tiles = $base.row_tiles;
            row_tiles[Format::Q4_0 as usize] = row_tile!($isa, $features, quant_32::<Q4_0>);
            row_tiles[Format::Q8_0 as usize] = row_tile!($isa, $features, quant_32::<Q8_0>);
            row_tiles[Format::Q4_K as usize] = row_tile!($isa, $features, k_quant::<Q4_K>);
            row_tiles[Format::Q5_K as usize] = row_tile!($isa, $features, k_quant::<Q5_K>);
            row_tiles[Format::Q6_K as usize] = row_tile!($isa, $features, k_quant::<Q6_K>);
            Table {
                name: $name,
                row_tiles,
                ..$base
            }
        };
    };
}

table!(SCALAR, "scalar", 16, Scalar, []);

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::*;
    use crate::isa::avx2::{Avx2, AvxVnni};

    table!(
        AVX2,
        "avx2",
        16,
        // SAFETY: the functions of this table are only called after `tables` found the features.
        unsafe { Avx2::assume() },
        ["avx2,fma,f16c"]
    );
    products!(
        AVX_VNNI,
        "avxvnni",
        // SAFETY: as above.
        unsafe { AvxVnni::assume() },
        ["avx2,fma,f16c,avxvnni"],
        AVX2
    );
    // Not for boards, whose programs must stay small: the plain functions are about as fast.
    #[cfg(feature = "avx512")]
    table_with_products!(SSE41, "sse41", Scalar, ["ssse3,sse4.1"], SCALAR);

    pub(super) fn has_avx2() -> bool {
        is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c")
    }

    /// The tables of this CPU, best first.
    pub(super) fn tables() -> [Option<&'static Table>; 3] {
        let avx2 = has_avx2();
        let avx_vnni = avx2 && is_x86_feature_detected!("avxvnni");
        [
            avx_vnni.then_some(&AVX_VNNI),
            avx2.then_some(&AVX2),
            sse41(),
        ]
    }

    #[cfg(feature = "avx512")]
    fn sse41() -> Option<&'static Table> {
        let sse41 = is_x86_feature_detected!("ssse3") && is_x86_feature_detected!("sse4.1");
        sse41.then_some(&SSE41)
    }

    #[cfg(not(feature = "avx512"))]
    fn sse41() -> Option<&'static Table> {
        None
    }
}

/// The tables that the feature `avx512` is about.
#[cfg(all(target_arch = "x86_64", feature = "avx512"))]
mod wide {
    use super::*;
    use crate::algo::tile;
    use crate::fused::x86_512::{self, Linear};
    use crate::isa::amx::{self, Amx};
    use crate::isa::avx512::Avx512;

    table!(
        AVX512,
        "avx512",
        64,
        // SAFETY: the functions of this table are only called after `tables` found the features.
        unsafe { Avx512::assume() },
        ["avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"]
    );
    /// As [`AVX512`], but for many rows on tiles.
    macro_rules! tiled {
        ($format:ident, $row_tile:expr) => {{
            entry!(["avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"] row_tile(row_tile: RowTile<'_>) {
                if row_tile.rows.len() < TILED {
                    // SAFETY: the caller has seen the features of both tables.
                    return unsafe { AVX512.row_tiles[Format::$format as usize](row_tile) };
                }
                // SAFETY: the functions of this table are only called after `tables` found the
                // features.
                $row_tile(unsafe { Amx::assume() }, row_tile)
            });
            row_tile as RowTileFn
        }};
    }

    macro_rules! tiles_of {
        (
            float { $($float:ident;)* }
            quant_32 { $($quant:ident $q512:tt;)* }
            k_quant { $($k_quant:ident $k256:tt $k512:tt;)* }
        ) => {
            [
                $(AVX512.row_tiles[Format::$float as usize],)*
                // Tiles multiply 32 weights at once, too many where 16 have a scale.
                $(if matches!(<$quant as Quant32>::SECOND, Second::Scale) {
                    AVX512.row_tiles[Format::$quant as usize]
                } else {
                    tiled!($quant, tile::quant_32::<$quant>)
                },)*
                $(tiled!($k_quant, tile::k_quant::<$k_quant>),)*
            ]
        };
    }

    static AMX: Table = Table {
        name: "amx",
        granted: amx::granted,
        row_tiles: formats!(tiles_of),
        dots: {
            unsafe fn dots(rounds: usize, macs: &mut u64) {
                // SAFETY: as above.
                *macs = measure::dots_of_tiles(unsafe { Amx::assume() }, rounds);
            }
            dots
        },
        ..AVX512
    };

    /// The row tile function of a format in the order that its row of the registry names.
    macro_rules! in_order {
        (strided, $method:ident::<$format:ident>) => {
            AVX512.row_tiles[Format::$format as usize]
        };
        (linear, $method:ident::<$format:ident>) => {{
            entry!(["avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"] row_tile(row_tile: RowTile<'_>) {
                if row_tile.rows.len() > 1 {
                    // SAFETY: both tables need the same features.
                    return unsafe { AVX512.row_tiles[Format::$format as usize](row_tile) };
                }
                // SAFETY: the functions of this table are only called after `tables` found the
                // features.
                x86_512::$method::<$format, Linear>(unsafe { Avx512::assume() }, row_tile)
            });
            row_tile as RowTileFn
        }};
    }

    macro_rules! linear_row_tiles {
        (
            float { $($float:ident;)* }
            quant_32 { $($quant:ident [$($q_kernel:ident $q_order:ident)?];)* }
            k_quant { $($k_quant:ident $k256:tt [$($k_kernel:ident $k_order:ident)?];)* }
        ) => {{
            let mut row_tiles = AVX512.row_tiles;
            $(row_tiles[Format::$float as usize] = in_order!(linear, float_in::<$float>);)*
            $($(row_tiles[Format::$quant as usize] = in_order!($q_order, quant_32_in::<$quant>);)?)*
            $($(row_tiles[Format::$k_quant as usize] = in_order!($k_order, k_quant_in::<$k_quant>);)?)*
            row_tiles
        }};
    }

    /// As [`AVX512`], but for the order in which the weights for one activation row are read.
    static AVX512_SEQ: Table = Table {
        name: "avx512seq",
        row_tiles: formats!(linear_row_tiles),
        ..AVX512
    };

    /// Whether a core reads one stream of weights faster than four: those of AMD from family 1Ah
    /// on, which is Zen 5. Measured on a server's Zen 5 (faster), and in an earlier form on
    /// Sapphire Rapids (slower): `docs/performance.md`.
    fn prefers_sequence() -> bool {
        use std::arch::x86_64::__cpuid;
        let vendor = __cpuid(0);
        let vendor = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes);
        vendor.as_flattened() == b"AuthenticAMD" && family(__cpuid(1).eax) >= 0x1a
    }

    /// The family of a processor of AMD from its signature, `eax` of leaf 1.
    fn family(signature: u32) -> u32 {
        let (base, extended) = (signature >> 8 & 0xf, signature >> 20 & 0xff);
        if base == 0xf { base + extended } else { base }
    }

    /// Activation rows from which on tiles are faster than vectors: they need more preparation.
    /// Measured on Sapphire Rapids, Q4_K, GMAC/s of vectors and tiles at 16, 32, 64 and 512
    /// rows: 143 and 91, 155 and 155, 184 and 238, 211 and 394.
    const TILED: usize = 32;

    /// The tables of this CPU, best first; of the first one, only the features it shares with the
    /// second are certain.
    pub(super) fn tables() -> [Option<&'static Table>; 3] {
        let avx512 = x86::has_avx2()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vnni");
        let [first, second] = if avx512 && prefers_sequence() {
            [&AVX512_SEQ, &AVX512]
        } else {
            [&AVX512, &AVX512_SEQ]
        };
        [&AMX, first, second].map(|table| avx512.then_some(table))
    }

    #[cfg(test)]
    mod tests {
        #[test]
        fn families_are_as_amd_says() {
            // Zen 5 (Turin), Zen 4 (Genoa), Zen 2 (Rome), and a K7, which has no extended family.
            let signatures = [0x00b0_0f21, 0x00a1_0f11, 0x0083_0f10, 0x0000_0662];
            assert_eq!(signatures.map(super::family), [0x1a, 0x19, 0x17, 0x6]);
        }
    }
}

#[cfg(target_arch = "aarch64")]
mod arm {
    use super::*;
    use crate::isa::dotprod::SDot;
    use crate::isa::i8mm::UsDot;
    use crate::isa::mull::Mull;
    use crate::isa::neon::Neon;
    use std::arch::is_aarch64_feature_detected;

    table!(
        NEON,
        "neon",
        16,
        // SAFETY: the functions of this table are only called after `tables` found the features.
        Neon(unsafe { Mull::assume() }),
        ["neon"]
    );
    table_with_products!(
        DOTPROD,
        "dotprod",
        // SAFETY: as above.
        Neon(unsafe { SDot::assume() }),
        ["neon,dotprod"],
        NEON
    );
    products!(
        I8MM,
        "i8mm",
        // SAFETY: as above.
        Neon(unsafe { UsDot::assume() }),
        ["neon,dotprod,i8mm"],
        DOTPROD
    );

    /// The tables of this CPU, best first.
    pub(super) fn tables() -> [Option<&'static Table>; 3] {
        let neon = is_aarch64_feature_detected!("neon");
        let (dotprod, i8mm) = (
            is_aarch64_feature_detected!("dotprod"),
            is_aarch64_feature_detected!("i8mm"),
        );
        [
            (neon && dotprod && i8mm).then_some(&I8MM),
            (neon && dotprod).then_some(&DOTPROD),
            neon.then_some(&NEON),
        ]
    }
}

#[cfg(all(target_arch = "arm", target_os = "linux"))]
mod armv7;
#[cfg(target_arch = "riscv64")]
mod riscv;
#[cfg(all(target_family = "wasm", target_feature = "simd128"))]
mod wasm;

/// The tables that this CPU can run if they are granted, best first.
fn offered() -> impl Iterator<Item = &'static Table> {
    #[cfg(all(target_arch = "x86_64", feature = "avx512"))]
    let native = wide::tables().into_iter().chain(x86::tables());
    #[cfg(all(target_arch = "x86_64", not(feature = "avx512")))]
    let native = x86::tables();
    #[cfg(target_arch = "aarch64")]
    let native = arm::tables();
    #[cfg(all(target_arch = "arm", target_os = "linux"))]
    let native = armv7::tables();
    #[cfg(all(target_family = "wasm", target_feature = "simd128"))]
    let native = wasm::tables();
    #[cfg(target_arch = "riscv64")]
    let native = riscv::tables();
    #[cfg(not(any(
        target_arch = "x86_64",
        target_arch = "aarch64",
        target_arch = "riscv64",
        all(target_arch = "arm", target_os = "linux"),
        all(target_family = "wasm", target_feature = "simd128")
    )))]
    let native: [Option<&'static Table>; 0] = [];
    native.into_iter().flatten().chain([&SCALAR])
}

pub(crate) fn detect() -> &'static Table {
    offered()
        .find(|table| (table.granted)())
        .expect("every CPU offers scalar")
}

pub(crate) fn named(name: &str) -> Result<&'static Table, Error> {
    if cfg!(all(target_arch = "x86_64", not(feature = "avx512")))
        && ["amx", "avx512", "avx512seq", "sse41"].contains(&name)
    {
        return Err(Error::LeftOutIsa {
            name: name.to_owned(),
            feature: "avx512",
        });
    }
    offered()
        .find(|table| table.name == name && (table.granted)())
        .ok_or_else(|| Error::UnknownIsa {
            name: name.to_owned(),
            offered: names().join(", "),
        })
}

pub(crate) fn names() -> Vec<&'static str> {
    offered()
        .filter(|table| (table.granted)())
        .map(|table| table.name)
        .collect()
}

/// A safe method of [`Kernels`] for a function of the table.
macro_rules! safe {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*);)*) => {
        impl Kernels {
            $($(#[$doc])*
            #[inline]
            pub(crate) fn $name(self, $($arg: $ty),*) {
                // SAFETY: `Kernels` only holds tables from `detect` and `named`, whose features
                // this CPU has. The functions have no other obligation.
                unsafe { (self.table().$name)($($arg),*) }
            })*
        }
    };
}

safe! {
    quantize_256(x: &[f32], out: Row256<'_>);
    quantize_32(x: &[f32], out: Row32<'_>);
    attend(query: &Query<'_>, buffers: &mut AttnBuffers<'_>, out: AttnOut<'_, '_>);
    merge_chunks(partials: &[f32], sinks: Sinks<'_>, d_head: usize, out: &mut [f32]);
    sum_scaled(out: &mut [f32], x: &[f32], factor: f32);
    add_scaled(out: &mut [f32], factor: f32, x: &[f32]);
    dot(a: &[f32], b: &[f32], sum: &mut f32);
    mix(streams: &mut [f32], coefs: &[f32], n: usize);
    keep_large(x: &mut [f32], deviations: f32);
    gate(activation: Activation, gate: &mut [f32], up: &[f32]);
    scan_part(part: &ScanPart<'_>, after: &mut [f32], out: &mut Strip<'_>);
    /// See `algo/hadamard.rs`.
    hadamard(x: &mut [f32]);
}

impl Kernels {
    /// See `algo/measure.rs`.
    pub(crate) fn dots(self, rounds: usize) -> u64 {
        let mut macs = 0;
        // SAFETY: as above.
        unsafe { (self.table().dots)(rounds, &mut macs) };
        macs
    }

    /// Reads `bytes` in one of `measure::WAYS`.
    pub(crate) fn read(self, bytes: &[u8], way: (usize, usize)) {
        // SAFETY: as above.
        unsafe { (self.table().read)(bytes, way) }
    }

    /// `acc[t][r] = w[r] · x[t]`, `acc` is `[rows.len(), row tile]`; columns behind `w.d_out()`
    /// mean nothing.
    pub(crate) fn row_tile(self, w: Matrix<'_>, input: Input<'_>, acc: &mut [f32]) {
        let Input {
            x,
            rows,
            prefetch_distance,
        } = input;
        let width = self.table().tile_rows;
        debug_assert!(acc.len() == rows.len() * width && w.d_out() <= width);
        let row_tile = self.table().row_tiles[w.format() as usize];
        // SAFETY: as above.
        unsafe {
            row_tile(RowTile {
                w,
                x,
                rows,
                prefetch_distance,
                acc,
                width,
            })
        }
    }

    /// `out = x / rms(x) · weight`, all `[d]`: `x·(1/√(mean(x²) + eps))·weight`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn rms_norm(self, x: &[f32], weight: &[f32], eps: f32, out: &mut [f32]) {
        assert!(
            x.len() == weight.len() && x.len() == out.len(),
            "rms_norm of rows of different lengths"
        );
        // SAFETY: as above.
        unsafe { (self.table().rms_norm)(x, weight, eps, out) }
    }

    /// As [`Self::rms_norm`], in place; for norms per head.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn rms_norm_inplace(self, x: &mut [f32], weight: &[f32], eps: f32) {
        assert_eq!(
            x.len(),
            weight.len(),
            "rms_norm of rows of different lengths"
        );
        // SAFETY: as above.
        unsafe { (self.table().rms_norm_inplace)(x, weight, eps) }
    }

    /// `out = (x − mean(x)) / √(var(x) + eps) · weight + bias`, all `[d]`; `affine` is the weight,
    /// and the bias if there is one.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn layer_norm(self, x: &[f32], affine: Affine<'_>, eps: f32, out: &mut [f32]) {
        let (weight, bias) = affine;
        let same = x.len() == weight.len() && x.len() == out.len();
        let same = same && bias.is_none_or(|bias| bias.len() == x.len());
        assert!(same, "layer_norm of rows of different lengths");
        // SAFETY: as above.
        unsafe { (self.table().layer_norm)(x, affine, eps, out) }
    }

    /// `x = activation(x)`, `[d]`; for perceptrons without a gate.
    pub fn activate(self, activation: Activation, x: &mut [f32]) {
        // SAFETY: as above.
        unsafe { (self.table().activate)(activation, x) }
    }

    /// Rotates the first `d_rope` elements of one head `x`, `[d_head]`, by the angles of `cos_sin`,
    /// `[d_rope/2][cos, sin]`.
    ///
    /// # Panics
    /// If `d_rope` is odd or larger than `d_head`.
    pub fn rope(self, x: &mut [f32], cos_sin: &[f32], pairing: RopePairing) {
        let fits = cos_sin.len().is_multiple_of(2) && cos_sin.len() <= x.len();
        assert!(
            fits,
            "rope of {} elements in a head of {}",
            cos_sin.len(),
            x.len()
        );
        // SAFETY: as above.
        unsafe { (self.table().rope)(x, cos_sin, pairing) }
    }

    /// `x = scale · x / √(Σx² + eps)`, `[d]`.
    pub fn l2_norm_inplace(self, x: &mut [f32], eps: f32, scale: f32) {
        // SAFETY: as above.
        unsafe { (self.table().l2_norm_inplace)(x, eps, scale) }
    }

    /// `out += x · w`, all `[d]`; products are rounded before they are added.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn add_products(self, out: &mut [f32], x: &[f32], w: &[f32]) {
        let same = out.len() == x.len() && out.len() == w.len();
        assert!(same, "products of rows of different lengths");
        // SAFETY: as above.
        unsafe { (self.table().add_products)(out, x, w) }
    }

    /// `gate = activation(gate) · up`, both `[d]`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn gate_row(self, activation: Activation, gate: &mut [f32], up: &[f32]) {
        assert_eq!(gate.len(), up.len(), "a gate of another length");
        self.gate(activation, gate, up);
    }

    /// `out += x`, both `[d]`.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn add_assign(self, out: &mut [f32], x: &[f32]) {
        assert_eq!(out.len(), x.len(), "sum of rows of different lengths");
        // SAFETY: as above.
        unsafe { (self.table().add_assign)(out, x) }
    }

    /// Stores the head `x`, `[rows.d]`, at position `i` of `block`: the rows of a head in a KV
    /// block, whose number of positions follows from its length.
    ///
    /// # Panics
    /// If lengths do not match, or `x` is wider than [`D_HEAD_MAX`] and the row rotated.
    pub fn store_kv(self, x: &[f32], rows: KvRows, i: usize, block: &mut [u8]) {
        assert_eq!(x.len(), rows.d, "the width of a row");
        assert_whole(rows, block);
        if !rows.is_rotated() {
            // SAFETY: as above.
            return unsafe { (self.table().store_kv)(x, rows, i, block) };
        }
        assert!(
            x.len() <= D_HEAD_MAX,
            "a rotated head of {} elements",
            x.len()
        );
        let mut room = [0.0; D_HEAD_MAX];
        let rotated = &mut room[..x.len()];
        rotated.copy_from_slice(x);
        self.hadamard(rotated);
        // SAFETY: as above.
        unsafe { (self.table().store_kv)(rotated, rows, i, block) }
    }

    /// What [`store_kv`](Self::store_kv) stored at position `i` of `block`, as near as the type
    /// keeps it, into `out`, `[rows.d]`.
    ///
    /// # Panics
    /// If lengths do not match.
    pub fn load_kv(self, rows: KvRows, i: usize, block: &[u8], out: &mut [f32]) {
        assert_eq!(out.len(), rows.d, "the width of a row");
        assert_whole(rows, block);
        // It is not called so often that it should be compiled for every instruction set.
        kv::load(Scalar, rows, i, block, out);
        if rows.is_rotated() {
            self.hadamard(out);
        }
    }
}

/// Asserts that a block holds whole rows.
fn assert_whole(rows: KvRows, block: &[u8]) {
    assert!(
        block.len().is_multiple_of(rows.row_bytes().max(1)),
        "{} bytes of rows of {}",
        block.len(),
        rows.row_bytes()
    );
}
