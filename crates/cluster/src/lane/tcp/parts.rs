//! Bytes of models: one request, then frames, then the end of the connection.

use std::{
    io::{self, Write},
    ops::ControlFlow,
    time::{Duration, Instant},
};

use super::{
    hello::Hello,
    stream::{HANDSHAKE, Protection, Stream, read_frame, read_message, write_message},
};
use crate::{
    control::MAX_MESSAGE,
    links::PartServer,
    part::{PART_STAGE, part_limits},
    wire::{
        Frame, FrameKind, Header,
        message::{NodeAddress, PartRequest},
    },
};

/// Time between two frames of an answer.
const SILENCE: Duration = Duration::from_secs(20);

/// Asks for bytes and takes them.
pub(super) fn pull(
    protection: &Protection,
    from: &NodeAddress,
    request: &PartRequest,
    take: &mut dyn FnMut(Frame) -> ControlFlow<()>,
) -> io::Result<()> {
    let request = request.to_bytes().map_err(io::Error::other)?;
    let NodeAddress { name, address } = from;
    let mut stream = protection.dial(*address, Some(name), &Hello::Parts, HANDSHAKE)?;
    write_message(&mut stream, &request)?;
    let limits = part_limits();
    loop {
        stream.set_deadline(Some(Instant::now() + SILENCE));
        let frame = read_frame(&mut stream, &limits)?;
        match frame.header.kind {
            FrameKind::Part => {}
            FrameKind::Bye => return Ok(()),
            _ => return Err(io::Error::other("frames of another kind come with it")),
        }
        if take(frame).is_break() {
            return Ok(());
        }
    }
}

/// Answers one request.
pub(super) fn serve(stream: &mut dyn Stream, server: &PartServer) -> io::Result<()> {
    stream.set_deadline(Some(Instant::now() + HANDSHAKE));
    let request = read_message(stream, MAX_MESSAGE)?;
    let request = PartRequest::parse(&request).map_err(io::Error::other)?;
    // The other side writes to a disk, perhaps a slow one.
    stream.set_deadline(None);
    stream.set_patience(SILENCE)?;
    server(&request, &mut |frame| write_frame(stream, frame))?;
    let mut end = Header::new(FrameKind::Bye);
    end.stage = PART_STAGE;
    write_frame(stream, Frame::bare(end))?;
    stream.close()
}

fn write_frame(stream: &mut (impl Write + ?Sized), mut frame: Frame) -> io::Result<()> {
    let mut bytes = Vec::new();
    frame.write(&mut bytes);
    stream.write_all(&bytes)?;
    stream.flush()
}
