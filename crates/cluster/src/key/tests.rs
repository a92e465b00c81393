//! Keys, their text and file, and TLS between the nodes of one cluster and of two.

use std::{
    io::{Read, Write},
    path::PathBuf,
    sync::Arc,
};

use proptest::prelude::*;
use rustls::{ClientConnection, ServerConnection};

use super::*;

fn key(byte: u8) -> ClusterKey {
    ClusterKey::from_bytes([byte; 32])
}

/// A connection of two ends that both have agreed.
struct Ends {
    client: ClientConnection,
    server: ServerConnection,
}

/// Passes bytes until both ends agree or one refuses.
fn connect(client: &Identity, server: &Identity, expected: &str) -> Result<Ends, rustls::Error> {
    let config = Arc::new(client.client_config().unwrap());
    let name = client.server_name(expected).unwrap();
    let mut client = ClientConnection::new(config, name)?;
    let mut server = ServerConnection::new(Arc::new(server.server_config().unwrap()))?;
    for _ in 0..10 {
        let mut bytes = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut bytes).unwrap();
        }
        feed(&bytes, |bytes| server.read_tls(bytes))?;
        server.process_new_packets()?;
        let mut bytes = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut bytes).unwrap();
        }
        feed(&bytes, |bytes| client.read_tls(bytes))?;
        client.process_new_packets()?;
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok(Ends { client, server })
}

fn feed(
    mut bytes: &[u8],
    mut read: impl FnMut(&mut dyn Read) -> std::io::Result<usize>,
) -> Result<(), rustls::Error> {
    while !bytes.is_empty() {
        read(&mut bytes).map_err(|error| rustls::Error::General(error.to_string()))?;
    }
    Ok(())
}

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("atta-key-{name}-{}", std::process::id()))
}

#[test]
fn two_nodes_of_a_cluster_connect_and_know_each_other() {
    let (a, b) = (
        key(1).identity("lap").unwrap(),
        key(1).identity("pi-1").unwrap(),
    );
    let mut ends = connect(&a, &b, "pi-1").unwrap();
    ends.client.writer().write_all(b"rows").unwrap();
    let mut bytes = Vec::new();
    ends.client.write_tls(&mut bytes).unwrap();
    feed(&bytes, |bytes| ends.server.read_tls(bytes)).unwrap();
    ends.server.process_new_packets().unwrap();
    let mut rows = [0; 4];
    ends.server.reader().read_exact(&mut rows).unwrap();
    assert_eq!(&rows, b"rows");
    let shown = &ends.server.peer_certificates().unwrap()[0];
    assert!(b.is_certificate_of(shown, "lap"));
    assert!(!b.is_certificate_of(shown, "pi-1") && !b.is_certificate_of(shown, "LAP"));
}

#[test]
fn another_key_is_refused_on_both_sides() {
    let (a, b) = (
        key(1).identity("lap").unwrap(),
        key(2).identity("pi").unwrap(),
    );
    assert!(connect(&a, &b, "pi").is_err());
    // A client that trusts any server, but shows the wrong certificate.
    let mut spy = a.clone();
    spy.authority = b.authority.clone();
    spy.cluster = b.cluster.clone();
    let error = connect(&spy, &b, "pi").err().unwrap();
    assert!(
        matches!(error, rustls::Error::InvalidCertificate(_)),
        "{error}"
    );
}

#[test]
fn another_name_is_refused() {
    let (a, b) = (
        key(1).identity("lap").unwrap(),
        key(1).identity("pi1").unwrap(),
    );
    let error = connect(&a, &b, "pi2").err().unwrap();
    assert!(
        matches!(error, rustls::Error::InvalidCertificate(_)),
        "{error}"
    );
}

#[test]
fn expired_and_future_certificates_are_refused() {
    let good = key(1).identity("lap").unwrap();
    for years in [[1970, 1971], [4000, 4096]] {
        let bad = key(1).identity_valid("pi", years).unwrap();
        assert!(connect(&good, &bad, "pi").is_err());
        assert!(connect(&bad, &good, "lap").is_err());
    }
}

#[test]
fn a_client_without_a_certificate_is_refused() {
    let (a, b) = (
        key(1).identity("lap").unwrap(),
        key(1).identity("pi").unwrap(),
    );
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(a.authority_der().to_vec().into()).unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let mut client = ClientConnection::new(Arc::new(config), a.server_name("pi").unwrap()).unwrap();
    let mut server = ServerConnection::new(Arc::new(b.server_config().unwrap())).unwrap();
    let mut refused = false;
    for _ in 0..4 {
        let mut bytes = Vec::new();
        client.write_tls(&mut bytes).unwrap();
        feed(&bytes, |bytes| server.read_tls(bytes)).unwrap();
        refused |= server.process_new_packets().is_err();
        let mut bytes = Vec::new();
        server.write_tls(&mut bytes).unwrap();
        feed(&bytes, |bytes| client.read_tls(bytes)).unwrap();
        let _ = client.process_new_packets();
    }
    assert!(refused);
}

#[test]
fn the_same_key_and_name_give_the_same_identity() {
    let (a, b) = (
        key(1).identity("pi").unwrap(),
        key(1).identity("pi").unwrap(),
    );
    assert_eq!(
        (a.leaf_der(), a.authority_der()),
        (b.leaf_der(), b.authority_der())
    );
    let other = key(1).identity("pj").unwrap();
    assert_ne!(a.secret_key_der(), other.secret_key_der());
    assert_eq!(a.authority_der(), other.authority_der());
}

#[test]
fn secrets_of_all_purposes_differ() {
    let purposes = [
        Purpose::Id,
        Purpose::Authority,
        Purpose::Node("a"),
        Purpose::Node("b"),
        Purpose::BeaconTag,
        Purpose::BeaconMac,
    ];
    let mut secrets = purposes.map(|purpose| key(1).secret(purpose)).to_vec();
    secrets.sort_unstable();
    secrets.dedup();
    assert_eq!(secrets.len(), purposes.len());
}

#[test]
fn random_keys_differ() {
    assert!(ClusterKey::random().unwrap() != ClusterKey::random().unwrap());
}

#[test]
fn debug_and_errors_show_no_secret() {
    let key = ClusterKey::random().unwrap();
    let identity = key.identity("pi").unwrap();
    let shown = format!("{key:?} {key:#?} {identity:?} {identity:#?}");
    let text = key.text();
    let group = &text[6..10];
    let wrong = format!("{}A", &text[..text.len() - 1]);
    let errors = [wrong.as_str(), &text[..40]].map(|text| text.parse::<ClusterKey>());
    let errors = errors.into_iter().filter_map(Result::err);
    let shown = errors.fold(shown, |shown, error| format!("{shown} {error} {error:?}"));
    assert!(!shown.contains(&text) && !shown.contains(&hex(&key.0)) && !shown.contains(group));
    assert!(!shown.contains(&hex(&identity.key[16..])));
    let list = format!("{:?}", key.0);
    assert!(!shown.contains(list.trim_matches(['[', ']'])));
}

#[test]
fn the_text_is_the_same_for_ever() {
    let text = ClusterKey::from_bytes(std::array::from_fn(|i| i as u8)).text();
    assert!(
        text.starts_with("atta1-AAAQ-EAYE-AUDA-OCAJ-BIFQ-YDIO-B4IB-CEQT-CQKR-MFYY-DENB-WHA5-DY"),
        "{text}"
    );
    assert_eq!(text.len(), 6 + 56 + 13);
}

#[test]
fn errors_of_a_text_say_what_is_wrong() {
    let text = key(7).text();
    let parse = |text: &str| text.parse::<ClusterKey>().err().unwrap();
    assert!(matches!(parse(""), KeyError::Prefix));
    assert!(matches!(parse("atta2-AAAA"), KeyError::Prefix));
    assert!(matches!(parse("ätta1-AAAA"), KeyError::Prefix));
    assert!(matches!(
        parse(&text[..30]),
        KeyError::Length { expected: 56, .. }
    ));
    assert!(matches!(
        parse(&format!("{text}A")),
        KeyError::Length { found: 57, .. }
    ));
    let strange = text.replacen('-', "-é", 2).replacen('é', "", 1);
    assert!(
        matches!(
            parse(&strange),
            KeyError::Character {
                found: 'é', at: 12
            }
        ),
        "{}",
        parse(&strange)
    );
    let swapped: String = [&text[..6], &text[11..16], &text[6..11], &text[16..]].concat();
    let same = swapped == text;
    assert!(same || matches!(parse(&swapped), KeyError::Checksum));
}

#[test]
fn the_file_is_private_and_replaced_whole() {
    let path = file("private");
    key(1).write(&path).unwrap();
    key(2).write(&path).unwrap();
    assert!(ClusterKey::read(&path).unwrap() == key(2));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |mode| std::fs::Permissions::from_mode(mode);
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        std::fs::set_permissions(&path, mode(0o640)).unwrap();
        assert!(matches!(
            ClusterKey::read(&path),
            Err(KeyError::Mode { mode: 0o640, .. })
        ));
        std::fs::set_permissions(&path, mode(0o600)).unwrap();
    }
    std::fs::write(&path, vec![b'A'; 4096]).unwrap();
    assert!(matches!(
        ClusterKey::read(&path),
        Err(KeyError::NotAKeyFile(_))
    ));
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(ClusterKey::read(&path), Err(KeyError::Io { .. })));
    assert!(matches!(
        key(1).write(&path.join("no/such")),
        Err(KeyError::Io { .. })
    ));
}

#[test]
fn names_are_labels() {
    for name in ["", "-a", "a-", "a.b", "Pi", "ü", &"a".repeat(64)] {
        assert!(
            matches!(key(1).identity(name), Err(KeyError::Name(_))),
            "{name}"
        );
    }
    assert!(key(1).identity(&"a".repeat(63)).is_ok());
}

proptest! {
    #[test]
    fn a_text_gives_its_key_back(bytes: [u8; 32], lower: bool) {
        let key = ClusterKey::from_bytes(bytes);
        let text = key.text();
        let typed = if lower { text.to_lowercase().replace('-', " ").replacen(' ', "-", 1) } else { text };
        let typed = typed.replace('O', "0").replace('I', "1").replace('B', "8");
        prop_assert!(typed.parse::<ClusterKey>().unwrap() == key);
    }

    #[test]
    fn one_wrong_character_is_noticed(bytes: [u8; 32], at in 6..75_usize, to in 0..32_usize) {
        let text = ClusterKey::from_bytes(bytes).text();
        let to = char::from(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[to]);
        let old = text.as_bytes()[at];
        prop_assume!(old != b'-' && char::from(old) != to);
        let wrong = format!("{}{to}{}", &text[..at], &text[at + 1..]);
        prop_assert!(matches!(wrong.parse::<ClusterKey>(), Err(KeyError::Checksum)));
    }

    #[test]
    fn any_text_is_a_key_or_an_error(text in ".{0,120}") {
        let _ = text.parse::<ClusterKey>();
    }
}
