//! Reads the central directory of a zip archive with uncompressed files, as PyTorch writes it.
//!
//! Compression, encryption, multi-disk archives, duplicate names and overlapping files are refused.
//! Nothing is copied; a file of the archive is a byte range.
//!
//! Source: PKWARE's APPNOTE.TXT 6.3, sections 4.3.7 (local header), 4.3.12 (directory), 4.3.14 to
//! 4.3.16 (end) and 4.5.3 (64 bits).

use std::{collections::BTreeMap, ops::Range};

const LOCAL: u32 = 0x0403_4b50;
const ENTRY: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END_64: u32 = 0x0606_4b50;
const LOCATOR_64: u32 = 0x0706_4b50;

const END_BYTES: usize = 22;
const LOCATOR_BYTES: usize = 20;
/// The longest comment behind the end record.
const MAX_COMMENT: usize = 0xffff;
/// The most files of an archive; each tensor has at most one.
const MAX_FILES: usize = 1 << 20;
/// The id of the extra field with 64-bit numbers.
const FIELD_64: u16 = 1;

/// Byte ranges of the files, by name.
pub(super) type Files = BTreeMap<String, Range<usize>>;

/// A file of the archive.
struct ZipEntry {
    name: String,
    /// Offset of its local header.
    header: usize,
    data: Range<usize>,
}

/// The files of an archive.
pub(super) fn files(bytes: &[u8]) -> Result<Files, String> {
    let directory = directory(bytes)?;
    let mut at = Cursor {
        bytes: &bytes[..directory.end],
        at: directory.start,
    };
    let mut all = Vec::new();
    while at.at < directory.end {
        if all.len() == MAX_FILES {
            return Err(format!("has more than {MAX_FILES} files"));
        }
        all.push(entry(&mut at, &bytes[..directory.start]).ok_or("its directory makes no sense")??);
    }
    all.sort_by_key(|file| file.header);
    if let Some(pair) = all
        .windows(2)
        .find(|pair| pair[0].data.end > pair[1].header)
    {
        return Err(format!("{} and {} share bytes", pair[0].name, pair[1].name));
    }
    let mut files = Files::new();
    for ZipEntry { name, data, .. } in all {
        if files.insert(name.clone(), data).is_some() {
            return Err(format!("{name} is there twice"));
        }
    }
    Ok(files)
}

/// The byte range of the central directory, from the end record.
fn directory(bytes: &[u8]) -> Result<Range<usize>, String> {
    let earliest = bytes.len().saturating_sub(END_BYTES + MAX_COMMENT);
    let end = (earliest..bytes.len())
        .rev()
        .find(|&at| is_end(bytes, at))
        .ok_or("has no end of a zip archive")?;
    let mut at = Cursor { bytes, at: end + 4 };
    let disks = [at.u16(), at.u16()];
    let _n_entries = [at.u16(), at.u16()];
    let len = at.u32().map(u64::from);
    let start = at.u32().map(u64::from);
    if disks.iter().any(|disk| !matches!(disk, Some(0 | 0xffff))) {
        return Err("is a part of an archive of several".into());
    }
    let (len, start) = match end_64(bytes, end) {
        Some(record) => record?,
        None => len.zip(start).ok_or("ends in its end")?,
    };
    let directory_end = start.checked_add(len).filter(|&stop| stop <= end as u64);
    let stop = directory_end
        .ok_or_else(|| format!("a directory of {len} bytes at {start} is not before its end"))?;
    // Both are at most the length of the mapped file, so they fit usize.
    Ok(start as usize..stop as usize)
}

/// Whether there is an end record at `at` whose comment extends to the end of the file.
fn is_end(bytes: &[u8], at: usize) -> bool {
    let mut cursor = Cursor { bytes, at };
    let is_here = cursor.u32() == Some(END);
    let comment = Cursor {
        bytes,
        at: at + END_BYTES - 2,
    }
    .u16();
    is_here && comment.is_some_and(|len| at + END_BYTES + usize::from(len) == bytes.len())
}

/// Length and start of the directory from the zip64 end record, if there is a locator for it.
fn end_64(bytes: &[u8], end: usize) -> Option<Result<(u64, u64), String>> {
    let mut at = Cursor {
        bytes: &bytes[..end],
        at: end.checked_sub(LOCATOR_BYTES)?,
    };
    (at.u32()? == LOCATOR_64).then_some(())?;
    at.skip(4)?;
    let record = usize::try_from(at.u64()?).ok();
    let read = record.and_then(|record| {
        let mut at = Cursor {
            bytes: &bytes[..end],
            at: record,
        };
        (at.u32()? == END_64).then_some(())?;
        at.skip(36)?;
        at.u64().zip(at.u64())
    });
    Some(read.ok_or_else(|| "its zip64 end record is not where it should be".into()))
}

/// Reads the directory entry at the cursor. `data` is the part of the archive before the directory.
fn entry(at: &mut Cursor<'_>, data: &[u8]) -> Option<Result<ZipEntry, String>> {
    (at.u32()? == ENTRY).then_some(())?;
    at.skip(4)?;
    let flags = at.u16()?;
    let method = at.u16()?;
    at.skip(8)?;
    let sizes = [at.u32()?, at.u32()?];
    let name_len = at.u16()?;
    let extra_len = at.u16()?;
    let comment_len = at.u16()?;
    at.skip(8)?;
    let local = at.u32()?;
    let name = at.take(name_len.into())?;
    let extra = at.take(extra_len.into())?;
    at.skip(comment_len.into())?;
    let name = String::from_utf8_lossy(name).into_owned();
    let [unpacked, packed, local] = wide([sizes[1], sizes[0], local], extra)?;
    Some(match (flags & 1, method) {
        (1, _) => Err(format!("{name} is encrypted")),
        (_, 0) if packed == unpacked => stored(data, name, local, packed),
        (_, 0) => Err(format!(
            "{name} is {packed} bytes here and {unpacked} there"
        )),
        _ => Err(format!(
            "{name} is compressed, which torch.save does not do"
        )),
    })
}

/// The numbers of an entry. Those that are all ones are in its zip64 extra field.
fn wide(numbers: [u32; 3], extra: &[u8]) -> Option<[u64; 3]> {
    let mut field = Cursor {
        bytes: field_64(extra).unwrap_or(&[]),
        at: 0,
    };
    let mut wide = [0; 3];
    for (wide, number) in wide.iter_mut().zip(numbers) {
        *wide = if number == u32::MAX {
            field.u64()?
        } else {
            number.into()
        };
    }
    Some(wide)
}

fn field_64(extra: &[u8]) -> Option<&[u8]> {
    let mut at = Cursor {
        bytes: extra,
        at: 0,
    };
    loop {
        let id = at.u16()?;
        let len = at.u16()?;
        let field = at.take(len.into())?;
        if id == FIELD_64 {
            return Some(field);
        }
    }
}

/// The file whose local header is at `local`.
fn stored(data: &[u8], name: String, local: u64, len: u64) -> Result<ZipEntry, String> {
    let found = usize::try_from(local).ok().and_then(|header| {
        let mut at = Cursor {
            bytes: data,
            at: header,
        };
        (at.u32()? == LOCAL).then_some(())?;
        at.skip(22)?;
        let name_len = at.u16()?;
        let extra_len = at.u16()?;
        (at.take(name_len.into())? == name.as_bytes()).then_some(())?;
        at.skip(extra_len.into())?;
        let start = at.at;
        at.skip(usize::try_from(len).ok()?)?;
        Some((header, start..at.at))
    });
    match found {
        Some((header, data)) => Ok(ZipEntry { name, header, data }),
        None => Err(format!(
            "{name} should be {len} bytes at {local}, but is not there"
        )),
    }
}

/// Reads numbers from bytes, with bounds checks.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let taken = self.bytes.get(self.at..)?.get(..n)?;
        self.at += n;
        Some(taken)
    }

    fn skip(&mut self, n: usize) -> Option<()> {
        self.take(n).map(drop)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take(2)?.first_chunk().map(|&b| u16::from_le_bytes(b))
    }

    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.first_chunk().map(|&b| u32::from_le_bytes(b))
    }

    fn u64(&mut self) -> Option<u64> {
        self.take(8)?.first_chunk().map(|&b| u64::from_le_bytes(b))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The fields of a directory entry, which tests falsify.
    #[derive(Clone)]
    pub(in crate::pickle) struct Claims {
        pub(in crate::pickle) method: u16,
        pub(in crate::pickle) flags: u16,
        pub(in crate::pickle) sizes: [u32; 2],
        pub(in crate::pickle) local: u32,
        pub(in crate::pickle) extra: Vec<u8>,
    }

    fn leaves(numbers: &[u32], halves: &[u16]) -> Vec<u8> {
        let words = numbers.iter().flat_map(|n| n.to_le_bytes());
        words
            .chain(halves.iter().flat_map(|n| n.to_le_bytes()))
            .collect()
    }

    /// An archive of uncompressed files, whose entries `change` may falsify.
    pub(in crate::pickle) fn archive(
        files: &[(&str, &[u8])],
        change: impl Fn(usize, &mut Claims),
    ) -> Vec<u8> {
        let mut data = Vec::new();
        let mut directory = Vec::new();
        for (i, (name, bytes)) in files.iter().enumerate() {
            let len = bytes.len() as u32;
            let local = data.len() as u32;
            let mut claims = Claims {
                method: 0,
                flags: 0,
                sizes: [len, len],
                local,
                extra: Vec::new(),
            };
            change(i, &mut claims);
            data.extend(
                [
                    leaves(&[LOCAL, 0, 0, 0], &[0]),
                    leaves(&[len, len], &[name.len() as u16, 3]),
                ]
                .concat(),
            );
            data.extend([name.as_bytes(), b"pad", bytes].concat());
            let Claims {
                method,
                flags,
                sizes,
                local,
                extra,
            } = claims;
            directory.extend(
                [
                    leaves(&[ENTRY], &[0, 0, flags, method, 0, 0]),
                    leaves(&[0], &[]),
                ]
                .concat(),
            );
            directory.extend(leaves(
                &sizes,
                &[name.len() as u16, extra.len() as u16, 0, 0, 0],
            ));
            directory.extend([leaves(&[0, local], &[]), name.as_bytes().to_vec(), extra].concat());
        }
        let start = data.len() as u32;
        let len = directory.len() as u32;
        let n = files.len() as u16;
        let end = [leaves(&[END], &[0, 0, n, n]), leaves(&[len, start], &[0])].concat();
        [data, directory, end].concat()
    }

    fn same(_: usize, _: &mut Claims) {}

    fn refused(change: impl Fn(usize, &mut Claims)) -> String {
        files(&archive(&[("a/b", b"123"), ("a/c", b"4567")], change)).unwrap_err()
    }

    #[test]
    fn files_are_found_by_the_directory() {
        let bytes = archive(&[("a/b", b"123"), ("a/c", b""), ("d", b"4567")], same);
        let files = files(&bytes).unwrap();
        let listed: Vec<_> = files
            .iter()
            .map(|(name, range)| (&**name, &bytes[range.clone()]))
            .collect();
        assert_eq!(listed, [("a/b", &b"123"[..]), ("a/c", b""), ("d", b"4567")]);
    }

    #[test]
    fn a_comment_may_follow() {
        let mut bytes = archive(&[("a", b"1")], same);
        let n = bytes.len();
        bytes[n - 2] = 4;
        bytes.extend(b"PK\x05\x06");
        assert_eq!(files(&bytes).unwrap().len(), 1);
        bytes.push(0);
        assert_eq!(files(&bytes), Err("has no end of a zip archive".into()));
    }

    #[test]
    fn numbers_of_64_bits_are_read() {
        let field = |numbers: &[u64]| -> Vec<u8> {
            let numbers: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
            [
                &9u16.to_le_bytes()[..],
                &1u16.to_le_bytes(),
                b"x",
                &leaves(&[], &[1, numbers.len() as u16]),
                &numbers,
            ]
            .concat()
        };
        let wide = |numbers: &'static [u64]| {
            move |i: usize, c: &mut Claims| {
                if i == 0 {
                    (c.sizes, c.local, c.extra) = ([u32::MAX; 2], u32::MAX, field(numbers));
                }
            }
        };
        let bytes = archive(&[("a", b"123"), ("b", b"4567")], wide(&[3, 3, 0]));
        assert_eq!(&bytes[files(&bytes).unwrap()["a"].clone()], b"123");
        assert_eq!(refused(wide(&[3, 3])), "its directory makes no sense");
        assert_eq!(
            refused(wide(&[3, 3, u64::MAX])),
            "a/b should be 3 bytes at 18446744073709551615, but is not there"
        );
        assert!(
            refused(wide(&[u64::MAX, u64::MAX, 0]))
                .starts_with("a/b should be 18446744073709551615 bytes at 0")
        );
    }

    #[test]
    fn the_zip64_end_record_is_used_if_there_is_a_locator() {
        let plain = archive(&[("a", b"1")], same);
        let (body, end) = plain.split_at(plain.len() - END_BYTES);
        let len = end[12..16].to_vec();
        let start = end[16..20].to_vec();
        let record = [
            &leaves(&[END_64], &[0; 18])[..],
            &len,
            &[0; 4],
            &start,
            &[0; 4],
        ]
        .concat();
        let with = |at: u64| {
            let locator = [
                &leaves(&[LOCATOR_64, 0], &[])[..],
                &at.to_le_bytes(),
                &[1, 0, 0, 0],
            ]
            .concat();
            let hollow = [&end[..12], &[0xff; 8], &end[20..]].concat();
            files(&[body, &record, &locator, &hollow].concat())
        };
        assert_eq!(with(body.len() as u64).unwrap().len(), 1);
        for at in [0, body.len() as u64 + 1, u64::MAX] {
            assert_eq!(
                with(at),
                Err("its zip64 end record is not where it should be".into())
            );
        }
    }

    #[test]
    fn false_sizes_and_offsets_are_refused() {
        let first = |change: fn(&mut Claims)| {
            move |i: usize, c: &mut Claims| {
                if i == 0 {
                    change(c)
                }
            }
        };
        assert_eq!(
            refused(first(|c| c.sizes = [3, 4])),
            "a/b is 3 bytes here and 4 there"
        );
        assert!(
            refused(first(|c| c.sizes = [4_000_000_000; 2]))
                .starts_with("a/b should be 4000000000 bytes at 0")
        );
        assert!(refused(first(|c| c.local = 5)).ends_with("at 5, but is not there"));
        assert!(refused(first(|c| c.local = 39)).starts_with("a/b should be 3 bytes at 39"));
        assert_eq!(
            refused(first(|c| c.sizes = [5; 2])),
            "a/b and a/c share bytes"
        );
        assert_eq!(
            refused(first(|c| c.method = 8)),
            "a/b is compressed, which torch.save does not do"
        );
        assert_eq!(refused(first(|c| c.flags = 1)), "a/b is encrypted");
        assert_eq!(
            files(&archive(&[("a", b"1"), ("a", b"2")], same)),
            Err("a is there twice".into())
        );
    }

    #[test]
    fn a_directory_that_is_not_there_is_refused() {
        let mut bytes = archive(&[("a", b"1")], same);
        let n = bytes.len();
        bytes[n - 6..n - 2].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(
            files(&bytes)
                .unwrap_err()
                .ends_with("at 4294967295 is not before its end")
        );
        bytes[n - 6..n - 2].copy_from_slice(&1u32.to_le_bytes());
        assert_eq!(files(&bytes), Err("its directory makes no sense".into()));
        bytes[n - 18] = 1;
        assert_eq!(
            files(&bytes),
            Err("is a part of an archive of several".into())
        );
    }
}
