//! Events of the rings that programs of this machine have opened, for `atta cluster log`.
//!
//! A file of JSON, a line for each event, that programs append to. The one idea: it is a
//! convenience, so that whatever goes wrong with it is no failure of a ring.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Seek, SeekFrom, Write},
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde_json::{Value, json};

/// Bytes of the file from which its older half is dropped.
const MAX_BYTES: u64 = 64 << 10;

/// An event that was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeptEvent {
    /// The program that owned the ring, as a node.
    pub(crate) node: String,
    /// Time since then.
    pub(crate) ago: Duration,
    /// One line.
    pub(crate) text: String,
}

/// Appends an event.
///
/// # Errors
/// Those of the system.
pub(crate) fn append(path: &Path, node: &str, text: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    if fs::metadata(path).is_ok_and(|file| file.len() > MAX_BYTES) {
        drop_older_half(path)?;
    }
    let at = since_1970().as_secs();
    let line = json!({ "at": at, "node": node, "event": text }).to_string() + "\n";
    // In one write, so that lines of several programs do not mix.
    let mut file = OpenOptions::new().append(true).create(true).open(path)?;
    file.write_all(line.as_bytes())
}

/// The events of the file, the oldest first. A line that is none is skipped.
pub(crate) fn read(path: &Path) -> Vec<KeptEvent> {
    let text = tail(path).unwrap_or_default();
    text.lines().filter_map(parse).collect()
}

fn parse(line: &str) -> Option<KeptEvent> {
    let value: Value = serde_json::from_str(line).ok()?;
    let at = Duration::from_secs(value["at"].as_u64()?);
    Some(KeptEvent {
        node: value["node"].as_str()?.to_owned(),
        ago: since_1970().saturating_sub(at),
        text: value["event"].as_str()?.to_owned(),
    })
}

/// The last bytes of the file. Their first line may lack its beginning.
fn tail(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let n = file.metadata()?.len();
    file.seek(SeekFrom::Start(n.saturating_sub(2 * MAX_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(2 * MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn drop_older_half(path: &Path) -> io::Result<()> {
    let text = tail(path)?;
    let lines: Vec<&str> = text.lines().collect();
    let newer = &lines[lines.len() / 2..];
    let new = path.with_extension("new");
    fs::write(&new, newer.join("\n") + "\n")?;
    fs::rename(&new, path)
}

fn since_1970() -> Duration {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_in_order_and_the_older_ones_go_when_there_are_many() {
        let directory = std::env::temp_dir().join(format!("atta-events-{}", std::process::id()));
        let path = directory.join("cluster/events");
        assert_eq!(read(&path), []);
        append(&path, "lap", "the first").unwrap();
        fs::write(
            &path,
            fs::read_to_string(&path).unwrap() + "{\"at\": 1}\nno event\n",
        )
        .unwrap();
        append(&path, "lap", "a \"line\"\nof two").unwrap();
        let events = read(&path);
        let texts: Vec<&str> = events.iter().map(|event| event.text.as_str()).collect();
        assert_eq!(texts, ["the first", "a \"line\"\nof two"]);
        assert!(events.iter().all(|event| event.node == "lap"));
        assert!(
            events
                .iter()
                .all(|event| event.ago < Duration::from_secs(600))
        );
        for i in 0..3000 {
            append(&path, "lap", &format!("{i} {}", "x".repeat(60))).unwrap();
        }
        let last = read(&path).pop().unwrap();
        assert!(last.text.starts_with("2999 "), "{last:?}");
        assert!(fs::metadata(&path).unwrap().len() <= MAX_BYTES + 200);
        fs::remove_dir_all(directory).unwrap();
    }
}
