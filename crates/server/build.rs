//! Packs the files of the web page: for each, a gzip file in `OUT_DIR`, which the program holds.
//!
//! It knows no path of a request and no content type. The one idea: the repository has what people
//! read and what other projects publish, and the program a third of those bytes.

use std::{
    env, fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use flate2::{Compression, write::GzEncoder};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=web");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets it"));
    pack_folder(Path::new("web"), &out)
}

/// Packs the files of `folder` and of those in it to the same paths under `out`.
fn pack_folder(folder: &Path, out: &Path) -> io::Result<()> {
    fs::create_dir_all(out.join(folder))?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            pack_folder(&path, out)?;
        } else {
            let packed = pack(&fs::read(&path)?)?;
            let mut name = out.join(&path).into_os_string();
            name.push(".gz");
            fs::write(name, packed)?;
        }
    }
    Ok(())
}

fn pack(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish()
}
