//! TLS in a build without the feature `tls`: no certificate can be opened.

use std::{convert::Infallible, path::Path};
#[cfg(feature = "http")]
use std::{io, time::Duration};

use crate::ServeError;
#[cfg(feature = "http")]
use crate::socket::Stream;

/// The certificate chain and the key of a server, which this build cannot read.
#[derive(Clone, Debug)]
pub struct Tls(Infallible);

impl Tls {
    /// Always an error.
    ///
    /// # Errors
    /// [`ServeError::Tls`]
    pub fn open(cert: &Path, _: &Path) -> Result<Self, ServeError> {
        Err(ServeError::Tls {
            path: cert.to_owned(),
            why: "this program was built without the feature `tls`".to_owned(),
        })
    }

    #[cfg(feature = "http")]
    pub(crate) async fn accept(
        &self,
        _: Box<dyn Stream>,
        _: Duration,
    ) -> io::Result<Box<dyn Stream>> {
        match self.0 {}
    }
}
