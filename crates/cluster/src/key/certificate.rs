//! Certificates from the key, and TLS in which both ends show one.
//!
//! The authority and every leaf are Ed25519 keys from derived seeds, so that a node makes its own
//! certificate and keeps no file. They are valid from 1970 to 4096: boards start without a clock,
//! and what expires is the key (RING §13).

use std::{fmt, sync::Arc};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ED25519, date_time_ymd,
};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    client::verify_server_name,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName},
    server::{ParsedCertificate, WebPkiClientVerifier},
    version::TLS13,
};

use super::{ClusterKey, KeyError, Purpose, hex};

/// The bytes before the 32 of an Ed25519 seed in PKCS#8 version 1 (RFC 8410 §7).
const PKCS8_ED25519: [u8; 16] = [
    0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20,
];

/// First and last year of a certificate.
const YEARS: [i32; 2] = [1970, 4096];

/// What a node shows to others, and by what it knows them. `Debug` prints no secret.
#[derive(Clone)]
pub struct Identity {
    name: String,
    pub(super) cluster: String,
    pub(super) authority: CertificateDer<'static>,
    leaf: CertificateDer<'static>,
    pub(super) key: Vec<u8>,
}

impl ClusterKey {
    /// The identity of a node. The same key and name give the same one on every machine.
    ///
    /// # Errors
    /// A name that is no DNS label.
    pub fn identity(&self, name: &str) -> Result<Identity, KeyError> {
        self.identity_valid(name, YEARS)
    }

    pub(super) fn identity_valid(&self, name: &str, years: [i32; 2]) -> Result<Identity, KeyError> {
        if !is_node_name(name) {
            return Err(KeyError::Name(name.to_owned()));
        }
        let cluster = hex(&self.id());
        let authority_key = key_pair(&self.secret(Purpose::Authority))?;
        let authority_params = authority_params(&cluster);
        let authority = authority_params.self_signed(&authority_key)?;
        let issuer = Issuer::new(authority_params, &authority_key);
        let seed = self.secret(Purpose::Node(name));
        let leaf_key = key_pair(&seed)?;
        let leaf = leaf_params(name, &cluster, years)?.signed_by(&leaf_key, &issuer)?;
        Ok(Identity {
            name: name.to_owned(),
            cluster,
            authority: authority.der().clone(),
            leaf: leaf.der().clone(),
            key: pkcs8(&seed),
        })
    }
}

impl Identity {
    /// The name of the node.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The public id of the cluster, 16 hexadecimal digits.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The certificate of the cluster's authority, DER.
    pub fn authority_der(&self) -> &[u8] {
        &self.authority
    }

    /// The certificate of the node, DER.
    pub fn leaf_der(&self) -> &[u8] {
        &self.leaf
    }

    /// The secret key of the node, PKCS#8 DER.
    pub fn secret_key_der(&self) -> &[u8] {
        &self.key
    }

    /// TLS 1.3 for connections that others open; a certificate of the same cluster is demanded.
    ///
    /// # Errors
    /// [`KeyError::Tls`].
    pub fn server_config(&self) -> Result<ServerConfig, KeyError> {
        let provider = provider();
        let verifier = WebPkiClientVerifier::builder_with_provider(self.roots()?, provider.clone());
        let verifier = verifier.build().map_err(tls)?;
        ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(tls)?
            .with_client_cert_verifier(verifier)
            .with_single_cert(self.chain(), self.private_key())
            .map_err(tls)
    }

    /// TLS 1.3 for connections to others.
    ///
    /// # Errors
    /// [`KeyError::Tls`].
    pub fn client_config(&self) -> Result<ClientConfig, KeyError> {
        ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13])
            .map_err(tls)?
            .with_root_certificates(self.roots()?)
            .with_client_auth_cert(self.chain(), self.private_key())
            .map_err(tls)
    }

    /// The name to expect of a peer when a connection is opened: a server that is another node of
    /// the cluster is refused.
    ///
    /// # Errors
    /// A name that is no DNS label.
    pub fn server_name(&self, peer: &str) -> Result<ServerName<'static>, KeyError> {
        let refuse = || KeyError::Name(peer.to_owned());
        let name = is_node_name(peer).then(|| dns_name(peer, &self.cluster));
        ServerName::try_from(name.ok_or_else(refuse)?).map_err(|_| refuse())
    }

    /// The name that every node of the cluster has besides its own: for a peer whose name is not
    /// known.
    ///
    /// # Errors
    /// [`KeyError::Tls`].
    pub fn any_server_name(&self) -> Result<ServerName<'static>, KeyError> {
        ServerName::try_from(cluster_name(&self.cluster)).map_err(tls)
    }

    /// Whether the certificate that a peer has shown is that of the node `name`. The handshake has
    /// checked that it is of this cluster.
    pub fn is_certificate_of(&self, certificate: &CertificateDer<'_>, name: &str) -> bool {
        let parsed = ParsedCertificate::try_from(certificate).ok();
        let name = self.server_name(name).ok();
        parsed
            .zip(name)
            .is_some_and(|(parsed, name)| verify_server_name(&parsed, &name).is_ok())
    }

    fn roots(&self) -> Result<Arc<RootCertStore>, KeyError> {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.clone()).map_err(tls)?;
        Ok(Arc::new(roots))
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![self.leaf.clone()]
    }

    fn private_key(&self) -> PrivateKeyDer<'static> {
        PrivatePkcs8KeyDer::from(self.key.clone()).into()
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity")
            .field("name", &self.name)
            .field("cluster", &self.cluster)
            .finish_non_exhaustive()
    }
}

/// Whether a name can be that of a node: a DNS label in lower case.
pub fn is_node_name(name: &str) -> bool {
    let is_inner = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    (1..=63).contains(&name.len())
        && name.bytes().all(is_inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

/// The name in a node's certificate; `internal` is reserved for private use (ICANN, 2024).
fn dns_name(node: &str, cluster: &str) -> String {
    format!("{node}.{cluster}.atta.internal")
}

/// The name in the certificates of all nodes of a cluster.
fn cluster_name(cluster: &str) -> String {
    format!("{cluster}.atta.internal")
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn tls(error: impl fmt::Display) -> KeyError {
    KeyError::Tls(error.to_string())
}

fn pkcs8(seed: &[u8; 32]) -> Vec<u8> {
    [&PKCS8_ED25519[..], seed].concat()
}

fn key_pair(seed: &[u8; 32]) -> Result<KeyPair, KeyError> {
    let der = PrivatePkcs8KeyDer::from(pkcs8(seed));
    Ok(KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ED25519)?)
}

fn authority_params(cluster: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, format!("atta {cluster}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.not_before = date_time_ymd(YEARS[0], 1, 1);
    params.not_after = date_time_ymd(YEARS[1], 1, 1);
    params
}

fn leaf_params(name: &str, cluster: &str, years: [i32; 2]) -> Result<CertificateParams, KeyError> {
    let mut params = CertificateParams::new([dns_name(name, cluster), cluster_name(cluster)])?;
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    params.use_authority_key_identifier_extension = true;
    params.not_before = date_time_ymd(years[0], 1, 1);
    params.not_after = date_time_ymd(years[1], 1, 1);
    Ok(params)
}
