//! The decoders against gguf-py: 1,000 random blocks per type, bit for bit. See
//! `tests/oracles/codec_golden.py`, which made the goldens and makes the same blocks from the same
//! stream.

use atta_formats::gguf::{type_id, type_of_id};
use atta_formats::{TensorType, decode};
use std::fmt::Write;

const N_BLOCKS: usize = 1000;
const N_SHOWN: usize = 8;
const GOLDENS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/codec");

/// Byte offsets of the f16 numbers of a block, which are kept finite.
fn f16_offsets(ty: TensorType) -> &'static [usize] {
    match ty {
        TensorType::F16
        | TensorType::Q1_0
        | TensorType::Q2_0
        | TensorType::Q4_0
        | TensorType::Q5_0
        | TensorType::Q8_0 => &[0],
        TensorType::IQ1_S | TensorType::IQ2_XXS | TensorType::IQ2_XS | TensorType::IQ2_S => &[0],
        TensorType::IQ3_XXS | TensorType::IQ3_S | TensorType::IQ4_NL | TensorType::IQ4_XS => &[0],
        TensorType::Q4_1 | TensorType::Q5_1 => &[0, 2],
        TensorType::TQ1_0 => &[52],
        TensorType::TQ2_0 => &[64],
        TensorType::Q2_K => &[80, 82],
        TensorType::Q3_K => &[108],
        TensorType::Q4_K | TensorType::Q5_K => &[0, 2],
        TensorType::Q6_K => &[208],
        _ => &[],
    }
}

/// The bits of the last byte of a block that are not all set if the float it ends is finite.
fn top_exponent_bits(ty: TensorType) -> u8 {
    match ty {
        TensorType::F32 | TensorType::BF16 => 0x7f,
        // The highest nibble of d.
        TensorType::IQ1_M => 0x70,
        _ => 0,
    }
}

fn splitmix64(seed: u64) -> impl Iterator<Item = u8> {
    let outputs = (1u64..).map(move |i| {
        let z = seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    });
    outputs.flat_map(u64::to_le_bytes)
}

/// `[N_BLOCKS · block_bytes]`
fn random_blocks(ty: TensorType) -> Vec<u8> {
    let mut bytes: Vec<u8> = splitmix64(type_id(ty).into())
        .take(N_BLOCKS * ty.block_bytes())
        .collect();
    for block in bytes.chunks_mut(ty.block_bytes()) {
        for at in f16_offsets(ty) {
            let top = &mut block[at + 1];
            *top &= if *top & 0x7c == 0x7c { 0xbf } else { 0xff };
        }
        let top = block.last_mut().unwrap();
        let exponent = top_exponent_bits(ty);
        if exponent != 0 && *top & exponent == exponent {
            *top &= 0xbf;
        }
    }
    bytes
}

fn summary(ty: TensorType) -> String {
    let mut out = vec![0.0f32; N_BLOCKS * ty.block_len()];
    decode(ty, &random_blocks(ty), &mut out).unwrap();
    let fnv =
        |digest: u64, y: &f32| (digest ^ u64::from(y.to_bits())).wrapping_mul(0x0100_0000_01b3);
    let mut text = format!(
        "digest {:016x}\n",
        out.iter().fold(0xcbf2_9ce4_8422_2325, fnv)
    );
    for (i, block) in out.chunks(ty.block_len()).take(2).enumerate() {
        write!(text, "block {i}").unwrap();
        block
            .iter()
            .take(N_SHOWN)
            .for_each(|y| write!(text, " {:08x}", y.to_bits()).unwrap());
        text.push('\n');
    }
    text
}

fn golden(name: &str) -> String {
    std::fs::read_to_string(format!("{GOLDENS}/{name}.txt")).unwrap()
}

#[test]
fn every_type_of_gguf_py_is_known_with_its_block() {
    for line in golden("types").lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let ty = type_of_id(fields[1].parse().unwrap()).expect(line);
        assert_eq!(
            format!(
                "{ty} {} {} {}",
                type_id(ty),
                ty.block_len(),
                ty.block_bytes()
            ),
            line
        );
    }
}

#[test]
fn every_decoder_equals_gguf_py_on_a_thousand_random_blocks() {
    let with_codec = TensorType::ALL.iter().filter(|ty| ty.has_codec());
    // gguf-py knows no types of atta.
    let with_codec: Vec<_> = with_codec.filter(|ty| !ty.is_own()).collect();
    let goldens = std::fs::read_dir(GOLDENS).unwrap().count();
    assert_eq!(with_codec.len() + ["types.txt"].len(), goldens);
    for ty in with_codec {
        assert_eq!(summary(*ty), golden(ty.name()), "{ty}");
    }
}
