//! Listeners: a TCP address, or on Unix a socket in the file system.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpSocket},
    time::{Instant, Sleep},
};
#[cfg(unix)]
use {
    std::path::{Path, PathBuf},
    tokio::net::UnixListener,
};

use crate::{Listen, ServeError};

/// Connections that wait to be accepted. A client beyond that retries after a second.
const BACKLOG: u32 = 1024;

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
            Listen::Tcp(address) => bind_tcp(*address)
                .map(Self::Tcp)
                .map_err(failed(address.to_string())),
            #[cfg(unix)]
            Listen::Unix(path) => {
                let listener = bind_unix(path).map_err(failed(path.display().to_string()))?;
                Ok(Self::Unix(listener, path.clone()))
            }
            #[cfg(not(unix))]
            Listen::Unix(path) => Err(failed(path.display().to_string())(
                io::ErrorKind::Unsupported.into(),
            )),
        }
    }

    /// Its URL, or its path.
    pub(crate) fn url(&self, scheme: &str) -> String {
        match self {
            Self::Tcp(listener) => listener
                .local_addr()
                .map_or_else(|e| e.to_string(), |at| format!("{scheme}://{at}")),
            #[cfg(unix)]
            Self::Unix(_, path) => format!("unix:{}", path.display()),
        }
    }

    pub(crate) async fn accept(&self) -> io::Result<Box<dyn Stream>> {
        Ok(match self {
            Self::Tcp(listener) => {
                let (stream, _): (_, SocketAddr) = listener.accept().await?;
                // Tokens are small packets; without this the kernel delays them.
                let _ = stream.set_nodelay(true);
                Box::new(stream)
            }
            #[cfg(unix)]
            Self::Unix(listener, _) => Box::new(listener.accept().await?.0),
        })
    }
}

/// Removes the socket file.
impl Drop for Listener {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Self::Unix(_, path) = self {
            // Another program may have removed it already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A connection on which a write that blocks for too long fails.
pub(crate) struct WriteTimeout {
    stream: Box<dyn Stream>,
    timeout: Duration,
    /// Runs while a write blocks.
    timer: Pin<Box<Sleep>>,
    is_waiting: bool,
}

impl WriteTimeout {
    pub(crate) fn new(stream: Box<dyn Stream>, timeout: Duration) -> Self {
        Self {
            stream,
            timeout,
            timer: Box::pin(tokio::time::sleep(timeout)),
            is_waiting: false,
        }
    }

    /// Passes on the result of a write, or fails if it has blocked for too long.
    fn watch<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.is_waiting = false;
            return written;
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.timer.as_mut().reset(Instant::now() + self.timeout);
        }
        self.timer
            .as_mut()
            .poll(cx)
            .map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for WriteTimeout {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for WriteTimeout {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.watch(written, cx)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        this.watch(flushed, cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let shut = Pin::new(&mut this.stream).poll_shutdown(cx);
        this.watch(shut, cx)
    }
}

/// Binds an address, even if a server that has just ended used it.
fn bind_tcp(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()
    } else {
        TcpSocket::new_v6()
    }?;
    // On Windows this option would let two servers bind the same address.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Binds a socket file. Replaces one that a dead server left behind, but no other file.
#[cfg(unix)]
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    use std::os::unix::{fs::FileTypeExt, net::UnixStream};
    let is_socket =
        std::fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket());
    if is_socket
        && UnixStream::connect(path)
            .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
    {
        std::fs::remove_file(path)?;
    }
    UnixListener::bind(path)
}
