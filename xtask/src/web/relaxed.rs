//! Relaxed instructions of a module: replaced where results differ from machine to machine.
//!
//! Knows the encoding of instructions, and no names of functions. The one idea: LLVM takes the
//! relaxed minimum and maximum for every select of two numbers as soon as a module may have
//! relaxed SIMD, though they may differ for NaN and for zeros of two signs; `pmin` and `pmax`, for
//! which it takes them, have the same operands and as many bytes. Of all other relaxed instructions
//! only the dot product of bytes may stay: `crates/kernels/src/isa/wasm_relaxed.rs` gives it
//! operands for which every machine computes the same.

use anyhow::{Context, Result, bail, ensure};
use std::ops::RangeInclusive;

/// The magic number and the version.
const HEADER: [u8; 8] = *b"\0asm\x01\0\0\0";
const CODE_SECTION: u8 = 10;
const RELAXED: RangeInclusive<u32> = 0x100..=0x12f;
/// `i32x4.relaxed_dot_i8x16_i7x16_add_s`.
const DOT: u32 = 0x113;
/// Relaxed minima and maxima of f32x4 and f64x2, and the instruction for each.
const SETTLED: [(u32, u8); 4] = [(0x10d, 0xea), (0x10e, 0xeb), (0x10f, 0xf6), (0x110, 0xf7)];

/// Replaces minima and maxima, in place; returns how many dot products of bytes there are.
///
/// # Errors
/// Bytes that are no module, an instruction that is not known here, a relaxed one that must not be.
pub(super) fn settle(module: &mut [u8]) -> Result<usize> {
    ensure!(module.starts_with(&HEADER), "this is no module");
    let mut code = Code {
        bytes: module,
        at: HEADER.len(),
        n_dots: 0,
    };
    while code.at < code.bytes.len() {
        let section = code.byte()?;
        let end = code.end()?;
        if section == CODE_SECTION {
            code.functions()
                .with_context(|| format!("byte {}", code.at))?;
        }
        code.at = end;
    }
    Ok(code.n_dots)
}

/// A place in a module.
struct Code<'a> {
    bytes: &'a mut [u8],
    at: usize,
    n_dots: usize,
}

impl Code<'_> {
    fn functions(&mut self) -> Result<()> {
        for _ in 0..self.u32()? {
            let end = self.end()?;
            for _ in 0..self.u32()? {
                self.skip_numbers(2)?;
            }
            while self.at < end {
                self.instruction()?;
            }
        }
        Ok(())
    }

    fn instruction(&mut self) -> Result<()> {
        match self.byte()? {
            // Unreachable, else, end, return, drop, select, comparisons, arithmetic, is-null.
            0x00 | 0x01 | 0x05 | 0x0b | 0x0f | 0x1a | 0x1b | 0x45..=0xc4 | 0xd1 => Ok(()),
            // Blocks, branches, calls, variables, tables, sizes of memories, constants, references.
            0x02..=0x04 | 0x0c | 0x0d | 0x10 | 0x20..=0x26 | 0x3f..=0x42 | 0xd0 | 0xd2 => {
                self.skip_numbers(1)
            }
            0x11 => self.skip_numbers(2),
            0x28..=0x3e => self.skip_address(),
            0x0e => {
                let n_labels = self.u32()?;
                self.skip_numbers(n_labels)?;
                self.skip_numbers(1)
            }
            0x1c => {
                let n_types = self.u32()?;
                self.skip_numbers(n_types)
            }
            0x43 => self.skip(4),
            0x44 => self.skip(8),
            0xfc => self.bulk(),
            0xfd => self.vector(),
            0xfe => self.atomic(),
            opcode => bail!("opcode {opcode:#x} is not known"),
        }
    }

    /// Conversions, and operations on whole memories and tables.
    fn bulk(&mut self) -> Result<()> {
        match self.u32()? {
            0..=7 => Ok(()),
            8 | 10 | 12 | 14 => self.skip_numbers(2),
            9 | 11 | 13 | 15..=17 => self.skip_numbers(1),
            opcode => bail!("opcode 0xfc {opcode} is not known"),
        }
    }

    fn vector(&mut self) -> Result<()> {
        let start = self.at;
        match self.u32()? {
            0..=11 | 0x5c | 0x5d => self.skip_address(),
            0x0c | 0x0d => self.skip(16),
            0x15..=0x22 => self.skip(1),
            0x54..=0x5b => {
                self.skip_address()?;
                self.skip(1)
            }
            DOT => {
                self.n_dots += 1;
                Ok(())
            }
            opcode if RELAXED.contains(&opcode) => self.replace(opcode, start),
            _ => Ok(()),
        }
    }

    /// Puts the settled instruction in the place of a relaxed one, whose number begins at `start`.
    fn replace(&mut self, opcode: u32, start: usize) -> Result<()> {
        let settled = SETTLED.iter().find(|(relaxed, _)| *relaxed == opcode);
        let (_, number) = settled.with_context(|| {
            format!("opcode 0xfd {opcode:#x} is relaxed: it differs from machine to machine")
        })?;
        let place = &mut self.bytes[start..self.at];
        ensure!(place.len() == 2, "an opcode in {} bytes", place.len());
        place.copy_from_slice(&[*number, 1]);
        Ok(())
    }

    fn atomic(&mut self) -> Result<()> {
        match self.u32()? {
            3 => self.skip(1),
            _ => self.skip_address(),
        }
    }

    /// Alignment and offset.
    fn skip_address(&mut self) -> Result<()> {
        self.skip_numbers(2)
    }

    fn skip_numbers(&mut self, n: u32) -> Result<()> {
        for _ in 0..n {
            while self.byte()? >= 0x80 {}
        }
        Ok(())
    }

    fn skip(&mut self, n: usize) -> Result<()> {
        self.at += n;
        ensure!(self.at <= self.bytes.len(), "the module ends too early");
        Ok(())
    }

    /// A length, and where it ends.
    fn end(&mut self) -> Result<usize> {
        let n = self.u32()? as usize;
        let end = self.at + n;
        ensure!(end <= self.bytes.len(), "the module ends too early");
        Ok(end)
    }

    /// An unsigned number of at most 32 bits in LEB128.
    fn u32(&mut self) -> Result<u32> {
        let mut value = 0;
        for shift in (0..35).step_by(7) {
            let byte = self.byte()?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        bail!("a number is too long")
    }

    fn byte(&mut self) -> Result<u8> {
        let byte = self.bytes.get(self.at);
        let byte = *byte.context("the module ends too early")?;
        self.at += 1;
        Ok(byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module with one function of these instructions.
    fn module(instructions: &[u8]) -> Vec<u8> {
        let mut body = vec![0];
        body.extend(instructions);
        let mut bytes = HEADER.to_vec();
        bytes.extend([CODE_SECTION, body.len() as u8 + 2, 1, body.len() as u8]);
        bytes.extend(body);
        bytes
    }

    /// The bytes of a maximum, in a constant: not one.
    const CONSTANT: [u8; 4] = [0x41, 0xfd, 0x8e, 0x02];

    #[test]
    fn a_relaxed_maximum_becomes_a_settled_one_and_its_bytes_elsewhere_stay() {
        let mut found = module(&[&CONSTANT[..], &[0xfd, 0x8e, 0x02, 0x0b]].concat());
        assert_eq!(settle(&mut found).unwrap(), 0);
        let expected = module(&[&CONSTANT[..], &[0xfd, 0xeb, 0x01, 0x0b]].concat());
        assert_eq!(found, expected);
    }

    #[test]
    fn dot_products_stay_and_are_counted() {
        let mut found = module(&[0xfd, 0x93, 0x02, 0xfd, 0x93, 0x02, 0x0b]);
        let before = found.clone();
        assert_eq!(settle(&mut found).unwrap(), 2);
        assert_eq!(found, before);
    }

    #[test]
    fn another_relaxed_instruction_is_an_error_and_so_is_one_that_is_not_known() {
        for (instructions, words) in [
            (&[0xfd, 0x85, 0x02, 0x0b][..], "0x105 is relaxed"),
            (&[0xff, 0x0b][..], "0xff is not known"),
            (&[0x43, 0x0b][..], "ends too early"),
        ] {
            let error = settle(&mut module(instructions)).unwrap_err();
            assert!(format!("{error:#}").contains(words), "{error:#}");
        }
        assert!(settle(&mut b"GGUF and more".to_vec()).is_err());
    }
}
