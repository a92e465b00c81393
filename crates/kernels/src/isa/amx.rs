//! AMX: products of whole matrix tiles, eight times the byte dot products per cycle of AVX-512
//! VNNI.
//!
//! A tile is up to 16 rows of 64 bytes. `C += A·B` multiplies 16 activation rows (A: one row each,
//! the codes as they lie) with 16 weight rows (B: word k of each row side by side, the layout of a
//! panel) over 64 weights. The compiler knows nothing of tile registers, so they are named here, in
//! assembler, and live only between [`Amx::configure`] and the drop of what it returns. Vectors are
//! those of [`Avx512`].
//!
//! Registers 0 to 3 are sums `[activation rows, weight rows]`, 4 and 5 activations, 6 and 7
//! weights.

use super::avx2::proven;
use super::avx512::Avx512;
use crate::activations::Codes;
use std::arch::asm;
use std::arch::x86_64::*;
use std::marker::PhantomData;

/// Proof of AMX with int8, which the operating system has granted, and of what [`Avx512`] proves.
#[derive(Clone, Copy)]
pub(crate) struct Amx(Avx512);

impl Amx {
    /// # Safety
    /// The CPU must have the features, and [`granted`] must have said so.
    pub(crate) const unsafe fn assume() -> Self {
        // SAFETY: the caller says so.
        Self(unsafe { Avx512::assume() })
    }

    /// The operations on vectors.
    #[inline(always)]
    pub(crate) fn vectors(self) -> Avx512 {
        self.0
    }
}

/// Rows of a tile.
pub(crate) const ROWS: usize = 16;
/// What two registers of sums hold: for each of 32 activation rows a vector, lane = weight row.
pub(crate) type Sums = [__m512i; 2 * ROWS];
/// 256 bytes of each weight row: word k of 16 of them in each vector.
pub(crate) type Plane<const R: usize> = [[__m512i; R]; 64];

/// Whether the CPU has the tiles and the operating system lets this process use them: on Linux it
/// must be asked once, because saving tiles makes a process's context larger.
pub(crate) fn granted() -> bool {
    const TILE_AND_INT8: u32 = 0b11 << 24;
    let leaves = __cpuid(0).eax;
    leaves >= 0x1d && __cpuid_count(7, 0).edx & TILE_AND_INT8 == TILE_AND_INT8 && ask()
}

#[cfg(target_os = "linux")]
fn ask() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: i64 = 0x1023;
    const TILE_DATA: i64 = 18;
    let result: i64;
    // SAFETY: the system call changes nothing in memory; it grants a permission or fails.
    unsafe {
        asm!("syscall", inlateout("rax") ARCH_PRCTL => result, in("rdi") ARCH_REQ_XCOMP_PERM, in("rsi") TILE_DATA,
            out("rcx") _, out("r11") _, options(nostack));
    }
    result == 0
}

#[cfg(not(target_os = "linux"))]
fn ask() -> bool {
    false
}

/// The shapes of the tile registers, as the CPU reads them.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// Tile registers with shapes; released when this is dropped. They are those of one thread, so this
/// stays on it.
pub(crate) struct Tiles {
    /// Activation rows of the two tiles of them.
    rows: [usize; 2],
    /// Weights of a step.
    step: usize,
    of_thread: PhantomData<*mut ()>,
}

impl Drop for Tiles {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: `configure`, which makes this, takes a token.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) }
    }
}

impl Amx {
    /// Tiles of `rows` activation rows, 1 to 16 each, that multiply `step` weights at once: 32 or
    /// 64. A thread has one set of registers: there must be no other [`Tiles`] on it.
    #[inline(always)]
    pub(crate) fn configure(self, rows: [usize; 2], step: usize) -> Tiles {
        let mut tiles = Tiles {
            rows: [0; 2],
            step,
            of_thread: PhantomData,
        };
        tiles.reshape(rows);
        tiles
    }

    proven! {
        /// Codes less `offset`, four in a word, as signed bytes.
        pub(crate) fn signed(self, codes: __m512i, offset: i16) -> __m512i {
            _mm512_sub_epi8(codes, _mm512_set1_epi8(offset as i8))
        }
        /// `(code − offset)·scale` of four codes in each lane: their low bytes, unsigned, and their
        /// high bytes, signed. The caller guarantees that the products fit i16.
        pub(crate) fn planes(self, codes: __m512i, offset: i16, scale: __m512i) -> [__m512i; 2] {
            let (even_bytes, offset) = (_mm512_set1_epi16(0xff), _mm512_set1_epi16(offset));
            let scale = _mm512_mask_blend_epi16(0xaaaa_aaaa, scale, _mm512_slli_epi32::<16>(scale));
            let product = |codes| _mm512_mullo_epi16(_mm512_sub_epi16(codes, offset), scale);
            let (even, odd) = (product(_mm512_and_si512(codes, even_bytes)), product(_mm512_srli_epi16::<8>(codes)));
            let low = _mm512_or_si512(_mm512_and_si512(even, even_bytes), _mm512_slli_epi16::<8>(odd));
            [low, _mm512_or_si512(_mm512_srli_epi16::<8>(even), _mm512_andnot_si512(even_bytes, odd))]
        }
    }
}

/// Multiplies registers that are loaded, and adds the products to a third.
macro_rules! multiply {
    ($($instruction:literal),*) => {
        // SAFETY: registers only, which are configured as long as there are `Tiles`.
        unsafe { asm!($($instruction,)* options(nomem, nostack, preserves_flags)) }
    };
}

impl Tiles {
    /// Other numbers of activation rows, 1 to 16 each.
    #[inline(always)]
    pub(crate) fn reshape(&mut self, rows: [usize; 2]) {
        assert!(
            rows.iter().all(|n| (1..=ROWS).contains(n)) && (self.step == 32 || self.step == 64)
        );
        if rows == self.rows {
            return;
        }
        let ([first, second], step, words) = (
            rows.map(|n| n as u8),
            self.step as u16,
            (self.step / 4) as u8,
        );
        let mut config = Config {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        config.row_bytes[..8].copy_from_slice(&[64, 64, 64, 64, step, step, 64, 64]);
        config.rows[..8]
            .copy_from_slice(&[first, first, second, second, first, second, words, words]);
        // SAFETY: `configure` takes a token, which proves the instruction; the shapes are those
        // of palette 1.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &config, options(nostack, preserves_flags, readonly))
        }
        self.rows = rows;
    }

    /// Registers 0 to 3 become zero.
    #[inline(always)]
    pub(crate) fn clear(&mut self) {
        // SAFETY: the registers are configured as long as `self` lives.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                options(nomem, nostack, preserves_flags)
            )
        }
    }

    /// Adds the products of the first 16 rows of `x`, codes `64·k` on, with the low bytes,
    /// unsigned, of words `16·k` on of vector `r` of the planes: register 0.
    #[inline(always)]
    pub(crate) fn first_low<const R: usize>(
        &mut self,
        x: [&[Codes]; 2],
        planes: &[Plane<R>; 2],
        r: usize,
        k: usize,
    ) {
        self.load_activations::<0>(x, k);
        self.load_weights::<R, 6>(&planes[0], r, k);
        multiply!("tdpbsud tmm0, tmm4, tmm6");
    }

    /// The same with the high bytes, signed: register 1.
    #[inline(always)]
    pub(crate) fn first_high<const R: usize>(
        &mut self,
        planes: &[Plane<R>; 2],
        r: usize,
        k: usize,
    ) {
        self.load_weights::<R, 7>(&planes[1], r, k);
        multiply!("tdpbssd tmm1, tmm4, tmm7");
    }

    /// The low bytes, which are loaded, with the other rows of `x`: register 2.
    #[inline(always)]
    pub(crate) fn second_low(&mut self, x: [&[Codes]; 2], k: usize) {
        self.load_activations::<1>(x, k);
        multiply!("tdpbsud tmm2, tmm5, tmm6");
    }

    /// The high bytes with these: register 3.
    #[inline(always)]
    pub(crate) fn second_high(&mut self) {
        multiply!("tdpbssd tmm3, tmm5, tmm7");
    }

    /// All four of these.
    #[inline(always)]
    pub(crate) fn planes<const R: usize>(
        &mut self,
        x: [&[Codes]; 2],
        planes: &[Plane<R>; 2],
        r: usize,
        k: usize,
    ) {
        self.first_low(x, planes, r, k);
        self.first_high(planes, r, k);
        self.second_low(x, k);
        self.second_high();
    }

    /// The products of group `g` of 32 weights, whose codes are signed: registers 0 and 2 of an
    /// even group, 1 and 3 of an odd one, which must be zero before.
    #[inline(always)]
    pub(crate) fn group<const R: usize>(
        &mut self,
        x: [&[Codes]; 2],
        codes: &Plane<R>,
        r: usize,
        g: usize,
    ) {
        self.load_activations::<0>(x, g);
        self.load_weights::<R, 6>(codes, r, g);
        if g.is_multiple_of(2) {
            multiply!("tdpbssd tmm0, tmm4, tmm6");
            self.load_activations::<1>(x, g);
            multiply!("tdpbssd tmm2, tmm5, tmm6");
        } else {
            multiply!("tdpbssd tmm1, tmm4, tmm6");
            self.load_activations::<1>(x, g);
            multiply!("tdpbssd tmm3, tmm5, tmm6");
        }
    }

    /// Stores the registers: 0 and 2 in the first vectors, 1 and 3 in the second.
    #[inline(always)]
    pub(crate) fn store(&self, out: &mut [Sums; 2]) {
        let [first, second] = out;
        let first = first.as_chunks_mut::<ROWS>().0;
        let second = second.as_chunks_mut::<ROWS>().0;
        self.store_register::<0>(&mut first[0]);
        self.store_register::<1>(&mut second[0]);
        self.store_register::<2>(&mut first[1]);
        self.store_register::<3>(&mut second[1]);
    }

    /// Codes of step `k` of tile `TILE` of the activation rows: register 4 or 5.
    #[inline(always)]
    fn load_activations<const TILE: usize>(&mut self, x: [&[Codes]; 2], k: usize) {
        assert!(x[TILE].len() >= self.rows[TILE] && (k + 1) * self.step <= 256);
        let at = x[TILE].as_ptr().cast::<i8>().wrapping_add(k * self.step);
        // SAFETY: the register has `rows[TILE]` rows of `step` bytes, which as many of `x` have
        // from `at` on.
        unsafe {
            asm!(
                "tileloadd tmm{register}, [{at} + {stride}*1]",
                register = const 4 + TILE,
                at = in(reg) at,
                stride = in(reg) size_of::<Codes>(),
                options(nostack, preserves_flags, readonly)
            );
        }
    }

    /// Words of step `k` of vector `r`: register 6 or 7.
    #[inline(always)]
    fn load_weights<const R: usize, const REGISTER: usize>(
        &mut self,
        plane: &Plane<R>,
        r: usize,
        k: usize,
    ) {
        const { assert!(REGISTER == 6 || REGISTER == 7) };
        assert!(r < R && (k + 1) * self.step <= 256);
        let words = plane.as_ptr().cast::<__m512i>();
        let at = words.wrapping_add(self.step / 4 * k * R + r);
        // SAFETY: the register has `step / 4` rows of 64 bytes, which as many words of the plane
        // have from `at` on.
        unsafe {
            asm!(
                "tileloadd tmm{register}, [{at} + {stride}*1]",
                register = const REGISTER,
                at = in(reg) at,
                stride = in(reg) size_of::<[__m512i; R]>(),
                options(nostack, preserves_flags, readonly)
            );
        }
    }

    /// Stores one of the registers 0 to 3.
    #[inline(always)]
    fn store_register<const REGISTER: usize>(&self, out: &mut [__m512i; ROWS]) {
        const { assert!(REGISTER < 4) };
        let at = out.as_mut_ptr();
        // SAFETY: the register has at most 16 rows of 64 bytes, as `out` has.
        unsafe {
            asm!(
                "tilestored [{at} + {stride}*1], tmm{register}",
                register = const REGISTER,
                at = in(reg) at,
                stride = in(reg) size_of::<__m512i>(),
                options(nostack, preserves_flags)
            );
        }
    }

    /// Multiplies whatever the registers hold, to measure how fast that is; the products done.
    #[inline(always)]
    pub(crate) fn multiply_registers(&mut self) -> usize {
        multiply!(
            "tdpbssd tmm0, tmm4, tmm6",
            "tdpbssd tmm1, tmm4, tmm7",
            "tdpbssd tmm2, tmm5, tmm6",
            "tdpbssd tmm3, tmm5, tmm7"
        );
        2 * (self.rows[0] + self.rows[1]) * 16 * self.step
    }
}
