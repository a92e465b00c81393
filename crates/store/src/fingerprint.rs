//! The fingerprint of a model: bytes that differ for different files, without reading them whole.
//!
//! Knows no hash: the caller hashes the bytes.

use crate::{Error, ModelFiles, ReadMethod, files::at};

/// Samples of all files together.
const N_SAMPLES: u64 = 64;

/// Bytes of a sample.
const SAMPLE_BYTES: usize = 4096;

impl ModelFiles {
    /// Gives to `each`, file by file, the length, the time of the last write, all bytes
    /// before the tensors, and then samples: 64 of 4 KiB for all files together, evenly spread;
    /// every byte of a model no larger than those, and of one that is built into the program.
    ///
    /// # Errors
    /// A file that cannot be read, or changed since it was opened.
    pub fn fingerprint(&self, mut each: impl FnMut(&[u8])) -> Result<(), Error> {
        let sources = self.unmapped_sources(Some(ReadMethod::Buffered))?;
        let spread = (self.file_bytes() / N_SAMPLES).max(SAMPLE_BYTES as u64);
        let mut sample = [0; SAMPLE_BYTES];
        for (source, header) in sources.iter().zip(self.headers()) {
            let len = source.n_bytes();
            let version = source.version();
            each(&len.to_le_bytes());
            each(&version.unwrap_or(0).to_le_bytes());
            each(header);
            // Only its bytes tell a source without a version from others.
            let step = version.map_or(SAMPLE_BYTES as u64, |_| spread);
            for offset in (0..len).step_by(step as usize) {
                let sample = &mut sample[..SAMPLE_BYTES.min((len - offset) as usize)];
                at(source, source.read_exact_at(offset, sample))?;
                each(sample);
            }
        }
        self.check_unchanged()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use super::*;
    use crate::Budget;

    fn golden(name: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("../../tests/golden/models")
            .join(name)
    }

    fn print(files: &ModelFiles) -> Vec<Vec<u8>> {
        let mut parts = Vec::new();
        files
            .fingerprint(|bytes| parts.push(bytes.to_vec()))
            .unwrap();
        parts
    }

    #[test]
    fn it_is_the_same_whether_the_file_is_mapped_or_not() {
        let mapped = ModelFiles::open(&golden("llama-plain.gguf")).unwrap();
        let expected = print(&mapped);
        assert_eq!(
            print(&mapped.unmapped(&Budget::unlimited()).unwrap()),
            expected
        );
        assert_ne!(
            print(&ModelFiles::open(&golden("qwen2.gguf")).unwrap()),
            expected
        );
    }

    #[test]
    fn of_a_large_file_little_is_read_and_of_a_small_one_all() {
        let path =
            std::env::temp_dir().join(format!("atta-fingerprint-{}.gguf", std::process::id()));
        let small = fs::read(golden("llama-plain.gguf")).unwrap();
        fs::write(&path, &small).unwrap();
        let n_all = |parts: &[Vec<u8>]| parts[3..].iter().map(Vec::len).sum::<usize>();
        assert_eq!(
            n_all(&print(&ModelFiles::open(&path).unwrap())),
            small.len()
        );
        fs::File::options()
            .write(true)
            .open(&path)
            .unwrap()
            .set_len(1 << 30)
            .unwrap();
        let parts = print(&ModelFiles::open(&path).unwrap());
        assert_eq!((parts.len(), n_all(&parts)), (3 + 64, 64 * 4096));
        fs::remove_file(path).unwrap();
    }
}
