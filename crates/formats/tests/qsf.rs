//! QSF files against one that a script wrote from the plan's layout, and the same file damaged. See
//! `tests/oracles/qsf_golden.py`.

use std::{fmt::Write, sync::Arc};

use atta_formats::{
    Contents, Error, SharedBytes, TensorInfo, decode_rows,
    qsf::{Header, crc32},
};

const GOLDENS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/qsf");

fn golden(name: &str) -> Vec<u8> {
    std::fs::read(format!("{GOLDENS}/{name}")).unwrap()
}

fn parse(file: &[u8]) -> Result<Contents, Error> {
    let bytes: SharedBytes = Arc::new(file.to_vec());
    Contents::parse(bytes, file.len() as u64)
}

/// Name, type and checksum of the weights of a tensor.
fn line(file: &[u8], t: &TensorInfo) -> String {
    let mut weights = vec![0f32; t.shape.n_elements() as usize];
    let bytes = &file[t.offset as usize..][..t.n_bytes as usize];
    let d_row = *t.shape.dims().last().unwrap() as usize;
    decode_rows(t.ty, d_row, bytes, &mut weights).unwrap();
    let weights: Vec<u8> = weights.iter().flat_map(|w| w.to_le_bytes()).collect();
    format!("{} {} {:08x}\n", t.name, t.ty, crc32(&weights))
}

#[test]
fn tensors_have_the_weights_that_the_script_gave_them() {
    let file = golden("plain.qsf");
    let contents = parse(&file).unwrap();
    let all = contents.tensors.iter().fold(String::new(), |mut all, t| {
        all.write_str(&line(&file, t)).unwrap();
        all
    });
    assert_eq!(all.as_bytes(), golden("plain.txt"));
}

#[test]
fn the_header_says_the_sizes_and_the_rest_is_assumed() {
    let metadata = parse(&golden("plain.qsf")).unwrap().metadata;
    assert_eq!(metadata.u32("llama.attention.key_length"), Ok(Some(16)));
    assert_eq!(metadata.u32("llama.feed_forward_length"), Ok(Some(96)));
    assert_eq!(metadata.f32("llama.rope.freq_base"), Ok(Some(10_000.0)));
    assert_eq!(metadata.u32("tokenizer.ggml.bos_token_id"), Ok(Some(1)));
    let assumed = metadata.strs("qsf.assumed").unwrap().unwrap();
    let epsilon = assumed.get(0).unwrap();
    assert!(String::from_utf8_lossy(epsilon).contains("1e-5"));
}

#[test]
fn every_flipped_bit_of_the_header_is_an_error() {
    let file = golden("plain.qsf");
    for bit in 0..8 * Header::BYTES {
        let mut file = file.clone();
        file[bit / 8] ^= 1 << (bit % 8);
        assert!(parse(&file).is_err(), "bit {bit}");
    }
}

#[test]
fn every_truncated_file_is_an_error() {
    let file = golden("plain.qsf");
    for n in 0..file.len() {
        assert!(parse(&file[..n]).is_err(), "{n} bytes");
        let cut: SharedBytes = Arc::new(file[..n].to_vec());
        if let Err(error) = Contents::parse(cut, file.len() as u64) {
            let asks_for_more = matches!(error, Error::Truncated { needed } if needed > n as u64);
            assert!(n < 4 || asks_for_more, "{n}: {error}");
        }
    }
}

/// The file with other bytes at a place, and a header that goes with them.
fn patched(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut file = golden("plain.qsf");
    file[at..at + bytes.len()].copy_from_slice(bytes);
    let mut header = Header(*file.first_chunk().unwrap());
    header.seal(file.len() as u64);
    file[..Header::BYTES].copy_from_slice(&header.0);
    file
}

#[test]
fn no_byte_of_a_section_makes_a_panic() {
    let file = golden("plain.qsf");
    let weights: Vec<_> = parse(&file).unwrap().tensors;
    let is_weight = |at: usize| {
        let at = at as u64;
        weights
            .iter()
            .any(|t| (t.offset..t.offset + t.n_bytes).contains(&at))
    };
    for at in (4..file.len()).filter(|&at| !is_weight(at)) {
        for byte in [0, 0x7f, 0x80, 0xff, file[at] ^ 1] {
            let _ = parse(&patched(at, &[byte]));
        }
    }
}

#[test]
fn what_a_plain_file_cannot_say_is_refused_by_name() {
    for (at, bytes, said) in [
        (12, 0u32.to_le_bytes(), "GPT-2"),
        (12, 3u32.to_le_bytes(), "Phi"),
        (12, 4u32.to_le_bytes(), "META"),
        (48, [5, 0, 1, 1], "activation 0 needs the extension META"),
        (48, [5, 1, 0, 1], "norm 0"),
        (48, [5, 1, 1, 2], "positions 2"),
        (
            32,
            34u32.to_le_bytes(),
            "the embedding: expected [34, 64], got [33, 64]",
        ),
        (72, 300u32.to_le_bytes(), "two sections overlap"),
        (116, [1, 0, 0, 0], "reserved bytes"),
        (100, [1, 0, 0, 0], "the extension lacks META"),
        // The index entry of layer 0: its type, its compression, its length.
        (128 + 12, 100u32.to_le_bytes(), "layer 0"),
        (128 + 16, [9, 0, 9, 0], "unknown type 9"),
        // The embedding's type, and the role of the first tensor.
        (195, 5u32.to_le_bytes(), "the embedding has type 5"),
        (1399, 13u32.to_le_bytes(), "biases of feed-forward blocks"),
    ] {
        let error = parse(&patched(at, &bytes))
            .err()
            .map(|error| error.to_string());
        assert!(
            error.as_ref().is_some_and(|error| error.contains(said)),
            "{at}: {error:?}"
        );
    }
}

#[test]
fn a_file_with_compressed_layers_has_to_be_converted() {
    let error = parse(&golden("compressed.qsf")).unwrap_err();
    assert_eq!(error, Error::QsfCompressed { layer: 0 });
}
