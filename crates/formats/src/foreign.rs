//! Recognizes files of other kinds by their first bytes, so that errors can say what they are.
//!
//! It reads no files. Without the feature `foreign` (small boards) errors show the bytes only.

#[cfg(feature = "foreign")]
const OLD: &str = "it is in a format of llama.cpp from before GGUF (GGML, GGMF or GGJT): convert the original model anew";
#[cfg(feature = "foreign")]
const PYTORCH: &str = "it is a PyTorch checkpoint: name its directory to `atta convert`";

/// First bytes of files, and the kind of such a file with a suggestion.
#[cfg(feature = "foreign")]
const BEGINNINGS: &[(&[u8], &str)] = &[
    (
        b"version ",
        "it is a Git LFS pointer, not the file itself: run `git lfs pull`, or download the file",
    ),
    (
        b"<",
        "it is a web page, not the file: download it again, by its address for downloads",
    ),
    (
        b"24ka",
        "it is a model.bin of llama2.c or LEAP: `atta leap` runs it, `atta convert` makes a GGUF file of it",
    ),
    (b"lmgg", OLD),
    (b"fmgg", OLD),
    (b"tjgg", OLD),
    (
        b"algg",
        "it is a LoRA adapter in a format from before GGUF, not a model",
    ),
    (
        b"PK\x03\x04",
        "it is a ZIP archive, as are PyTorch checkpoints: unpack it, or name its directory to `atta convert`",
    ),
    (b"\x80\x02", PYTORCH),
    (b"\x1f\x8b", "it is compressed with gzip: unpack it first"),
    (b"{", "it is JSON, not the weights of a model"),
];

/// The kind of a file that begins with `head` and is no GGUF; `None` if it is unknown.
#[cfg(feature = "foreign")]
pub fn recognize(head: &[u8]) -> Option<&'static str> {
    let known = BEGINNINGS
        .iter()
        .find(|(begins, _)| head.starts_with(begins))
        .map(|&(_, what)| what);
    known.or_else(|| {
        let (len, rest) = head.split_first_chunk()?;
        // The length of a JSON header, then its first byte.
        let is_safetensors = u64::from_le_bytes(*len) < 1 << 30 && rest.first() == Some(&b'{');
        is_safetensors.then_some("it is a safetensors file: name its directory to `atta convert`")
    })
}

/// The end of the error message for a file that is no GGUF.
pub(crate) fn describe(head: &[u8; 9]) -> String {
    #[cfg(feature = "foreign")]
    if let Some(what) = recognize(head) {
        return what.to_owned();
    }
    format!("it begins with {:02x?}, expected \"GGUF\"", &head[..4])
}

#[cfg(all(test, feature = "foreign"))]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_kinds_are_named() {
        for (head, what) in [
            (
                &b"version https://git-lfs.github.com/spec/v1"[..],
                "Git LFS pointer",
            ),
            (b"<!doctype html>", "web page"),
            (b"tjgg\x03\0\0\0", "before GGUF"),
            (b"24ka\x01\0\0\0", "`atta leap`"),
            (b"PK\x03\x04", "ZIP archive"),
            (b"\x1f\x8b\x08", "gzip"),
            (b"\x80\x02}q", "PyTorch"),
            (b"\xa0\x75\x01\0\0\0\0\0{\"__metadata__\"", "safetensors"),
            (b"{\"architectures\"", "JSON"),
        ] {
            assert!(
                recognize(head).is_some_and(|said| said.contains(what)),
                "{what}"
            );
        }
        assert_eq!((recognize(b""), recognize(&[0; 9])), (None, None));
    }

    #[test]
    fn unknown_files_are_shown_by_their_first_bytes() {
        assert_eq!(
            describe(b"GGML\0\0\0\0\0"),
            "it begins with [47, 47, 4d, 4c], expected \"GGUF\""
        );
    }
}
