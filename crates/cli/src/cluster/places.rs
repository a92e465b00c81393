//! Files of a cluster on this machine.

use std::{
    fs,
    io::{self, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
};

use atta_cluster::key::{ClusterKey, KeyError};

use crate::{
    failure::Failure,
    user_directory::{self, make_private},
};

/// Most addresses that are remembered.
const MAX_PEERS: usize = 64;

/// Directories, made when something is written to them.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    /// Key and addresses: `$XDG_CONFIG_HOME/atta/cluster`, or `~/.config/atta/cluster`.
    config: PathBuf,
    /// What can be made again: `$XDG_CACHE_HOME/atta/cluster`, or `~/.cache/atta/cluster`.
    cache: PathBuf,
    /// The file of the key, if it is another one.
    key: Option<PathBuf>,
}

impl Places {
    /// The places of this user; the key may be elsewhere, and then so are the addresses.
    pub(crate) fn new(key: Option<&Path>) -> Result<Self, Failure> {
        let config = directory("XDG_CONFIG_HOME", ".config")?;
        Ok(Self {
            config,
            cache: directory("XDG_CACHE_HOME", ".cache")?,
            key: key.map(Path::to_owned),
        })
    }

    /// The file of the key.
    pub(crate) fn key(&self) -> PathBuf {
        self.key.clone().unwrap_or_else(|| self.config.join("key"))
    }

    /// The file of the rates of this machine as a node, whose models lie elsewhere than those of a
    /// program that asks.
    pub(crate) fn node_rates(&self) -> PathBuf {
        self.cache.join("node-rates.json")
    }

    /// The file of the rates of this machine as one that asks nodes.
    pub(crate) fn asker_rates(&self) -> PathBuf {
        self.cache.join("asker-rates.json")
    }

    /// The directory of hashes of model files.
    pub(crate) fn hashes(&self) -> PathBuf {
        self.cache.join("hashes")
    }

    /// The file of events of rings that this machine has opened.
    pub(crate) fn events(&self) -> PathBuf {
        self.cache.join("events")
    }

    /// The file of links to nodes that were measured lately.
    pub(crate) fn links(&self) -> PathBuf {
        self.cache.join("links.json")
    }

    /// The directory of the files of KV journals, which have no names while they are used.
    pub(crate) fn journal(&self) -> PathBuf {
        self.cache.join("journal")
    }

    /// The directory of states of texts, of layers that this machine runs as a coordinator.
    pub(crate) fn states(&self) -> PathBuf {
        self.cache.join("states")
    }

    /// The directory of parts of models, unless another one is given.
    pub(crate) fn parts(&self) -> PathBuf {
        self.cache.join("parts")
    }

    /// The directory of models that were converted to GGUF.
    #[cfg(feature = "leap")]
    pub(crate) fn conversions(&self) -> PathBuf {
        self.cache.join("leap")
    }

    /// The key, if there is one.
    pub(crate) fn read_key(&self) -> Result<Option<ClusterKey>, Failure> {
        match ClusterKey::read(&self.key()) {
            Ok(key) => Ok(Some(key)),
            Err(KeyError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(None)
            }
            Err(error) => Err(Failure::Failed(error.to_string())),
        }
    }

    /// Keeps a key; an older one is lost.
    pub(crate) fn write_key(&self, key: &ClusterKey) -> Result<(), Failure> {
        let path = self.key();
        let parent = path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        parent
            .map_or(Ok(()), make_private)
            .map_err(|error| Failure::at(&path, error))?;
        key.write(&path)
            .map_err(|error| Failure::Failed(error.to_string()))
    }

    /// Keeps a key beside the one in use, until [`use_next_key`](Self::use_next_key).
    pub(crate) fn write_next_key(&self, key: &ClusterKey) -> Result<(), Failure> {
        key.write(&self.next_key())
            .map_err(|error| Failure::Failed(error.to_string()))
    }

    /// Uses the key that was kept beside; the old one is lost, and the addresses are those of the
    /// new one.
    pub(crate) fn use_next_key(
        &self,
        old: &ClusterKey,
        peers: &[SocketAddr],
    ) -> Result<(), Failure> {
        let next = self.next_key();
        let key = ClusterKey::read(&next).map_err(|error| Failure::Failed(error.to_string()))?;
        fs::rename(&next, self.key()).map_err(|error| Failure::at(&next, error))?;
        // Without them, nodes are found by other means.
        let _ = self.write_peers(&key, peers);
        let _ = fs::remove_file(self.peers(old));
        Ok(())
    }

    /// Forgets the key that was kept beside.
    pub(crate) fn drop_next_key(&self) {
        // It is in no use, and the next one replaces it.
        let _ = fs::remove_file(self.next_key());
    }

    /// The file of the key that is kept beside.
    pub(crate) fn next_key(&self) -> PathBuf {
        let mut name = self.key().into_os_string();
        name.push(".next");
        name.into()
    }

    /// The remembered addresses of a cluster's nodes.
    pub(crate) fn read_peers(&self, key: &ClusterKey) -> Vec<SocketAddr> {
        // Addresses that are not there will be found by other means.
        let text = fs::read_to_string(self.peers(key)).unwrap_or_default();
        let lines = text.lines().filter_map(|line| line.parse().ok());
        lines.take(MAX_PEERS).collect()
    }

    /// Remembers addresses.
    pub(crate) fn write_peers(&self, key: &ClusterKey, peers: &[SocketAddr]) -> io::Result<()> {
        let path = self.peers(key);
        let lines = peers.iter().take(MAX_PEERS).map(|peer| format!("{peer}\n"));
        make_private(&self.config)?;
        let new = path.with_extension("new");
        write_private(&new, &lines.collect::<String>())?;
        fs::rename(&new, &path)
    }

    /// The file of addresses of a cluster. Its name is the cluster's public id.
    fn peers(&self, key: &ClusterKey) -> PathBuf {
        let id: String = key.id().iter().map(|byte| format!("{byte:02x}")).collect();
        self.config.join(format!("peers-{id}"))
    }
}

/// Writes a file that only its owner may read.
fn write_private(path: &Path, text: &str) -> io::Result<()> {
    // One that is left over may be readable by others.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(text.as_bytes())
}

/// The directory of clusters below one that a variable names, or below the user's home.
fn directory(variable: &str, fallback: &str) -> Result<PathBuf, Failure> {
    let directory = user_directory::directory(variable, fallback).ok_or_else(|| {
        Failure::Failed(format!(
            "no place for a cluster is known: set HOME or {variable}"
        ))
    })?;
    Ok(directory.join("cluster"))
}
