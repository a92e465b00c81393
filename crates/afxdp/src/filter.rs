//! The program that tells our datagrams from all others, as instructions of eBPF (RFC 9669).

use std::net::SocketAddrV4;

use crate::frame::{HEAD_BYTES, MAX_DATAGRAM};

/// One instruction: code, registers, offset, constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    code: u8,
    /// Destination in the low half, source in the high one.
    registers: u8,
    offset: i16,
    constant: i32,
}

/// Gives a frame to the system as before.
const PASS: i32 = 2;
/// The helper that sends a frame to a socket of a map.
const REDIRECT_MAP: i32 = 51;

const LOAD_8: u8 = 0x71;
const LOAD_16: u8 = 0x69;
const LOAD_32: u8 = 0x61;
const LOAD_MAP: u8 = 0x18;
const MOVE: u8 = 0xb7;
const MOVE_REGISTER: u8 = 0xbf;
const ADD: u8 = 0x07;
const AND: u8 = 0x57;
const TO_BIG_ENDIAN: u8 = 0xdc;
const JUMP_IF_NOT: u8 = 0x55;
const JUMP_IF_NOT_32: u8 = 0x56;
const JUMP_IF_ABOVE: u8 = 0x25;
const JUMP_IF_ABOVE_REGISTER: u8 = 0x2d;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// Offset of a jump that leads to [`PASS`], until it is known.
const TO_PASS: i16 = i16::MAX;

fn op(code: u8, dst: u8, src: u8, offset: i16, constant: i32) -> Instruction {
    Instruction {
        code,
        registers: src << 4 | dst,
        offset,
        constant,
    }
}

/// A test of a field of the frame, which starts at register 2.
struct Field {
    load: u8,
    at: i16,
    jump: u8,
    value: i32,
}

/// The program for datagrams to an address; `map` is the file of the sockets, by queues.
pub(crate) fn program(to: SocketAddrV4, map: i32) -> Vec<Instruction> {
    let pair = |value: u16| i32::from(value.to_be());
    let ip = i32::from_ne_bytes(to.ip().octets());
    let field = |load, at, jump, value| Field {
        load,
        at,
        jump,
        value,
    };
    let mut program = vec![
        // Registers 2 and 3: begin and end of the frame.
        op(LOAD_32, 2, 1, 0, 0),
        op(LOAD_32, 3, 1, 4, 0),
        op(MOVE_REGISTER, 4, 2, 0, 0),
        op(ADD, 4, 0, 0, HEAD_BYTES as i32),
        op(JUMP_IF_ABOVE_REGISTER, 4, 3, TO_PASS, 0),
    ];
    for field in [
        field(LOAD_16, 12, JUMP_IF_NOT, pair(0x800)),
        field(LOAD_8, 14, JUMP_IF_NOT, 0x45),
        field(LOAD_8, 23, JUMP_IF_NOT, 17),
        field(LOAD_32, 30, JUMP_IF_NOT_32, ip),
        field(LOAD_16, 36, JUMP_IF_NOT, pair(to.port())),
    ] {
        program.push(op(field.load, 5, 2, field.at, 0));
        program.push(op(field.jump, 5, 0, TO_PASS, field.value));
    }
    program.extend([
        // Datagrams that the system has joined are for its socket.
        op(LOAD_16, 5, 2, 16, 0),
        op(TO_BIG_ENDIAN, 5, 0, 0, 16),
        op(JUMP_IF_ABOVE, 5, 0, TO_PASS, MAX_DATAGRAM as i32 + 28),
        // So are parts of datagrams.
        op(LOAD_16, 5, 2, 20, 0),
        op(AND, 5, 0, 0, pair(0x3fff)),
        op(JUMP_IF_NOT, 5, 0, TO_PASS, 0),
        // The socket of the queue; without one the system takes the frame.
        op(LOAD_32, 2, 1, 16, 0),
        op(LOAD_MAP, 1, 1, 0, map),
        op(0, 0, 0, 0, 0),
        op(MOVE, 3, 0, 0, PASS),
        op(CALL, 0, 0, 0, REDIRECT_MAP),
        op(EXIT, 0, 0, 0, 0),
    ]);
    let pass = program.len();
    for (i, instruction) in program.iter_mut().enumerate() {
        if instruction.offset == TO_PASS {
            instruction.offset = (pass - i - 1) as i16;
        }
    }
    program.extend([op(MOVE, 0, 0, 0, PASS), op(EXIT, 0, 0, 0, 0)]);
    program
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_refusals_lead_to_the_last_two_instructions() {
        let program = program("10.0.0.1:9990".parse().unwrap(), 3);
        let jumps = program.iter().enumerate();
        let jumps = jumps.filter(|(_, op)| matches!(op.code, 0x55 | 0x56 | 0x25 | 0x2d));
        let targets: Vec<usize> = jumps.map(|(i, op)| i + 1 + op.offset as usize).collect();
        assert_eq!(targets, [program.len() - 2; 8]);
    }
}
