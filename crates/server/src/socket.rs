//! Where connections come from: an address, or on Unix a socket in the file system.

use std::{io, net::SocketAddr};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
};
#[cfg(unix)]
use {
    std::path::{Path, PathBuf},
    tokio::net::UnixListener,
};

use crate::{Listen, ServeError};

/// A connection.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

pub(crate) enum Listener {
    Tcp(TcpListener),
    #[cfg(unix)]
    Unix(UnixListener, PathBuf),
}

impl Listener {
    pub(crate) async fn bind(listen: &Listen) -> Result<Self, ServeError> {
        let failed = |place: String| move |source| ServeError::Listen { place, source };
        match listen {
            Listen::Tcp(address) => {
                let listener = TcpListener::bind(address).await.map_err(failed(address.to_string()))?;
                Ok(Self::Tcp(listener))
            }
            #[cfg(unix)]
            Listen::Unix(path) => {
                let listener = bind_unix(path).map_err(failed(path.display().to_string()))?;
                Ok(Self::Unix(listener, path.clone()))
            }
            #[cfg(not(unix))]
            Listen::Unix(path) => Err(failed(path.display().to_string())(io::ErrorKind::Unsupported.into())),
        }
    }

    /// What to call it.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Tcp(listener) => listener.local_addr().map_or_else(|e| e.to_string(), |at| format!("http://{at}")),
            #[cfg(unix)]
            Self::Unix(_, path) => format!("unix:{}", path.display()),
        }
    }

    pub(crate) async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(listener) => {
                let (stream, _): (_, SocketAddr) = listener.accept().await?;
                // A token is a small packet that somebody waits for.
                stream.set_nodelay(true)?;
                Box::new(stream)
            }
            #[cfg(unix)]
            Self::Unix(listener, _) => Box::new(listener.accept().await?.0),
        })
    }

    /// Takes a socket out of the file system again.
    pub(crate) fn close(self) {
        match self {
            Self::Tcp(_) => {}
            #[cfg(unix)]
            Self::Unix(_, path) => {
                // It may have been taken away already.
                let _ = std::fs::remove_file(path);
            }
        }
    }
}

/// A socket that a server has left behind is replaced; one that answers is not, nor is any other file.
#[cfg(unix)]
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    use std::os::unix::{fs::FileTypeExt, net::UnixStream};
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket && UnixStream::connect(path).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
        std::fs::remove_file(path)?;
    }
    UnixListener::bind(path)
}
