//! Reads safetensors files: a length, a JSON header, and the bytes of all tensors.
//!
//! ```text
//! 8 bytes   length n of the header, little endian n bytes   {"name": {"dtype": "F32", "shape": [2,
//! 3], "data_offsets": [0, 24]}, ...,
//!           "__metadata__": {...}}
//! the rest  tensors, at the offsets that the header gives, counted from here
//! ```
//! The header is scanned into slices, one per member, so that a hostile header needs no more memory
//! than its own size. Source: the README of huggingface/safetensors, whose guarantees (no overlap,
//! no hole, no duplicate name, at most 100 MB of header) are checked here.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::Read as _,
    ops::Range,
    path::{Component, Path, PathBuf},
    sync::Arc,
};

use atta_formats::SharedBytes;
use atta_store::MappedFile;
use serde_json::Value;

use crate::{
    Error, git_lfs,
    raw::{Dtype, RawTensor, RawTensors},
};

/// Largest header, and largest shard index; the bound of the format.
const MAX_HEADER_BYTES: u64 = 100_000_000;
/// The most dimensions of a tensor; real ones have at most five.
const MAX_DIMS: usize = 8;
/// The most shards of a checkpoint.
const MAX_SHARDS: usize = 10_000;

/// Opens one file.
///
/// # Errors
/// [`Error::Io`], and [`Error::File`] for the errors of [`parse`].
pub fn open(path: &Path) -> Result<RawTensors, Error> {
    let mut all = RawTensors::default();
    add_file(path, &mut all)?;
    Ok(all)
}

/// Opens all shards of a `model.safetensors.index.json`, which are in the directory of the index.
///
/// # Errors
/// Those of [`open`]; a shard name that is not a plain file name; a tensor that is in the index but
/// not in its shard, or the reverse.
pub fn open_sharded(index: &Path) -> Result<RawTensors, Error> {
    open_shards(index, open)
}

/// Opens all shards of an index with `open`.
pub(crate) fn open_shards(
    index: &Path,
    open: fn(&Path) -> Result<RawTensors, Error>,
) -> Result<RawTensors, Error> {
    let wrong = |why: String| Error::File {
        path: index.to_owned(),
        why,
    };
    let json = read_capped(index, MAX_HEADER_BYTES)?;
    let shards = weight_map(&json).map_err(wrong)?;
    let folder = index.parent().unwrap_or(Path::new(""));
    let mut all = RawTensors::default();
    for (shard, mut names) in shards {
        let path = folder.join(plain_file_name(&shard).map_err(wrong)?);
        let one = open(&path)?;
        if let Some(extra) = one.names().find(|name| !names.contains(*name)) {
            return Err(Error::File {
                path,
                why: format!("{extra} is not in the index"),
            });
        }
        one.names().for_each(|name| _ = names.remove(name));
        if let Some(missing) = names.first() {
            return Err(Error::File {
                path,
                why: format!("{missing} is in the index, and not in this file"),
            });
        }
        all.append(one)?;
    }
    Ok(all)
}

fn add_file(path: &Path, all: &mut RawTensors) -> Result<(), Error> {
    let io = |source| Error::Io {
        path: path.to_owned(),
        source,
    };
    let file = Arc::new(MappedFile::open(path).map_err(io)?);
    git_lfs::refuse_pointer(path, (*file).as_ref())?;
    for tensor in parse(file.clone()).map_err(|why| Error::File {
        path: path.to_owned(),
        why,
    })? {
        all.add(tensor)?;
    }
    all.files.push((path.to_owned(), file));
    Ok(())
}

/// Reads a whole file of at most `max` bytes.
pub(crate) fn read_capped(path: &Path, max: u64) -> Result<Vec<u8>, Error> {
    let io = |source| Error::Io {
        path: path.to_owned(),
        source,
    };
    let mut bytes = Vec::new();
    File::open(path)
        .map_err(io)?
        .take(max + 1)
        .read_to_end(&mut bytes)
        .map_err(io)?;
    git_lfs::refuse_pointer(path, &bytes)?;
    match bytes.len() as u64 > max {
        true => Err(Error::File {
            path: path.to_owned(),
            why: format!("is longer than {max} bytes"),
        }),
        false => Ok(bytes),
    }
}

/// The tensor names of each shard.
fn weight_map(json: &[u8]) -> Result<BTreeMap<String, BTreeSet<String>>, String> {
    let index = members(json)?;
    let (_, map) = index
        .iter()
        .find(|(key, _)| key == "weight_map")
        .ok_or("has no weight_map")?;
    let mut shards: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (name, shard) in members(map)? {
        let shard: String =
            serde_json::from_slice(shard).map_err(|_| format!("{name} is in no file"))?;
        shards.entry(shard).or_default().insert(name);
    }
    match shards.len() {
        0..=MAX_SHARDS => Ok(shards),
        n => Err(format!("names {n} files, expected at most {MAX_SHARDS}")),
    }
}

/// Checks that a name is a plain file name without directories.
fn plain_file_name(name: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(name);
    let mut parts = path.components();
    let is_plain = matches!(
        (parts.next(), parts.next()),
        (Some(Component::Normal(part)), None) if part == name
    );
    // On Windows a backslash is a separator and a colon follows a drive.
    match is_plain && !name.contains(['/', '\\', '\0', ':']) {
        true => Ok(path),
        false => Err(format!("{name:?} is no name of a file")),
    }
}

/// Parses a file.
///
/// # Errors
/// A message, if the header is longer than the file or 100 MB or is not the expected JSON, if an
/// element type is unknown, or if tensors do not have the size of their shape, overlap, leave a
/// hole, or extend beyond the file.
pub fn parse(file: SharedBytes) -> Result<Vec<RawTensor>, String> {
    let bytes = (*file).as_ref();
    let (header, data_at) = header(bytes)?;
    let mut tensors = Vec::new();
    for (name, entry) in members(header).map_err(|why| format!("header: {why}"))? {
        if name != "__metadata__" {
            tensors.push(
                TensorEntry::parse(entry)
                    .map_err(|why| format!("{name}: {why}"))
                    .map(|entry| (name, entry))?,
            );
        }
    }
    tensors.sort_by_key(|(_, entry)| (entry.data.start, entry.data.end));
    let mut end = 0;
    for (name, entry) in &tensors {
        match entry.data.start {
            start if start < end => {
                return Err(format!(
                    "{name}: begins at {start}, inside of another tensor"
                ));
            }
            start if start > end => {
                return Err(format!(
                    "{name}: begins at {start}, and nothing is from {end} on"
                ));
            }
            _ => end = entry.data.end,
        }
    }
    let n_data = (bytes.len() - data_at) as u64;
    if end != n_data {
        return Err(format!(
            "tensors have {end} bytes, the file has room for {n_data}"
        ));
    }
    let tensor = |(name, e): (String, TensorEntry)| {
        RawTensor::new(
            &name,
            e.dtype,
            &e.dims,
            file.clone(),
            data_at as u64 + e.data.start,
        )
    };
    tensors
        .into_iter()
        .map(|entry| tensor(entry).map_err(|e| e.to_string()))
        .collect()
}

/// The header, and the offset of the data behind it.
fn header(bytes: &[u8]) -> Result<(&[u8], usize), String> {
    let Some((len, rest)) = bytes.split_first_chunk() else {
        return Err(format!(
            "is {} bytes long, too short for safetensors",
            bytes.len()
        ));
    };
    let len = u64::from_le_bytes(*len);
    if len > MAX_HEADER_BYTES {
        if rest.first() != Some(&b'{')
            && let Some(what) = atta_formats::recognize(bytes)
        {
            return Err(format!("is no safetensors file: {what}"));
        }
        return Err(format!(
            "a header of {len} bytes, expected at most {MAX_HEADER_BYTES}"
        ));
    }
    let header = rest.get(..len as usize);
    let header = header
        .ok_or_else(|| format!("a header of {len} bytes, but the file has {}", bytes.len()))?;
    Ok((header, 8 + len as usize))
}

/// The longest entry of a tensor: a type, a few dimensions, two offsets.
const MAX_ENTRY_BYTES: usize = 1024;

/// The entry of a tensor in the header.
struct TensorEntry {
    dtype: Dtype,
    dims: Vec<u64>,
    /// Byte range, from the end of the header.
    data: Range<u64>,
}

impl TensorEntry {
    fn parse(json: &[u8]) -> Result<Self, String> {
        if json.len() > MAX_ENTRY_BYTES {
            return Err("has an entry that is too long".into());
        }
        let mut dtype = None;
        let mut dims = None;
        let mut data = None;
        for (key, value) in members(json)? {
            let value: Value = serde_json::from_slice(value).map_err(|e| format!("{key}: {e}"))?;
            match key.as_str() {
                "dtype" => dtype = Some(dtype_of(&value)?),
                "shape" => {
                    dims = Some(
                        numbers(&value)
                            .filter(|d| d.len() <= MAX_DIMS)
                            .ok_or("shape makes no sense")?,
                    )
                }
                "data_offsets" => data = Some(numbers(&value).ok_or("data_offsets make no sense")?),
                other => return Err(format!("{other:?} is unknown")),
            }
        }
        let dtype = dtype.ok_or("has no dtype")?;
        let dims = dims.ok_or("has no shape")?;
        let [start, end] = data.ok_or("has no data_offsets")?[..] else {
            return Err("data_offsets make no sense".into());
        };
        let expected = dims
            .iter()
            .try_fold(dtype.bytes(), |n, &d| n.checked_mul(d));
        match end.checked_sub(start) {
            len if len == expected && len.is_some() => Ok(Self {
                dtype,
                dims,
                data: start..end,
            }),
            _ => Err(format!(
                "{dims:?} of {dtype:?} are not the bytes from {start} to {end}"
            )),
        }
    }
}

fn numbers(value: &Value) -> Option<Vec<u64>> {
    value.as_array()?.iter().map(Value::as_u64).collect()
}

fn dtype_of(value: &Value) -> Result<Dtype, String> {
    Ok(match value.as_str() {
        Some("F64") => Dtype::F64,
        Some("F32") => Dtype::F32,
        Some("F16") => Dtype::F16,
        Some("BF16") => Dtype::BF16,
        Some("F8_E4M3") => Dtype::F8E4M3,
        Some("I64") => Dtype::I64,
        Some("I32") => Dtype::I32,
        Some("U32") => Dtype::U32,
        Some("I16") => Dtype::I16,
        Some("I8") => Dtype::I8,
        Some("U8") => Dtype::U8,
        Some("BOOL") => Dtype::Bool,
        _ => return Err(format!("elements of type {value}, which is not supported")),
    })
}

/// The members of a JSON object, with unparsed values. Refuses duplicate names, which a parser into
/// a map would hide.
fn members(json: &[u8]) -> Result<Vec<(String, &[u8])>, String> {
    let mut scan = JsonScanner { json, at: 0 };
    let mut all = Vec::new();
    scan.expect(b'{')?;
    if scan.peek() == Some(b'}') {
        scan.at += 1;
    } else {
        loop {
            let name = scan.value()?;
            let name: String = serde_json::from_slice(name).map_err(|_| "a name is no text")?;
            scan.expect(b':')?;
            all.push((name, scan.value()?));
            match scan.next() {
                Some(b',') => {}
                Some(b'}') => break,
                _ => return Err(scan.wrong()),
            }
        }
    }
    if scan.peek().is_some() {
        return Err(scan.wrong());
    }
    let mut names = BTreeSet::new();
    match all.iter().find(|(name, _)| !names.insert(name.as_str())) {
        Some((twice, _)) => Err(format!("{twice} is there twice")),
        None => Ok(all),
    }
}

/// A scanner for JSON tokens.
struct JsonScanner<'a> {
    json: &'a [u8],
    at: usize,
}

impl<'a> JsonScanner<'a> {
    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        let rest = self.json.get(self.at..)?;
        self.at += rest.iter().take_while(|b| b.is_ascii_whitespace()).count();
        self.json.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let next = self.peek();
        self.at += usize::from(next.is_some());
        next
    }

    fn expect(&mut self, byte: u8) -> Result<(), String> {
        if self.next() == Some(byte) {
            Ok(())
        } else {
            Err(self.wrong())
        }
    }

    fn wrong(&self) -> String {
        format!("is no JSON that makes sense, at byte {}", self.at)
    }

    /// The text of the value that begins here. It is not validated.
    fn value(&mut self) -> Result<&'a [u8], String> {
        self.peek();
        let start = self.at;
        let mut depth = 0usize;
        while let Some(&byte) = self.json.get(self.at) {
            match byte {
                b'"' => self.string()?,
                b'{' | b'[' => depth += 1,
                b'}' | b']' | b',' | b':' if depth == 0 => break,
                b'}' | b']' => depth -= 1,
                _ => {}
            }
            self.at += 1;
        }
        if start == self.at {
            Err(self.wrong())
        } else {
            Ok(&self.json[start..self.at])
        }
    }

    /// Moves to the closing quote of the string that begins here.
    fn string(&mut self) -> Result<(), String> {
        let mut is_escaped = true;
        for (i, &byte) in self.json[self.at..].iter().enumerate() {
            if byte == b'"' && !is_escaped {
                self.at += i;
                return Ok(());
            }
            // The opening quote counts as escaped.
            is_escaped = byte == b'\\' && !is_escaped;
        }
        Err(self.wrong())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(header: &str, n_data: usize) -> SharedBytes {
        let len = (header.len() as u64).to_le_bytes();
        Arc::new([&len[..], header.as_bytes(), &vec![7; n_data]].concat())
    }

    fn refused(header: &str, n_data: usize) -> String {
        parse(file(header, n_data)).expect_err(header)
    }

    /// An entry of floats.
    fn f32s(name: &str, shape: &str, at: &str) -> String {
        format!(r#""{name}":{{"dtype":"F32","shape":{shape},"data_offsets":{at}}}"#)
    }

    #[test]
    fn tensors_are_read_in_any_order() {
        let json = format!(
            "{{{}, {} ,\"__metadata__\":{{\"format\":\"pt\"}}}}  ",
            f32s("b", "[2,1]", "[4,12]"),
            f32s("a", "[]", "[0,4]")
        );
        let tensors = parse(file(&json, 12)).unwrap();
        let read: Vec<_> = tensors
            .iter()
            .map(|t| (t.name(), t.dims(), t.bytes().len()))
            .collect();
        assert_eq!(read, [("a", &[][..], 4), ("b", &[2, 1][..], 8)]);
        assert_eq!(parse(file(" {} ", 0)).unwrap().len(), 0);
    }

    #[test]
    fn a_header_that_is_longer_than_the_file_is_refused() {
        for (len, why) in [
            (100u64, "but the file has 11"),
            (100_000_001, "at most"),
            (u64::MAX, "at most"),
        ] {
            let bytes: SharedBytes = Arc::new([&len.to_le_bytes()[..], b"{} "].concat());
            assert!(parse(bytes).err().unwrap().contains(why), "{len}");
        }
        assert!(
            parse(Arc::new(vec![0; 7]))
                .err()
                .unwrap()
                .contains("too short")
        );
    }

    #[test]
    fn offsets_that_overlap_leave_holes_or_lie_outside_are_refused() {
        let two = |a: &str, b: &str| format!("{{{},{}}}", f32s("a", "[2]", a), f32s("b", "[2]", b));
        assert_eq!(
            refused(&two("[0,8]", "[4,12]"), 12),
            "b: begins at 4, inside of another tensor"
        );
        assert_eq!(
            refused(&two("[0,8]", "[0,8]"), 8),
            "b: begins at 0, inside of another tensor"
        );
        assert_eq!(
            refused(&two("[0,8]", "[12,20]"), 20),
            "b: begins at 12, and nothing is from 8 on"
        );
        assert_eq!(
            refused(&two("[0,8]", "[8,16]"), 15),
            "tensors have 16 bytes, the file has room for 15"
        );
        assert_eq!(
            refused(&two("[0,8]", "[8,16]"), 17),
            "tensors have 16 bytes, the file has room for 17"
        );
        assert!(parse(file(&two("[8,16]", "[0,8]"), 16)).is_ok());
    }

    #[test]
    fn bytes_that_are_not_those_of_the_shape_are_refused() {
        let huge = [
            u64::MAX.to_string(),
            "18446744073709551616".to_owned(),
            "4611686018427387904".to_owned(),
        ];
        let shapes = [
            "[3]",
            "[2,2]",
            "[-2]",
            "[2.0]",
            "[2e0]",
            "[null]",
            "2",
            "[[2]]",
            "[1,1,1,1,1,1,1,1,2]",
        ]
        .map(String::from);
        for shape in shapes
            .into_iter()
            .chain(huge.iter().map(|n| format!("[{n}]")))
            .chain(huge.iter().map(|n| format!("[{n},2]")))
        {
            refused(&format!("{{{}}}", f32s("a", &shape, "[0,8]")), 8);
        }
        for at in [
            "[8,0]",
            "[0]",
            "[0,8,8]",
            "[0,18446744073709551615]",
            "[18446744073709551608,0]",
            "\"[0,8]\"",
            "[-8,0]",
        ] {
            refused(&format!("{{{}}}", f32s("a", "[2]", at)), 8);
        }
    }

    #[test]
    fn a_name_that_is_there_twice_is_refused() {
        let twice = format!("{{{0},{0}}}", f32s("a", "[1]", "[0,4]"));
        assert_eq!(refused(&twice, 4), "header: a is there twice");
        // The same name, written otherwise.
        let twice = format!(
            "{{{},{}}}",
            f32s("a", "[1]", "[0,4]"),
            f32s("\\u0061", "[1]", "[4,8]")
        );
        assert_eq!(refused(&twice, 8), "header: a is there twice");
        assert_eq!(
            refused(
                r#"{"a":{"dtype":"F32","dtype":"I32","shape":[1],"data_offsets":[0,4]}}"#,
                4
            ),
            "a: dtype is there twice"
        );
    }

    #[test]
    fn invalid_headers_are_refused() {
        let deep = "[".repeat(100_000);
        let bad = [
            "",
            "{",
            "[]",
            "{}{}",
            "{}x",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1",
            "{\"a\":{},}",
            "{a:1}",
            "{\"a\":{\"dtype\":\"F32\"}}",
            "{\"a\":\"",
            "{\"a\\",
            "{,}",
            "{\"a\":[}",
            "{\"a\":]}",
            "{\"\\ud800\":1}",
            "{\"a\":{\"dtype\":\"F4\",\"shape\":[],\"data_offsets\":[0,0]}}",
        ];
        for json in bad.map(String::from).into_iter().chain([
            deep.clone(),
            format!("{{\"a\":{deep}}}"),
            format!("{{\"a\":{{\"shape\":{deep}}}}}"),
        ]) {
            refused(&json, 0);
        }
    }

    #[test]
    fn shards_are_plain_names() {
        for name in [
            "../a", "a/b", "/a", "", ".", "..", "a/", "a\\b", "C:a", "a\0", "./a",
        ] {
            assert!(plain_file_name(name).is_err(), "{name:?}");
        }
        assert!(plain_file_name("model-00001-of-00002.safetensors").is_ok());
    }

    /// A temporary directory for one test.
    fn folder(name: &str, files: &[(&str, Vec<u8>)]) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("atta-safetensors-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        files
            .iter()
            .for_each(|(name, bytes)| std::fs::write(folder.join(name), bytes).unwrap());
        folder
    }

    /// A file of one tensor.
    fn shard(name: &str) -> Vec<u8> {
        let one = file(&format!("{{{}}}", f32s(name, "[1]", "[0,4]")), 4);
        (*one).as_ref().to_vec()
    }

    #[test]
    fn the_index_and_the_shards_agree() {
        let files = [("s1", shard("a")), ("s2", shard("b"))];
        let open = |name: &str, map: &str| {
            let index = format!("{{\"metadata\":{{}},\"weight_map\":{map}}}").into_bytes();
            let folder = folder(name, &[&files[..], &[("index.json", index)]].concat());
            let read = open_sharded(&folder.join("index.json"))
                .map(|all| all.names().map(String::from).collect::<Vec<_>>());
            std::fs::remove_dir_all(folder).unwrap();
            read.map_err(|e| e.to_string())
        };
        assert_eq!(open("good", r#"{"b":"s2","a":"s1"}"#).unwrap(), ["a", "b"]);
        for (name, map, why) in [
            (
                "missing",
                r#"{"a":"s1","b":"s2","c":"s2"}"#,
                "s2: c is in the index, and not in this file",
            ),
            ("extra", r#"{"c":"s1"}"#, "s1: a is not in the index"),
            ("absent", r#"{"a":"s3"}"#, "s3: "),
            (
                "elsewhere",
                r#"{"a":"../s1"}"#,
                "\"../s1\" is no name of a file",
            ),
            (
                "absolute",
                r#"{"a":"/etc/passwd"}"#,
                "\"/etc/passwd\" is no name of a file",
            ),
            ("number", r#"{"a":1}"#, "a is in no file"),
            ("twice", r#"{"a":"s1","a":"s2"}"#, "a is there twice"),
        ] {
            let error = open(name, map).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn files_that_are_too_long_to_be_read_whole_are_refused() {
        let folder = folder("capped", &[("f", vec![b' '; 100])]);
        assert_eq!(read_capped(&folder.join("f"), 100).unwrap().len(), 100);
        assert!(
            read_capped(&folder.join("f"), 99)
                .unwrap_err()
                .to_string()
                .ends_with("is longer than 99 bytes")
        );
        std::fs::remove_dir_all(folder).unwrap();
    }
}
