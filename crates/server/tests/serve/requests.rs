//! Requests that come slowly, go away, are too large or not allowed: what no client library lets
//! one do.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use atta_server::{Listen, ServeError, Server, ServerOptions};

use crate::running::{ENDLESS, Running, options, read_all, source};

#[test]
fn who_goes_away_frees_a_place_and_the_rest_wait_or_are_refused() {
    let server = Running::start(options());
    let first = server.send("/v1/completions", ENDLESS);
    server.wait_until("both answers are written", |server| {
        server.count("atta_jobs_running") == 2.0
    });
    let second = server.send("/v1/completions", ENDLESS);
    server.wait_until("one request waits", |server| {
        server.count("atta_jobs_waiting") == 2.0
    });
    let third = server.send("/v1/completions", ENDLESS);
    let refused = server.ask("/v1/completions", ENDLESS);
    assert!(
        refused.starts_with("HTTP/1.1 429") && refused.contains("retry-after"),
        "{refused}"
    );
    drop((first, second, third));
    server.wait_until("nothing is written for nobody", |server| {
        server.count("atta_jobs_running") + server.count("atta_jobs_waiting") == 0.0
    });
    assert!(
        server
            .ask("/v1/completions", r#"{"prompt": "One day"}"#)
            .starts_with("HTTP/1.1 200")
    );
    server.stop();
}

#[test]
fn a_server_that_is_stopped_cuts_what_does_not_end() {
    let server = Running::start(options());
    let mut stream = server.send("/v1/completions", ENDLESS);
    server.wait_until("an answer is written", |server| {
        server.count("atta_generated_tokens_total") > 5.0
    });
    let took = server.stop();
    assert!(took < Duration::from_secs(10), "{took:?}");
    let mut text = Vec::new();
    // Cut or reset: either is an end.
    let _ = stream.read_to_end(&mut text);
    assert!(String::from_utf8_lossy(&text).contains("text_completion"));
}

#[test]
fn slow_and_large_requests_are_not_waited_for() {
    let server = Running::start(options());
    let mut slow = TcpStream::connect(&server.address).unwrap();
    slow.set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    slow.write_all(
        b"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 50\r\n\r\n{",
    )
    .unwrap();
    let mut answer = [0; 12];
    slow.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 408");
    let mut silent = TcpStream::connect(&server.address).unwrap();
    silent
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    assert_eq!(
        silent.read(&mut answer).unwrap_or(0),
        0,
        "a connection without a request is closed"
    );
    let large = format!(r#"{{"prompt": "{}"}}"#, "a".repeat(100_000));
    assert!(
        server
            .ask("/v1/completions", &large)
            .starts_with("HTTP/1.1 413")
    );
    server.stop();
}

#[test]
fn keys_are_asked_for_everywhere_but_for_health_the_description_and_the_page() {
    let server = Running::start(ServerOptions {
        api_keys: vec!["secret".to_owned()],
        ..options()
    });
    for path in ["/v1/models", "/metrics", "/props", "/nowhere"] {
        assert!(server.ask(path, "").starts_with("HTTP/1.1 401"), "{path}");
    }
    for path in ["/health", "/openapi.json", "/", "/app.js"] {
        assert!(server.ask(path, "").starts_with("HTTP/1.1 200"), "{path}");
    }
    let mut stream = TcpStream::connect(&server.address).unwrap();
    let head = "GET /v1/models HTTP/1.1\r\nhost: any.example\r\nauthorization: Bearer secret\r\nconnection: close\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    server.stop();
}

#[test]
fn what_would_let_everybody_in_is_refused() {
    let everywhere = Listen::Tcp(SocketAddr::from(([0, 0, 0, 0], 0)));
    let open = ServerOptions {
        listen: everywhere,
        ..options()
    };
    assert!(matches!(
        Server::bind(vec![source("stories")], open.clone()),
        Err(ServeError::Open(_))
    ));
    let empty = ServerOptions {
        api_keys: vec![" ".to_owned()],
        ..open.clone()
    };
    assert!(matches!(
        Server::bind(vec![source("stories")], empty),
        Err(ServeError::EmptyKey)
    ));
    Running::start(ServerOptions {
        insecure: true,
        ..open
    })
    .stop();
}

/// The raw response to a head and a body.
fn raw(server: &Running, head: &str, body: &[u8]) -> String {
    let mut stream = TcpStream::connect(&server.address).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    stream
        .write_all(format!("{head}\r\nconnection: close\r\n\r\n").as_bytes())
        .unwrap();
    stream.write_all(body).unwrap();
    read_all(stream)
}

#[test]
fn a_body_that_is_too_long_is_read_so_that_the_client_reads_why() {
    let server = Running::start(ServerOptions {
        read_timeout: Duration::from_secs(20),
        ..options()
    });
    let body = vec![b'a'; 4_000_000];
    let head = format!(
        "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}",
        body.len()
    );
    let text = raw(&server, &head, &body);
    assert!(
        text.starts_with("HTTP/1.1 413") && text.contains("100000 bytes"),
        "{text}"
    );
    server.stop();
}

#[test]
fn a_packed_body_is_read_and_one_of_an_unknown_packing_is_415() {
    let server = Running::start(options());
    // `{"prompt": "One day", "max_tokens": 2}` as gzip stores it without compressing.
    let json = br#"{"prompt": "One day", "max_tokens": 2}"#;
    let mut packed = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1];
    packed.extend((json.len() as u16).to_le_bytes());
    packed.extend((!(json.len() as u16)).to_le_bytes());
    packed.extend(json);
    packed.extend(crc32(json).to_le_bytes());
    packed.extend((json.len() as u32).to_le_bytes());
    let head = |encoding: &str| {
        let n_bytes = packed.len();
        format!(
            "POST /completions HTTP/1.1\r\nhost: localhost\r\ncontent-encoding: {encoding}\r\ncontent-length: {n_bytes}"
        )
    };
    let text = raw(&server, &head("gzip"), &packed);
    assert!(
        text.starts_with("HTTP/1.1 200") && text.contains("text_completion"),
        "{text}"
    );
    let text = raw(&server, &head("br"), &packed);
    assert!(
        text.starts_with("HTTP/1.1 415") && text.contains("gzip"),
        "{text}"
    );
    server.stop();
}

/// The sum of RFC 1952.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| {
        if crc & 1 == 1 {
            (crc >> 1) ^ 0xedb8_8320
        } else {
            crc >> 1
        }
    };
    !bytes.iter().fold(!0, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| step(crc))
    })
}

#[test]
fn apps_may_use_a_server_without_keys_and_every_page_one_with_keys() {
    let get = |server: &Running, path: &str, headers: &str| {
        raw(
            server,
            &format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n{headers}"),
            b"",
        )
    };
    let server = Running::start(options());
    let app = get(&server, "/models/", "origin: app://obsidian.md");
    assert!(
        app.starts_with("HTTP/1.1 200")
            && app.contains("access-control-allow-origin: app://obsidian.md"),
        "{app}"
    );
    let site = get(&server, "/v1/models", "origin: https://evil.example");
    assert!(
        site.starts_with("HTTP/1.1 403") && site.contains("allowed origins"),
        "{site}"
    );
    server.stop();
    let keyed = Running::start(ServerOptions {
        api_keys: vec!["secret".to_owned()],
        ..options()
    });
    let asked = "origin: https://site.example\r\naccess-control-request-method: POST\r\naccess-control-request-headers: authorization";
    let preflight = raw(
        &keyed,
        &format!("OPTIONS /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n{asked}"),
        b"",
    );
    assert!(
        preflight.starts_with("HTTP/1.1 204") && preflight.contains("allow-headers: authorization"),
        "{preflight}"
    );
    let answer = get(
        &keyed,
        "/v1/models",
        "origin: https://site.example\r\nauthorization: Bearer secret",
    );
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("access-control-allow-origin: *"),
        "{answer}"
    );
    let wrong = get(&keyed, "/v1/models", "origin: https://site.example");
    assert!(wrong.starts_with("HTTP/1.1 401"), "{wrong}");
    keyed.stop();
}

#[test]
fn every_page_is_let_in_only_by_somebody_who_says_so_twice() {
    let all = ServerOptions {
        allowed_origins: vec!["*".to_owned()],
        ..options()
    };
    assert!(matches!(
        Server::bind(vec![source("stories")], all.clone()),
        Err(ServeError::OpenToPages(_))
    ));
    let wrong = ServerOptions {
        allowed_origins: vec!["chat.example".to_owned()],
        ..options()
    };
    assert!(matches!(
        Server::bind(vec![source("stories")], wrong),
        Err(ServeError::Origin(_))
    ));
    Running::start(ServerOptions {
        insecure: true,
        ..all
    })
    .stop();
}
