//! A hub server on localhost with the part of the Hub's API that a pull uses.
//!
//! Each connection carries one request. A test wraps [`Repo::answer`] and changes its replies.

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

/// The commit that every revision of a [`Repo`] resolves to.
pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A request that the server received.
#[derive(Clone, Debug)]
pub(crate) struct HttpRequest {
    /// Path with the query.
    pub(crate) path: String,
    headers: Vec<(String, String)>,
}

impl HttpRequest {
    /// A header, by its name in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    }

    /// Whether the request is for a file and not for JSON.
    pub(crate) fn is_file(&self) -> bool {
        self.path.contains("/resolve/")
    }

    /// First byte of the requested range.
    pub(crate) fn start(&self) -> Option<usize> {
        self.header("range")?
            .strip_prefix("bytes=")?
            .strip_suffix('-')?
            .parse()
            .ok()
    }
}

/// A response.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// The value of `Content-Length`; 0 with a body: no such header.
    pub(crate) length: usize,
    /// The connection closes after this many bytes of the body.
    pub(crate) cut: Option<usize>,
    /// Whether the connection stays open after the body without sending more.
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

/// A server that runs until it is dropped.
pub(crate) struct Server {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<HttpRequest>>>,
    is_over: Arc<AtomicBool>,
}

impl Server {
    pub(crate) fn start(answer: impl Fn(&HttpRequest) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let is_over = Arc::new(AtomicBool::new(false));
        let log = requests.clone();
        let over = is_over.clone();
        let answer = Arc::new(answer);
        thread::spawn(move || {
            for stream in listener
                .incoming()
                .take_while(|_| !over.load(Ordering::Relaxed))
                .flatten()
            {
                let log = log.clone();
                let answer = answer.clone();
                // A client that disconnects is no error.
                thread::spawn(move || serve(stream, &log, &*answer).ok());
            }
        });
        Self {
            url,
            requests,
            is_over,
        }
    }

    /// All requests so far.
    pub(crate) fn requests(&self) -> Vec<HttpRequest> {
        self.requests.lock().unwrap().clone()
    }

    /// The requests for files so far.
    pub(crate) fn file_requests(&self) -> Vec<HttpRequest> {
        self.requests()
            .into_iter()
            .filter(HttpRequest::is_file)
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Wakes the thread, which waits for a connection.
        let _ = TcpStream::connect(self.url.trim_start_matches("http://"));
    }
}

fn serve(
    mut stream: TcpStream,
    log: &Mutex<Vec<HttpRequest>>,
    answer: &dyn Fn(&HttpRequest) -> Reply,
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
    let request = HttpRequest {
        path: text.split(' ').nth(1).unwrap_or_default().to_owned(),
        headers,
    };
    log.lock().unwrap().push(request.clone());
    let reply = answer(&request);
    let mut out = format!("HTTP/1.1 {} -\r\nConnection: close\r\n", reply.status);
    for (name, value) in &reply.headers {
        out += &format!("{name}: {value}\r\n");
    }
    if reply.length > 0 || reply.body.is_empty() {
        out += &format!("Content-Length: {}\r\n", reply.length);
    }
    stream.write_all((out + "\r\n").as_bytes())?;
    stream.write_all(&reply.body[..reply.cut.unwrap_or(reply.body.len()).min(reply.body.len())])?;
    // Waits until the client disconnects.
    if reply.stall {
        stream.read(&mut [0]).map(drop)
    } else {
        Ok(())
    }
}

/// A repository, served as the Hub does.
#[derive(Clone, Default)]
pub(crate) struct Repo {
    pub(crate) name: &'static str,
    /// Path and content. Files of more than 100 bytes are LFS files.
    pub(crate) files: Vec<(&'static str, Vec<u8>)>,
}

impl Repo {
    pub(crate) fn answer(&self, request: &HttpRequest) -> Reply {
        let api = format!("/api/models/{}/", self.name);
        let resolve = format!("/{}/resolve/{COMMIT}/", self.name);
        if let Some(rest) = request.path.strip_prefix(&api) {
            return match rest.split_once(['/', '?']) {
                Some(("revision", "main" | COMMIT)) => {
                    Reply::of(200, format!(r#"{{"sha":"{COMMIT}"}}"#))
                }
                Some(("tree", rest)) if rest.starts_with(COMMIT) => Reply::of(200, self.listing()),
                _ => Reply::of(404, "{}").with("X-Error-Code", "RevisionNotFound"),
            };
        }
        let file = request
            .path
            .strip_prefix(&resolve)
            .and_then(|path| self.files.iter().find(|(name, _)| *name == path));
        file.map_or(Reply::of(404, "{}"), |(_, content)| {
            content_from(content, request.start())
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

/// The JSON of a file in the Hub's listing.
pub(crate) fn listed(path: &str, content: &[u8]) -> String {
    let git = git_hash(content);
    let size = content.len();
    let lfs = match size {
        101.. => format!(
            r#","lfs":{{"oid":"{}","size":{size},"pointerSize":135}}"#,
            sha256(content)
        ),
        _ => String::new(),
    };
    format!(r#"{{"type":"file","oid":"{git}","size":{size},"path":"{path}"{lfs}}}"#)
}

/// The content, or the part of it from `start` on.
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

/// The name of the blob of this content.
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

/// Pseudo-random bytes, different for each seed.
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
