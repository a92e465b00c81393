//! Programs that run beside a test: signals to them, servers that are asked, and their end with it.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::{Child, Command},
    time::Duration,
};

/// The longest wait for bytes of an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends a signal by its name without `SIG`.
pub(crate) fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    let sent = Command::new("kill").args(["-s", name, &id]).status();
    assert!(sent.unwrap().success());
}

/// A program that is killed when this is dropped.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already, perhaps.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server that runs, and its address.
pub(crate) struct Server {
    process: Running,
    address: String,
}

impl Server {
    /// Starts it, and waits until it says where it listens.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut process = Running(command.spawn().unwrap());
        let mut url = String::new();
        let mut stdout = BufReader::new(process.0.stdout.take().unwrap());
        stdout.read_line(&mut url).unwrap();
        let address = url.trim().trim_start_matches("http://").to_owned();
        Self { process, address }
    }

    /// The status line and the body of the answer to a request, which is GET without a body.
    pub(crate) fn ask(&self, path: &str, body: &str) -> (String, String) {
        let method = if body.is_empty() { "GET" } else { "POST" };
        let length = body.len();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close");
        write!(stream, "{head}\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.lines().next().unwrap().to_owned(), body.to_owned())
    }

    /// Stops it as a system does; what it has said on standard error.
    pub(crate) fn stop(mut self) -> String {
        signal(&self.process.0, "TERM");
        let mut said = String::new();
        let mut stderr = self.process.0.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        assert!(self.process.0.wait().unwrap().success(), "{said}");
        said
    }
}
