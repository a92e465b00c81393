//! The program that runs tools: a call goes in, the program's output comes out.
//!
//! Threads of their own read and write, and may block for ever. A call is over when the program
//! ends, even if another process still holds its output, or when it has printed enough.

use std::{
    io::{self, ErrorKind, Read, Write},
    path::Path,
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    thread,
    time::{Duration, Instant},
};

use atta::tools::ToolCall;

use crate::interrupt::Interrupt;

/// The longest result that the model is given, bytes.
const MAX_RESULT: usize = 64 << 10;

/// Marks a result that was cut off.
pub(super) const CUT_OFF: &str = "… (cut off)";

/// The interval at which the program is checked for its end.
const POLL: Duration = Duration::from_millis(10);

/// How long to wait for output of other processes after the program has ended.
const GRACE: Duration = Duration::from_millis(500);

/// Runs a call. Returns the output, with the exit status of a failure; `None` after Ctrl-C.
pub(super) fn run(
    path: &Path,
    call: &ToolCall,
    interrupt: &Interrupt,
) -> io::Result<Option<String>> {
    let mut program = Program::start(path, call)?;
    loop {
        if interrupt.is_asked() {
            return Ok(None);
        }
        if let Some(end) = program.end()? {
            return Ok(Some(end));
        }
        program.poll()?;
    }
}

/// A running program, which is killed on drop.
struct Program {
    child: Child,
    chunks: Receiver<io::Result<Vec<u8>>>,
    output: Vec<u8>,
    /// Whether the output has ended.
    is_closed: bool,
    exit: Option<(ExitStatus, Instant)>,
}

impl Program {
    fn start(path: &Path, call: &ToolCall) -> io::Result<Self> {
        let mut command = Command::new(path);
        let child = command
            .arg(&call.name)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (sender, chunks) = mpsc::sync_channel(1);
        let mut program = Self {
            child,
            chunks,
            output: Vec::new(),
            is_closed: false,
            exit: None,
        };
        let stdin = program.child.stdin.take();
        let stdout = program.child.stdout.take();
        let input = call.arguments.to_string();
        let name = || thread::Builder::new().name("atta-tool".into());
        // A write fails if the program ends without reading.
        name().spawn(move || stdin.map(|mut stdin| stdin.write_all(input.as_bytes())))?;
        name().spawn(move || stdout.map(|stdout| read(stdout, &sender)))?;
        Ok(program)
    }

    /// The result, if the call is over.
    fn end(&mut self) -> io::Result<Option<String>> {
        if self.output.len() > MAX_RESULT {
            let text = String::from_utf8_lossy(&self.output[..MAX_RESULT]);
            return Ok(Some(format!("{text}{CUT_OFF}")));
        }
        if self.exit.is_none() {
            self.exit = self
                .child
                .try_wait()?
                .map(|status| (status, Instant::now()));
        }
        let over = self
            .exit
            .filter(|(_, at)| self.is_closed || at.elapsed() > GRACE);
        Ok(over.map(|(status, _)| {
            let text = String::from_utf8_lossy(&self.output);
            if status.success() {
                text.into_owned()
            } else {
                format!("{text}\n(failed: {status})")
            }
        }))
    }

    /// Waits a moment for output.
    fn poll(&mut self) -> io::Result<()> {
        if self.is_closed {
            thread::sleep(POLL);
            return Ok(());
        }
        match self.chunks.recv_timeout(POLL) {
            Ok(chunk) => self.output.extend(chunk?),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => self.is_closed = true,
        }
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Killing fails if the program has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends the output in chunks until it ends or the receiver is dropped.
fn read(mut stdout: ChildStdout, chunks: &SyncSender<io::Result<Vec<u8>>>) {
    let mut buffer = [0; 4096];
    loop {
        let chunk = match stdout.read(&mut buffer) {
            Ok(0) => return,
            Ok(n) => Ok(buffer[..n].to_vec()),
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => Err(error),
        };
        let failed = chunk.is_err();
        if chunks.send(chunk).is_err() || failed {
            return;
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use serde_json::json;

    use super::*;

    /// What a shell makes of a script, which it is given by the name of the tool, and how long that
    /// took.
    fn shell(script: &str, interrupt: &Interrupt) -> (Option<String>, Duration) {
        let path = scratch("script");
        std::fs::write(&path, script).unwrap();
        let call = ToolCall {
            id: "1".into(),
            name: path.clone(),
            arguments: json!({ "x": 1 }),
        };
        let start = Instant::now();
        let result = run(Path::new("/bin/sh"), &call, interrupt).unwrap();
        std::fs::remove_file(path).unwrap();
        (result, start.elapsed())
    }

    /// A file of this test alone.
    fn scratch(name: &str) -> String {
        let id = (std::process::id(), thread::current().id());
        std::env::temp_dir()
            .join(format!("atta-{name}-{id:?}"))
            .to_str()
            .unwrap()
            .to_owned()
    }

    fn says(script: &str) -> String {
        let (result, time) = shell(script, &Interrupt::default());
        assert!(time < Duration::from_secs(20), "{script}: {time:?}");
        result.unwrap()
    }

    #[test]
    fn a_program_says_what_it_prints_and_how_it_failed() {
        assert_eq!(says("cat; sleep 0.2; echo later"), "{\"x\":1}later\n");
        assert_eq!(says("echo no; exit 3"), "no\n\n(failed: exit status: 3)");
        assert_eq!(
            says("exec >&-; sleep 0.2; exit 1"),
            "\n(failed: exit status: 1)"
        );
    }

    #[test]
    fn what_a_program_leaves_running_is_not_waited_for() {
        assert_eq!(says("sleep 60 & echo hi"), "hi\n");
    }

    #[test]
    fn a_program_that_prints_for_ever_is_cut_off() {
        for script in ["yes", "trap '' PIPE; while :; do echo yes; done"] {
            let said = says(script);
            assert_eq!(said.len(), MAX_RESULT + CUT_OFF.len());
            assert!(said.starts_with("y") && said.ends_with(CUT_OFF));
        }
    }

    #[test]
    fn ctrl_c_ends_a_program_that_says_nothing() {
        let pid = scratch("pid");
        let interrupt = Interrupt::default();
        let is_there = || std::fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n'));
        let (result, time) = thread::scope(|scope| {
            scope.spawn(|| {
                while !is_there() {
                    thread::sleep(POLL);
                }
                interrupt.ask();
            });
            shell(&format!("echo $$ > '{pid}'; exec sleep 60"), &interrupt)
        });
        assert!(
            result.is_none() && time < Duration::from_secs(20),
            "{time:?}"
        );
        let (alive, _) = shell(
            &format!("kill -0 $(cat '{pid}') 2> /dev/null && echo yes"),
            &Interrupt::default(),
        );
        std::fs::remove_file(&pid).unwrap();
        assert_eq!(alive.unwrap(), "\n(failed: exit status: 1)");
    }
}
