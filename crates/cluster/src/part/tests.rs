//! Parts on a disk in memory that loses unsynced writes, and sidecars that lie.

use std::{
    cell::Cell,
    fs,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use proptest::prelude::*;

use super::*;

/// A disk that forgets uncommitted writes, and dies after some writes.
#[derive(Clone, Default)]
struct Disk(Arc<Mutex<DiskState>>);

#[derive(Default)]
struct DiskState {
    cached: Vec<u8>,
    durable: Vec<u8>,
    index: Vec<u8>,
    n_left: usize,
}

impl Disk {
    fn new(n_bytes: u64, n_left: usize) -> Self {
        let bytes = vec![0; n_bytes as usize];
        Self(Arc::new(Mutex::new(DiskState {
            cached: bytes.clone(),
            durable: bytes,
            index: Vec::new(),
            n_left,
        })))
    }

    /// What a restart finds.
    fn restarted(&self) -> Self {
        let state = self.0.lock().unwrap();
        Self(Arc::new(Mutex::new(DiskState {
            cached: state.durable.clone(),
            durable: state.durable.clone(),
            index: state.index.clone(),
            n_left: usize::MAX,
        })))
    }
}

fn die(state: &mut DiskState) -> io::Result<()> {
    state.n_left = state
        .n_left
        .checked_sub(1)
        .ok_or(io::ErrorKind::BrokenPipe)?;
    Ok(())
}

impl ReadAt for Disk {
    fn n_bytes(&self) -> u64 {
        self.0.lock().unwrap().cached.len() as u64
    }

    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let offset = offset as usize;
        buf.copy_from_slice(&self.0.lock().unwrap().cached[offset..offset + buf.len()]);
        Ok(())
    }
}

impl PartStorage for Disk {
    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        die(&mut state)?;
        state.cached[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn commit(&self, index: &[u8]) -> io::Result<()> {
        let mut state = self.0.lock().unwrap();
        die(&mut state)?;
        state.durable = state.cached.clone();
        die(&mut state)?;
        state.index = index.to_vec();
        Ok(())
    }
}

/// A file of 1,000 bytes: a header and three tensors with padding between them.
fn whole() -> (Vec<u8>, PartIndex) {
    let bytes: Vec<u8> = (0..1000_u32).map(|i| (i * i % 251) as u8).collect();
    let places = [
        (HEADER, 0, 100),
        ("a", 100, 300),
        ("b", 416, 84),
        ("c", 512, 488),
    ];
    let tensor = |(name, offset, n): (&str, usize, usize)| PartTensor {
        name: name.to_owned(),
        offset: offset as u64,
        bytes: n as u64,
        hash: *blake3::hash(&bytes[offset..offset + n]).as_bytes(),
        presence: Presence::Whole,
    };
    let index = PartIndex::new(1000, places.map(tensor).to_vec()).unwrap();
    (bytes, index)
}

fn slice<'a>(bytes: &'a [u8], range: &Range<u64>) -> &'a [u8] {
    &bytes[range.start as usize..range.end as usize]
}

#[test]
fn a_part_gets_what_a_share_wants_and_serves_it() {
    let (bytes, index) = whole();
    let mut part = Part::new(Disk::new(1000, usize::MAX), index.emptied()).unwrap();
    let wanted = |name: &str| name == "b";
    assert_eq!(part.missing(wanted), [0..100, 416..500]);
    assert_eq!(part.fill(416, &bytes[416..450]).unwrap(), None);
    assert_eq!(part.fill(480, &bytes[480..500]).unwrap(), None);
    assert_eq!(part.missing(wanted), [0..100, 450..480]);
    let mut buf = [0; 10];
    assert!(
        matches!(part.serve(416, &mut buf), Err(PartError::Absent { tensor }) if tensor == "b")
    );
    assert_eq!(part.fill(440, &bytes[440..490]).unwrap(), Some(2));
    assert_eq!(part.fill(0, &bytes[..100]).unwrap(), Some(0));
    assert_eq!(part.missing(wanted), Vec::<Range<u64>>::new());
    assert_eq!(part.missing(|_| true), [100..400, 512..1000]);
    part.serve(450, &mut buf).unwrap();
    assert_eq!(buf, bytes[450..460]);
    assert_eq!(part.index().held_bytes(), 184);
    assert_eq!(model_id(&[part.index().clone()]), model_id(&[index]));
}

#[test]
fn ranges_that_are_not_inside_of_a_tensor_are_refused() {
    let (bytes, index) = whole();
    let mut part = Part::new(Disk::new(1000, usize::MAX), index).unwrap();
    for (offset, n) in [
        (90, 20),
        (400, 16),
        (399, 2),
        (990, 11),
        (1000, 1),
        (u64::MAX, 2),
    ] {
        let n_bytes = n as usize;
        assert!(
            matches!(
                part.fill(offset, &bytes[..n_bytes]),
                Err(PartError::Range { .. })
            ),
            "{offset}"
        );
        assert!(
            matches!(
                part.serve(offset, &mut vec![0; n_bytes]),
                Err(PartError::Range { .. })
            ),
            "{offset}"
        );
    }
}

#[test]
fn wrong_bytes_are_refused_and_asked_for_again() {
    let (bytes, index) = whole();
    let mut part = Part::new(Disk::new(1000, usize::MAX), index.emptied()).unwrap();
    let mut wrong = bytes[100..400].to_vec();
    wrong[7] ^= 1;
    assert!(matches!(part.fill(100, &wrong), Err(PartError::Hash { tensor }) if tensor == "a"));
    assert_eq!(part.missing(|name| name == "a"), [0..100, 100..400]);
    assert_eq!(part.fill(100, &bytes[100..400]).unwrap(), Some(1));
    // A second copy does not overwrite a whole one.
    assert_eq!(part.fill(100, &wrong).unwrap(), None);
    assert_eq!(part.verify().unwrap(), Vec::<String>::new());
}

#[test]
fn a_lying_sidecar_is_found_out() {
    let (mut bytes, index) = whole();
    bytes[520] ^= 1;
    let disk = Disk::new(1000, usize::MAX);
    disk.write_all_at(0, &bytes).unwrap();
    let mut part = Part::new(disk, index.clone()).unwrap();
    assert_eq!(part.verify().unwrap(), ["c"]);
    assert_eq!(
        part.missing(|_| true),
        vec![Range {
            start: 512,
            end: 1000
        }]
    );
    assert!(matches!(
        Part::new(Disk::new(999, 0), index),
        Err(PartError::Length { .. })
    ));
}

#[test]
fn a_crash_at_any_write_leaves_no_untruth() {
    let (bytes, index) = whole();
    let empty = index.emptied();
    let ends = Cell::new(0);
    for n_left in 0..60 {
        let disk = Disk::new(1000, n_left);
        let run = || -> Result<(), PartError> {
            let mut part = Part::new(disk.clone(), empty.clone())?;
            part.commit()?;
            for range in part.missing(|_| true) {
                for start in range.clone().step_by(64) {
                    let piece = start..range.end.min(start + 64);
                    part.fill(piece.start, slice(&bytes, &piece))?;
                }
                part.commit()?;
            }
            Ok(())
        };
        ends.set(ends.get() + usize::from(run().is_ok()));
        let disk = disk.restarted();
        let saved = disk.0.lock().unwrap().index.clone();
        if saved.is_empty() {
            continue;
        }
        let mut part = Part::new(disk, PartIndex::parse(&saved).unwrap()).unwrap();
        assert_eq!(part.verify().unwrap(), Vec::<String>::new(), "{n_left}");
        for range in part.missing(|_| true) {
            part.fill(range.start, slice(&bytes, &range)).unwrap();
        }
        assert_eq!(part.index(), &index);
    }
    assert!(ends.get() > 0 && ends.get() < 60);
}

#[test]
fn every_torn_or_changed_sidecar_is_an_error() {
    let bytes = whole().1.to_bytes();
    assert_eq!(PartIndex::parse(&bytes).unwrap(), whole().1);
    for n in 0..bytes.len() {
        assert!(PartIndex::parse(&bytes[..n]).is_err(), "{n}");
        let mut wrong = bytes.clone();
        wrong[n] ^= 0x20;
        assert!(PartIndex::parse(&wrong).is_err(), "{n}");
    }
}

#[test]
fn a_sidecar_with_a_right_checksum_can_still_lie_about_places() {
    let (_, index) = whole();
    let lie = |change: fn(&mut Vec<PartTensor>)| {
        let mut lying = index.clone();
        change(lying.tensors_mut());
        PartIndex::parse(&lying.to_bytes())
    };
    assert!(lie(|_| ()).is_ok());
    assert!(lie(|t| t[3].bytes = 489).is_err());
    assert!(lie(|t| t[3].bytes = u64::MAX).is_err());
    assert!(lie(|t| t[2].offset = 399).is_err());
    assert!(lie(|t| t[2].bytes = 0).is_err());
    assert!(lie(|t| t[2].name = "a".to_owned()).is_err());
    assert!(lie(|t| drop(t.remove(0))).is_err());
    assert!(lie(|t| t.swap(1, 2)).is_err());
    assert!(lie(Vec::clear).is_err());
    // A count that the bytes cannot hold.
    let mut bytes = index.to_bytes();
    bytes[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    let n = bytes.len() - 32;
    let checksum = *blake3::hash(&bytes[..n]).as_bytes();
    bytes[n..].copy_from_slice(&checksum);
    assert!(
        matches!(PartIndex::parse(&bytes), Err(PartError::Index(why)) if why.contains("more tensors"))
    );
}

#[test]
fn a_part_on_disk_is_sparse_survives_a_restart_and_can_be_evicted() {
    let directory = std::env::temp_dir().join(format!("atta-part-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let (bytes, index) = whole();
    let paths: Vec<PathBuf> = (0..3)
        .map(|i| directory.join(format!("m{i}.gguf")))
        .collect();
    for path in &paths {
        let mut part = PartFile::create(path, &index).unwrap();
        part.fill(416, &bytes[416..500]).unwrap();
        part.commit().unwrap();
        assert!(PartFile::create(path, &index).is_err());
        let part = PartFile::open(path).unwrap();
        assert_eq!(part.missing(|_| true), [0..100, 100..400, 512..1000]);
        assert_eq!(fs::read(path).unwrap()[416..500], bytes[416..500]);
    }
    for (path, age) in paths.iter().zip([20, 30, 10]) {
        let index = fs::File::options()
            .write(true)
            .open(PartFile::index_path(path))
            .unwrap();
        index
            .set_modified(SystemTime::now() - Duration::from_secs(age))
            .unwrap();
    }
    let kept = [paths[2].clone()];
    assert_eq!(
        evict(&directory, 100, 300, &kept).unwrap(),
        [paths[1].clone()]
    );
    assert!(!paths[1].exists() && paths[0].exists());
    assert_eq!(
        evict(&directory, 100, 300, &kept).unwrap(),
        Vec::<PathBuf>::new()
    );
    let refused = evict(&directory, 250, 300, &kept).unwrap_err();
    assert!(
        matches!(refused, PartError::DiskBudget { free: 216, .. }),
        "{refused}"
    );
    // A torn sidecar counts as the oldest part of its file's length.
    fs::write(PartFile::index_path(&paths[0]), b"ATP1").unwrap();
    assert!(matches!(
        PartFile::open(&paths[0]),
        Err(PartError::Index(_))
    ));
    assert_eq!(
        evict(&directory, 1, 500, &kept).unwrap(),
        [paths[0].clone()]
    );
    fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn a_part_that_was_written_after_its_sidecar_is_hashed_again() {
    let directory = std::env::temp_dir().join(format!("atta-written-{}", std::process::id()));
    fs::create_dir_all(&directory).unwrap();
    let path = directory.join("m.gguf");
    let (bytes, index) = whole();
    let mut part = PartFile::create(&path, &index).unwrap();
    part.fill(100, &bytes[100..400]).unwrap();
    part.fill(416, &bytes[416..500]).unwrap();
    part.commit().unwrap();
    drop(part);
    let missing = || PartFile::open(&path).unwrap().missing(|_| true);
    assert_eq!(missing(), [0..100, 512..1000]);
    let mut damaged = fs::read(&path).unwrap();
    damaged[450] ^= 1;
    fs::write(&path, damaged).unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    let later = SystemTime::now() + Duration::from_secs(5);
    file.set_modified(later).unwrap();
    // Windows may keep a directory with a file that is open.
    drop(file);
    assert_eq!(missing(), [0..100, 416..500, 512..1000]);
    // The sidecar on disk says so, too.
    let index = PartFile::read_index(&path).unwrap();
    assert_eq!(index.held_bytes(), 300);
    fs::remove_dir_all(&directory).unwrap();
}

proptest! {
    #[test]
    fn parse_gives_back_what_was_written_or_an_error(
            bytes in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
        if let Ok(index) = PartIndex::parse(&bytes) {
            prop_assert_eq!(index.to_bytes(), bytes);
        }
    }

    #[test]
    fn ranges_that_arrived_are_sorted_apart_and_complete(
        ranges in proptest::collection::vec((0..100_u64, 1..30_u64), 0..20),
    ) {
        let mut parts = Vec::new();
        let mut has = [false; 130];
        for (start, n) in ranges {
            insert(&mut parts, start..start + n);
            has[start as usize..(start + n) as usize].fill(true);
        }
        prop_assert!(parts.windows(2).all(|pair| pair[0].end < pair[1].start));
        let absent: Vec<u64> = gaps(&(0..130), &parts).into_iter().flatten().collect();
        let expected: Vec<u64> = (0..130).filter(|i| !has[*i as usize]).collect();
        prop_assert_eq!(absent, expected);
    }
}

#[test]
fn a_file_with_its_metadata_all_over_it_is_not_divided() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/qsf/plain.qsf"
    );
    let files = atta_store::ModelFiles::open(path.as_ref()).unwrap();
    let error = index_of(&files).unwrap_err();
    assert!(matches!(error, PartError::Scattered), "{error}");
}
