//! TLS by rustls, with a certificate and a key from PEM files.
//!
//! Knows nothing of HTTP but its version, 1.1, for the handshake.

use std::{io, path::Path, sync::Arc, time::Duration};

use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        self, ServerConfig,
        crypto::ring,
        pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
    },
};

use crate::{ServeError, socket::Stream};

/// The certificate chain and the key of a server.
#[derive(Clone, Debug)]
pub struct Tls(Arc<ServerConfig>);

impl Tls {
    /// Reads PEM files: the server's certificate followed by its intermediates, and the key of the
    /// server's certificate.
    ///
    /// # Errors
    /// [`ServeError::Tls`]: files that cannot be read or parsed, or do not belong together.
    pub fn open(cert: &Path, key: &Path) -> Result<Self, ServeError> {
        let chain = certs(cert)?;
        let secret =
            PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error, "key"))?;
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| refused(cert, &error))?
            .with_no_client_auth()
            .with_single_cert(chain, secret)
            .map_err(|error| unusable(cert, key, &error))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config)))
    }

    /// Performs the handshake within `timeout`.
    pub(crate) async fn accept(
        &self,
        stream: Box<dyn Stream>,
        timeout: Duration,
    ) -> io::Result<Box<dyn Stream>> {
        let shaken = TlsAcceptor::from(Arc::clone(&self.0)).accept(stream);
        Ok(Box::new(tokio::time::timeout(timeout, shaken).await??))
    }
}

fn certs(path: &Path) -> Result<Vec<CertificateDer<'static>>, ServeError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read.map_err(|error| unreadable(path, &error, "certificate"))? {
        certs if certs.is_empty() => Err(refused(path, "there is no certificate in it")),
        certs => Ok(certs),
    }
}

fn refused(path: &Path, why: impl ToString) -> ServeError {
    ServeError::Tls {
        path: path.to_owned(),
        why: why.to_string(),
    }
}

/// The error of a file that cannot be read or parsed.
fn unreadable(path: &Path, error: &pem::Error, what: &str) -> ServeError {
    match error {
        pem::Error::Io(error) => refused(path, error),
        pem::Error::NoItemsFound => refused(path, format!("there is no {what} in it")),
        error => refused(path, format!("this is no PEM: {error}")),
    }
}

/// The error of files that do not belong together, or that rustls does not support.
fn unusable(cert: &Path, key: &Path, error: &rustls::Error) -> ServeError {
    match error {
        rustls::Error::InconsistentKeys(_) => {
            refused(key, format!("this is not the key of {}", cert.display()))
        }
        rustls::Error::InvalidCertificate(_) => refused(cert, error),
        error => refused(key, error),
    }
}
