//! What standard input holds, without reading it.

use std::io;

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{FileType, SeekFrom, fstat, seek},
};

/// Whether standard input is a pipe with data in it, or a file at its beginning. Does not wait.
pub(super) fn has_piped_text() -> bool {
    let stdin = io::stdin();
    let Ok(stat) = fstat(&stdin) else {
        return false;
    };
    match FileType::from_raw_mode(stat.st_mode) {
        // A shell loop that reads lines from a file has moved past the beginning.
        FileType::RegularFile => stat.st_size > 0 && seek(&stdin, SeekFrom::Current(0)) == Ok(0),
        FileType::Fifo => {
            let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
            let now = Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().contains(PollFlags::IN)
        }
        _ => false,
    }
}
