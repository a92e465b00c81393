//! Connections that are encrypted, and those that are not although they should be.

use std::{
    io::{Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use atta_server::{ServeError, ServerOptions, Tls};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};

use crate::running::{Running, options};

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/serve/tls")
        .join(name)
}

fn start() -> Running {
    let tls = Some(Tls::open(&file("cert.pem"), &file("key.pem")).unwrap());
    Running::start(ServerOptions { tls, ..options() })
}

fn connect(server: &Running) -> TcpStream {
    let stream = TcpStream::connect(server.address.trim_start_matches("https://")).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    stream
}

/// A client that believes in the certificate, and speaks these protocols.
fn encrypted(stream: TcpStream, protocols: &[&str]) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(file("cert.pem")).unwrap())
        .unwrap();
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = protocols
        .iter()
        .map(|name| name.as_bytes().to_vec())
        .collect();
    let client =
        ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap())
            .unwrap();
    StreamOwned::new(client, stream)
}

/// The response to a request.
fn ask(server: &Running, line: &str, headers: &str, body: &str) -> String {
    let mut stream = encrypted(connect(server), &["h2", "http/1.1"]);
    let length = body.len();
    let head =
        format!("{line} HTTP/1.1\r\n{headers}\r\nconnection: close\r\ncontent-length: {length}");
    stream
        .write_all(format!("{head}\r\n\r\n{body}").as_bytes())
        .unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn a_client_gets_an_answer() {
    let server = start();
    assert!(
        server.address.starts_with("https://127.0.0.1:"),
        "{}",
        server.address
    );
    let answer = ask(
        &server,
        "POST /v1/completions",
        "host: localhost",
        r#"{"prompt": "One day", "max_tokens": 3, "stream": true}"#,
    );
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("[DONE]"),
        "{answer}"
    );
    server.stop();
}

#[test]
fn pages_of_other_sites_get_nothing_nor_do_those_that_came_in_the_clear() {
    let server = start();
    for (origin, status) in [
        ("https://192.168.0.7", "200"),
        ("http://192.168.0.7", "403"),
        ("https://evil.example", "403"),
    ] {
        let answer = ask(
            &server,
            "GET /props",
            &format!("host: 192.168.0.7\r\norigin: {origin}"),
            "",
        );
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{origin}: {answer}"
        );
    }
    server.stop();
}

#[test]
fn what_is_not_encrypted_is_not_answered() {
    let server = start();
    let mut plain = connect(&server);
    plain
        .write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .unwrap();
    let mut bytes = Vec::new();
    // Closed or reset, with an alert or without.
    let _ = plain.read_to_end(&mut bytes);
    assert!(!bytes.starts_with(b"HTTP"), "{bytes:?}");
    assert!(ask(&server, "GET /health", "host: localhost", "").starts_with("HTTP/1.1 200"));
    server.stop();
}

#[test]
fn who_speaks_another_protocol_only_is_refused() {
    let server = start();
    let mut stream = encrypted(connect(&server), &["h2"]);
    let sent = stream
        .write_all(b"PRI * HTTP/2.0\r\n\r\n")
        .and_then(|()| stream.read(&mut [0; 10]));
    assert!(sent.is_err(), "{sent:?}");
    server.stop();
}

#[test]
fn who_does_not_finish_the_handshake_is_cut_and_holds_up_nobody() {
    let server = start();
    let begin = Instant::now();
    let mut silent: Vec<TcpStream> = (0..10).map(|_| connect(&server)).collect();
    // The beginning of a record that never ends.
    silent[0].write_all(&[22, 3, 1, 2, 0, 1]).unwrap();
    assert!(ask(&server, "GET /health", "host: localhost", "").starts_with("HTTP/1.1 200"));
    for stream in &mut silent {
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        assert!(bytes.len() < 20, "{bytes:?}");
    }
    assert!(
        begin.elapsed() < Duration::from_secs(9),
        "they were cut, not waited for"
    );
    server.stop();
}

#[test]
fn files_that_are_wrong_or_do_not_belong_together_are_named() {
    let cases = [
        ("nothing.pem", "key.pem", "nothing.pem"),
        ("cert.pem", "nothing.pem", "nothing.pem"),
        ("key.pem", "key.pem", "no certificate"),
        ("cert.pem", "cert.pem", "no key"),
        ("cert.pem", "other_key.pem", "not the key of"),
    ];
    for (cert, key, expected) in cases {
        let error = Tls::open(&file(cert), &file(key)).unwrap_err();
        assert!(
            matches!(error, ServeError::Tls { .. }) && error.to_string().contains(expected),
            "{error}"
        );
    }
}
