//! Links that this machine has measured lately, in a file: the next program need not send a
//! megabyte to each node again.
//!
//! Knows no network. The one idea: it is a convenience, so that a file that cannot be read or
//! written costs a measurement and nothing else.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::PathBuf,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use serde::{Deserialize, Serialize};

use crate::wire::message::{LinkNumbers, NodeAddress};

/// Age from which a link is measured anew: machines move, and others use the network.
const MAX_AGE: Duration = Duration::from_secs(600);
/// Most links of a file.
const MAX_LINKS: usize = 64;
/// Most bytes of it.
const MAX_BYTES: u64 = 64 << 10;

/// The file of the links of a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptLinks {
    path: PathBuf,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeptLink {
    node: NodeAddress,
    /// Seconds since 1970.
    measured_at: u64,
    link: LinkNumbers,
}

impl KeptLink {
    fn is_fresh(&self, now: u64) -> bool {
        let age = now.checked_sub(self.measured_at);
        let rate = self.link.bytes_per_s;
        age.is_some_and(|age| age < MAX_AGE.as_secs()) && rate.is_finite() && rate > 0.0
    }
}

impl KeptLinks {
    /// Links that are kept in this file.
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    /// The link to a node: the one that is kept, or a measured one, which is kept then.
    pub(crate) fn link(
        &self,
        node: &NodeAddress,
        measure: impl FnOnce() -> Result<LinkNumbers, String>,
    ) -> Result<LinkNumbers, String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        self.link_at(now.unwrap_or_default().as_secs(), node, measure)
    }

    fn link_at(
        &self,
        now: u64,
        node: &NodeAddress,
        measure: impl FnOnce() -> Result<LinkNumbers, String>,
    ) -> Result<LinkNumbers, String> {
        let mut links = self.read().unwrap_or_default();
        links.retain(|kept| kept.is_fresh(now));
        if let Some(kept) = links.iter().find(|kept| kept.node == *node) {
            return Ok(kept.link);
        }
        let link = measure()?;
        links.truncate(MAX_LINKS - 1);
        links.push(KeptLink {
            node: node.clone(),
            measured_at: now,
            link,
        });
        // Else it is measured again.
        let _ = self.write(&links);
        Ok(link)
    }

    fn read(&self) -> io::Result<Vec<KeptLink>> {
        let mut text = String::new();
        File::open(&self.path)?
            .take(MAX_BYTES)
            .read_to_string(&mut text)?;
        Ok(serde_json::from_str(&text)?)
    }

    fn write(&self, links: &[KeptLink]) -> io::Result<()> {
        if let Some(directory) = self.path.parent() {
            fs::create_dir_all(directory)?;
        }
        let new = self.path.with_extension(std::process::id().to_string());
        fs::write(&new, serde_json::to_vec(links)?)?;
        fs::rename(&new, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::NodeName;

    #[test]
    fn a_link_is_measured_anew_for_another_address_after_a_while_and_without_its_file() {
        let name = format!("atta-links-{}.json", std::process::id());
        let path = std::env::temp_dir().join(name);
        let links = KeptLinks::at(path.clone());
        let node = |port: u16| NodeAddress {
            name: NodeName::new("pi1").unwrap(),
            address: ([10, 0, 0, 1], port).into(),
        };
        let numbers = |rtt_p50_us: u64| LinkNumbers {
            rtt_p50_us,
            rtt_p90_us: 9,
            bytes_per_s: 1e8,
        };
        let rtt = |now: u64, port: u16, measured: u64| {
            let link = links.link_at(now, &node(port), || Ok(numbers(measured)));
            link.unwrap().rtt_p50_us
        };
        assert_eq!(rtt(1000, 1, 5), 5);
        assert_eq!(rtt(1001, 1, 6), 5);
        assert_eq!(rtt(1001, 2, 7), 7);
        assert_eq!(rtt(1000 + MAX_AGE.as_secs(), 1, 8), 8);
        assert_eq!(rtt(999, 2, 9), 9, "a clock that was put back");
        fs::write(&path, b"[{").unwrap();
        assert_eq!(rtt(1002, 1, 10), 10);
        let failed = links.link_at(2000, &node(1), || Err("gone".to_owned()));
        assert_eq!(failed, Err("gone".to_owned()));
        fs::remove_file(path).unwrap();
    }
}
