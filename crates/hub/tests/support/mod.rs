//! A hub of our own on this machine: as much of the Hub's interface as a pull uses, and every way
//! to do it wrong.
//!
//! Each connection carries one request. A test wraps [`Repo::answer`] and spoils what comes out of
//! it.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use ring::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};

/// The commit that every revision of a [`Repo`] is.
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// What somebody asked for.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    /// With the query.
    pub(crate) path: String,
    headers: Vec<(String, String)>,
}

impl Asked {
    /// A header, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// Whether it asks for a file and not for JSON.
    pub(crate) fn is_file(&self) -> bool {
        self.path.contains("/resolve/")
    }

    /// First byte of the range that is asked for.
    pub(crate) fn start(&self) -> Option<usize> {
        self.header("range")?
            .strip_prefix("bytes=")?
            .strip_suffix('-')?
            .parse()
            .ok()
    }
}

/// What is sent back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// What `Content-Length` says; 0: there is none.
    pub(crate) length: usize,
    /// Bytes of the body after which the connection breaks.
    pub(crate) cut: Option<usize>,
    /// Whether the connection stays open after that, and nothing comes.
    pub(crate) stall: bool,
}

impl Reply {
    pub(crate) fn of(status: u16, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        Self {
            status,
            headers: Vec::new(),
            length: body.len(),
            body,
            cut: None,
            stall: false,
        }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// A server, until it is dropped.
pub(crate) struct Server {
    pub(crate) url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    is_over: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn start(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let (asked, is_over) = (
            Arc::new(Mutex::new(Vec::new())),
            Arc::new(AtomicBool::new(false)),
        );
        let (log, over, answer) = (asked.clone(), is_over.clone(), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener
                .incoming()
                .take_while(|_| !over.load(Ordering::Relaxed))
                .flatten()
            {
                let (log, answer) = (log.clone(), answer.clone());
                // Whoever breaks off is of no interest.
                thread::spawn(move || serve(stream, &log, &*answer).ok());
            }
        });
        Self {
            url,
            asked,
            is_over,
        }
    }

    /// Everything that was asked for.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// The files among it.
    pub(crate) fn files_asked(&self) -> Vec<Asked> {
        self.asked().into_iter().filter(Asked::is_file).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // The thread waits for a connection.
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
    }
}

fn serve(
    mut stream: TcpStream,
    log: &Mutex<Vec<Asked>>,
    answer: &dyn Fn(&Asked) -> Reply,
) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    let headers = text.lines().filter_map(|line| line.split_once(": "));
    let headers = headers
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let asked = Asked {
        path: text.split(' ').nth(1).unwrap_or_default().to_owned(),
        headers,
    };
    log.lock().unwrap().push(asked.clone());
    let reply = answer(&asked);
    let mut out = format!("HTTP/1.1 {} -\r\nConnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        out += &format!("{name}: {value}\r\n");
    }
    if reply.length > 0 || reply.body.is_empty() {
        out += &format!("Content-Length: {}\r\n", reply.length);
    }
    stream.write_all((out + "\r\n").as_bytes())?;
    stream.write_all(&reply.body[..reply.cut.unwrap_or(reply.body.len()).min(reply.body.len())])?;
    // Until the other side has gone.
    if reply.stall {
        stream.read(&mut [0]).map(drop)
    } else {
        Ok(())
    }
}

/// Files, answered for as the Hub does.
#[derive(Clone, Default)]
pub(crate) struct Repo {
    pub(crate) name: &'static str,
    /// Path and content. Those of more than 100 bytes are kept apart from git.
    pub(crate) files: Vec<(&'static str, Vec<u8>)>,
}

impl Repo {
    pub(crate) fn answer(&self, asked: &Asked) -> Reply {
        let api = format!("/api/models/{}/", self.name);
        let resolve = format!("/{}/resolve/{COMMIT}/", self.name);
        if let Some(rest) = asked.path.strip_prefix(&api) {
            return match rest.split_once(['/', '?']) {
                Some(("revision", "main" | COMMIT)) => {
                    Reply::of(200, format!(r#"{{"sha":"{COMMIT}"}}"#))
                }
                Some(("tree", rest)) if rest.starts_with(COMMIT) => Reply::of(200, self.listing()),
                _ => Reply::of(404, "{}").with("X-Error-Code", "RevisionNotFound"),
            };
        }
        let file = asked
            .path
            .strip_prefix(&resolve)
            .and_then(|path| self.files.iter().find(|(name, _)| *name == path));
        file.map_or(Reply::of(404, "{}"), |(_, content)| {
            content_from(content, asked.start())
        })
    }

    pub(crate) fn listing(&self) -> String {
        let files: Vec<String> = self
            .files
            .iter()
            .map(|(path, content)| listed(path, content))
            .collect();
        format!(
            r#"[{{"type":"directory","oid":"x","size":0,"path":"sub"}},{}]"#,
            files.join(",")
        )
    }
}

/// A file as the Hub lists it.
pub(crate) fn listed(path: &str, content: &[u8]) -> String {
    let (git, size) = (git_hash(content), content.len());
    let lfs = match size {
        101.. => format!(
            r#","lfs":{{"oid":"{}","size":{size},"pointerSize":135}}"#,
            sha256(content)
        ),
        _ => String::new(),
    };
    format!(r#"{{"type":"file","oid":"{git}","size":{size},"path":"{path}"{lfs}}}"#)
}

/// The whole, or what follows a position.
pub(crate) fn content_from(content: &[u8], start: Option<usize>) -> Reply {
    let etag = format!("\"{}\"", hash(content));
    match start {
        None => Reply::of(200, content).with("ETag", etag),
        Some(start) if start < content.len() => {
            Reply::of(206, &content[start..]).with("ETag", etag).with(
                "Content-Range",
                format!("bytes {start}-{}/{}", content.len() - 1, content.len()),
            )
        }
        Some(_) => Reply::of(416, ""),
    }
}

/// The name of the blob with this content.
pub(crate) fn hash(content: &[u8]) -> String {
    if content.len() > 100 {
        sha256(content)
    } else {
        git_hash(content)
    }
}

pub(crate) fn sha256(content: &[u8]) -> String {
    hex(ring::digest::digest(&SHA256, content).as_ref())
}

fn git_hash(content: &[u8]) -> String {
    let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    context.update(format!("blob {}\0", content.len()).as_bytes());
    context.update(content);
    hex(context.finish().as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Bytes that look like weights, another row for each seed.
pub(crate) fn weights(n: usize, seed: u32) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as u8
    };
    (0..n).map(|_| next()).collect()
}
